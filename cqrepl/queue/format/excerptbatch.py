"""A batch: consecutive excerpts of one cycle, handled in one step.

    data      one buffer: a mapped store file, or what came from a socket
    offsets   where in it each payload starts
    lengths   how many bytes each payload has

It is what a tailer hands out, what the protocol carries, and what an appender takes. Nothing here
costs time per excerpt unless the excerpts are iterated. The maker of a batch keeps `data` alive;
a tailer's batch is valid until the next read from that tailer.

A batch knows its size: how many excerpts it has and which is the last one is reckoned as it is
made, as each step of the way asks. Its lengths are added up when a step first asks, and kept for
those that ask later. So the arrays are not changed once the batch is made.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cqrepl.kernel.batch import join_payloads, laid_size, measure_lengths
from cqrepl.queue.format.index import Index


@dataclass(frozen=True, slots=True)
class ExcerptBatch:
    """Excerpts `index_first` .. `index_last`, without a gap: `count` of them, at least one."""

    index_first: Index
    data: bytes | memoryview
    offsets: "array[int]"
    lengths: "array[int]"
    count: int = field(init=False, repr=False, compare=False)
    index_last: Index = field(init=False, repr=False, compare=False)
    _measured: tuple[int, int] | None = field(default=None, init=False, repr=False, compare=False)
    _laid_bytes: int | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = len(self.offsets)
        assert count == len(self.lengths) > 0
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "index_last", Index(self.index_first + count - 1))

    @classmethod
    def of(cls, index_first: int, payloads: Sequence[bytes | memoryview]) -> "ExcerptBatch":
        """A batch of these payloads, copied together."""
        return cls(Index(index_first), *join_payloads(payloads))

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        view = memoryview(self.data)
        index: int = self.index_first
        for offset, length in zip(self.offsets, self.lengths, strict=True):
            yield index, view[offset : offset + length]
            index += 1

    @property
    def payload_bytes(self) -> int:
        """Sum of the lengths of the payloads."""
        return self._measure()[0]

    @property
    def payload_longest(self) -> int:
        """Greatest of the lengths of the payloads."""
        return self._measure()[1]

    @property
    def laid_bytes(self) -> int:
        """Upper bound of the bytes that the batch takes in a store file, as `laid_size` tells."""
        if self._laid_bytes is None:
            object.__setattr__(self, "_laid_bytes", laid_size(self.lengths, 0, len(self.lengths)))
        assert self._laid_bytes is not None
        return self._laid_bytes

    def payload(self, place: int) -> memoryview:
        """The payload of excerpt `index_first + place`, without a copy."""
        assert 0 <= place < len(self.offsets)
        offset = self.offsets[place]
        return memoryview(self.data)[offset : offset + self.lengths[place]]

    def part(self, start: int, stop: int) -> "ExcerptBatch":
        """The excerpts from place `start` up to, excluding, place `stop`; the data is shared."""
        assert 0 <= start < stop <= len(self.offsets)
        if start == 0 and stop == len(self.offsets):
            return self
        first = Index(self.index_first + start)
        return ExcerptBatch(first, self.data, self.offsets[start:stop], self.lengths[start:stop])

    def _measure(self) -> tuple[int, int]:
        if self._measured is None:
            measured = measure_lengths(self.lengths, 0, len(self.lengths))
            object.__setattr__(self, "_measured", measured)
        assert self._measured is not None
        return self._measured
