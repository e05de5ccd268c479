"""Reads one cycle of one copy of a queue forward, part by part, for a comparison.

Theory of operation. One walk over the documents serves all that is asked of a store file: its
excerpts are handed out in parts to be compared, its index pages and marks are held against where
they stand (`storescan`), and the chain over them against what replication has noted
(`notedchains`). Nothing happens once per excerpt here.

Two parts are equal when the bytes of the file from the first header to the end of the last excerpt
are: a walk over the same bytes finds the same excerpts. Otherwise lengths and payloads decide, as
index pages, gaps and an application's meta-data may lie elsewhere in each copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from operator import add

from cqrepl.kernel.chain import CHAIN_START, extend_chain
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.storefile import Place, StoreHeader
from cqrepl.queue.format.index import Cycle, Index, Position, Sequence
from cqrepl.queue.inspection.bisection import Bisection, first_difference
from cqrepl.queue.inspection.documentwalk import DocumentWalk, Stretch
from cqrepl.queue.inspection.storescan import StoreReport, StoreScan
from wire.header import HEADER_BYTES


@dataclass(frozen=True, slots=True)
class CopyPart:
    """Consecutive excerpts of a stretch. Valid until its reader is asked for what follows."""

    stretch: Stretch
    start: int
    count: int

    @property
    def is_large(self) -> bool:
        """True for a single excerpt that is read in pieces."""
        return not len(self.stretch.data)

    @property
    def lengths(self) -> array[int]:
        """The payloads' lengths."""
        return self.stretch.lengths[self.start : self.start + self.count]

    @property
    def offsets(self) -> array[int]:
        """The payloads' offsets in the stretch's data."""
        return self.stretch.offsets[self.start : self.start + self.count]

    def cut(self, start: int, count: int) -> CopyPart:
        """Some of them."""
        return CopyPart(self.stretch, self.start + start, count)

    def place(self, nth: int) -> Place:
        """Sequence and header position of one of them."""
        at = self.start + nth
        position = self.stretch.base + self.stretch.offsets[at] - HEADER_BYTES
        return Place(Sequence(self.stretch.sequence + at), Position(position))

    def raw(self) -> memoryview:
        """The bytes of the file from the first header to the end of the last excerpt."""
        offsets, last = self.stretch.offsets, self.start + self.count - 1
        end = offsets[last] + self.stretch.lengths[last]
        return self.stretch.data[offsets[self.start] - HEADER_BYTES : end]

    def payload_bytes(self) -> int:
        """The number of bytes of the payloads; headers and gaps between them are counted in, except
        with a large excerpt."""
        if self.is_large:
            return self.stretch.lengths[0]
        return len(self.raw())

    def pieces(self) -> Iterator[bytes]:
        """The payloads without gaps, in pieces of bounded size."""
        if self.is_large:
            yield from self.stretch.payload_pieces()
            return
        offsets = self.offsets
        ends = map(add, offsets, self.lengths)
        yield b"".join(map(self.stretch.data.__getitem__, map(slice, offsets, ends)))


def are_equal(one: CopyPart, other: CopyPart) -> bool:
    """True when two parts of as many excerpts hold the same bytes."""
    assert one.count == other.count
    if not (one.is_large or other.is_large):
        raw = other.raw()
        # a bytearray compares as memory, two views compare byte by byte
        if len(one.raw()) == len(raw) and bytearray(one.raw()) == raw:
            return True
    if one.lengths != other.lengths:
        return False
    return all(a == b for a, b in zip(one.pieces(), other.pieces(), strict=False))


def equal_count(parts: list[CopyPart]) -> int:
    """The number of excerpts, from the first one on, that are the same in all parts.

    They are tried one, two, four ... at a time, and halved where they differ: the cost is in
    proportion to the answer.
    """
    equal, size, count = 0, 1, parts[0].count
    while equal < count:
        size = min(size, count - equal)
        if not _are_all_equal(parts, equal, size):
            return equal + _halved(parts, equal, size)
        equal, size = equal + size, 2 * size
    return equal


def _halved(parts: list[CopyPart], start: int, count: int) -> int:
    search = Bisection(count - 1)
    while (middle := search.middle) is not None:
        begin = search.equal_before
        search.take(is_equal=_are_all_equal(parts, start + begin, middle + 1 - begin))
    return search.first


def _are_all_equal(parts: list[CopyPart], start: int, count: int) -> bool:
    first, *others = (part.cut(start, count) for part in parts)
    return all(are_equal(first, other) for other in others)


def first_byte(one: CopyPart, other: CopyPart) -> int | None:
    """Offset of the first byte that differs in two parts of one excerpt; the shorter length where
    one is the beginning of the other; None: they are equal."""
    mine, theirs = one.pieces(), other.pieces()
    at, left, right = 0, b"", b""
    while True:
        left, right = left or next(mine, b""), right or next(theirs, b"")
        size = min(len(left), len(right))
        if size == 0:
            return at if len(left) != len(right) else None
        found = first_difference(left[:size], right[:size])
        if found is not None:
            return at + found
        at, left, right = at + size, left[size:], right[size:]


class CycleReader:
    """The excerpts of one cycle of one copy, and what is wrong in its store file.

    Args:
        with_chain: the chain over what was taken is kept.
    """

    def __init__(
        self, file: FileBytes, header: StoreHeader, index_first: Index, *, with_chain: bool
    ) -> None:
        self.file = file
        self.walk = DocumentWalk(file)
        self.chain: bytes | None = CHAIN_START if with_chain else None
        self.sequence = 0  # of the next excerpt
        self.has_ended = False
        self._scan = StoreScan(file, header, index_first)
        self._stretches = self.walk.stretches()
        self._part: CopyPart | None = None

    def available(self) -> int:
        """The number of excerpts at hand; 0 at the end."""
        if self._part is None and not self.has_ended:
            stretch = next(self._stretches, None)
            self.has_ended = stretch is None
            if stretch is not None:
                self._scan.take(stretch)
                self._part = CopyPart(stretch, 0, len(stretch))
        return 0 if self._part is None else self._part.count

    def take(self, count: int) -> CopyPart:
        """The next excerpts, `count` of those at hand."""
        part = self._part
        assert part is not None
        self._part = part.cut(count, part.count - count) if count < part.count else None
        self.sequence += count
        return part.cut(0, count)

    def extend_chain(self, part: CopyPart) -> None:
        """Takes a part that was taken into the chain."""
        if self.chain is None:
            return
        data: bytes | memoryview = part.stretch.data
        offsets = part.offsets
        if part.is_large:
            data, offsets = b"".join(part.pieces()), array("q", [0])
        sequence = part.place(0).sequence
        self.chain = extend_chain(data, offsets, part.lengths, sequence, self.chain)

    def report(self, cycle: Cycle) -> StoreReport:
        """The report of the store file; call it once all excerpts were taken."""
        assert self.has_ended
        return self._scan.report(self.walk, cycle, None)
