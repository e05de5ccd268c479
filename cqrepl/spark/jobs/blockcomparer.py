"""Compares copies of a queue within one block, excerpt by excerpt. Knows nothing of Spark.

Theory of operation. A block that is not the same everywhere is read again, from all copies in step.
A copy that ends early, or cannot be followed from some place on, lacks what is behind; the other
copies are compared all the same. What comes out are ranges of neighbours of which the same is true.
In a block with very many of them the rest is told as one, which says so (`MIXED`).
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final

from cqrepl.queue import Columns, IndexGap, Queue, QueueDamaged
from cqrepl.queue.inspection.bisection import first_difference
from cqrepl.queue.inspection.neighbours import joined

RANGES_MAX: Final = 1000  # of one block
_STEP_ROWS: Final = 4096
_STEP_BYTES: Final = 8 * 1024 * 1024


class BlockVerdict(Enum):
    """The kinds of difference in a range; `present` tells which copies hold it."""

    MISSING = "missing"  # the first copy holds it, another one does not
    EXTRA = "extra"  # the first copy does not hold it
    DIFFERENT = "differ"  # copies hold other bytes
    MIXED = "mixed"  # more differences of several kinds, not told one by one
    ONE_FILE = "one-file"  # two copies are one and the same: nothing is proved
    NOTHING = "nothing"  # no excerpt was compared: nothing is proved either
    UNREADABLE = "damaged"  # a copy cannot be followed from `index_first` on


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Consecutive indexes that are not alike in all copies.

    Args:
        present: which of the copies hold them, in the order of the paths.
        lengths: of the first excerpt in each copy, None where it is missing; for a difference.
        byte_first: offset of the first byte that differs in the first excerpt.
        text: why a copy could not be read, or what happened there.
        what: the kind of difference, or the part of a queue that is damaged, where it is known.
    """

    verdict: BlockVerdict
    index_first: int
    index_last: int
    present: tuple[bool, ...]
    lengths: tuple[int | None, ...] = ()
    byte_first: int | None = None
    text: str | None = None
    what: str | None = None

    @property
    def count(self) -> int:
        """The number of indexes."""
        return self.index_last - self.index_first + 1


def compare_block(paths: Sequence[Path], index_first: int, index_last: int) -> Iterator[Difference]:
    """The differences between copies from one index to another of the same block.

    Raises:
        QueueError: one of the paths is no queue.
    """
    copies = [_Copy(path) for path in paths]
    try:
        found_all = joined(_differences(copies, index_first, index_last), are_one)
        for count, found in enumerate(found_all):
            if count == RANGES_MAX:
                rest = (True,) * len(paths)
                yield replace(
                    found, verdict=BlockVerdict.MIXED, index_last=index_last, present=rest,
                    lengths=(), byte_first=None,
                )  # fmt: skip
                break
            yield found
        for nth, copy in enumerate(copies):
            if copy.broken is not None:
                yield _unreadable(nth, copy, len(copies))
    finally:
        for copy in copies:
            copy.queue.close()


def are_one(first: Difference, second: Difference) -> bool:
    """Neighbours of one kind in the same copies; each place that cannot be read is told."""
    return (
        (first.verdict, first.present) == (second.verdict, second.present)
        and first.index_last + 1 == second.index_first
        and second.verdict is not BlockVerdict.UNREADABLE
    )


def absent(index_first: int, index_last: int, present: tuple[bool, ...]) -> Difference:
    """Excerpts that are the same where they are, and not everywhere."""
    verdict = BlockVerdict.MISSING if present[0] else BlockVerdict.EXTRA
    return Difference(
        verdict=verdict, index_first=index_first, index_last=index_last, present=present
    )


class _Copy:
    """One copy while it is read; `broken` is where it could not be followed, and why."""

    def __init__(self, path: Path) -> None:
        self.queue = Queue.open(path)
        self.broken: tuple[int, str] | None = None

    def rows(self, index: int, index_last: int) -> Columns | None:
        """Excerpts from `index` on, up to some limits; None if the copy cannot give even the first.

        Damage is noted in `broken`.
        """
        if self.broken is not None:
            return None
        try:
            columns = self.queue.read_columns(index, index_last, _STEP_ROWS, _STEP_BYTES)
        except IndexGap:
            return None
        except QueueDamaged as error:
            self.broken = index, str(error)
            return None
        return columns if columns.rows and columns.indexes[0] == index else None


def _unreadable(nth: int, copy: _Copy, count: int) -> Difference:
    assert copy.broken is not None
    index, text = copy.broken
    present = tuple(other != nth for other in range(count))
    return Difference(
        verdict=BlockVerdict.UNREADABLE,
        index_first=index,
        index_last=index,
        present=present,
        text=text,
    )


def _differences(copies: list[_Copy], index: int, index_last: int) -> Iterator[Difference]:
    while index <= index_last:
        rows = [copy.rows(index, index_last) for copy in copies]
        held = [each for each in rows if each is not None]
        if not held:
            return
        count = min(each.rows for each in held)
        yield from _compare(rows, index, count)
        index += count


def _compare(rows: list[Columns | None], index: int, count: int) -> Iterator[Difference]:
    """The differences among `count` excerpts, which the copies that are not None have."""
    present = tuple(each is not None for each in rows)
    held = [each for each in rows if each is not None]
    first, *others = held
    offsets = first.offsets[: count + 1]
    payload = memoryview(first.payload)[: offsets[-1]]
    if all(
        other.offsets[: count + 1] == offsets
        and memoryview(other.payload)[: offsets[-1]] == payload
        for other in others
    ):
        if not all(present):
            yield absent(index, index + count - 1, present)
        return
    for nth in range(count):
        yield from _compare_one(rows, present, index + nth, nth)


def _compare_one(
    rows: list[Columns | None], present: tuple[bool, ...], index: int, nth: int
) -> Iterator[Difference]:
    payloads = [None if each is None else _payload(each, nth) for each in rows]
    held = [payload for payload in payloads if payload is not None]
    byte = min(
        (at for other in held[1:] if (at := first_difference(held[0], other)) is not None),
        default=None,
    )
    if byte is not None:
        yield Difference(
            verdict=BlockVerdict.DIFFERENT, index_first=index, index_last=index, present=present,
            lengths=tuple(None if each is None else len(each) for each in payloads),
            byte_first=byte,
        )  # fmt: skip
    elif not all(present):
        yield absent(index, index, present)


def _payload(columns: Columns, nth: int) -> memoryview:
    offsets: array[int] = columns.offsets
    return memoryview(columns.payload)[offsets[nth] : offsets[nth + 1]]
