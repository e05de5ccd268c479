"""Reads from the parts of an archive, without its manifest, what it holds. Knows nothing of Spark.

Theory of operation. A part has its first index, its number of excerpts and their digest in its
name, and its day and cycle in those of its folders. So parts tell what was archived, which of them
belong together, and where one is missing between others. They do not tell how indexes are divided,
which the queue or its roll cycle does; nor what was behind the last part of a cycle, or that a
cycle was archived of which no part is left. The queue knows some of that: what it still holds, and
what replication has noted of closed cycles. A cycle of which neither the parts nor the queue know
that it is whole is reported, and not taken for whole.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Final

from cqrepl.queue import LayoutMismatch, Queue, QueueDamaged, QueueLayout, index_of
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index, cycle_of, sequence_of
from cqrepl.queue.read.count import count_in, last_index
from cqrepl.spark.jobs.archivefiles import ArchivedCycle, ArchivePart, day_of, part_folder
from cqrepl.spark.jobs.archiveplace import ArchivePlace
from cqrepl.spark.jobs.blocks import BLOCK_EXCERPTS
from cqrepl.spark.ranges import listed_cycles

_PART: Final = re.compile(
    r"(?P<folder>day=[^/]+/cycle=[0-9]+)/part-(?P<first>[0-9a-f]{16})-(?P<count>[1-9][0-9]*)"
    r"-[0-9a-f]{16}\.parquet"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCycle:
    """One cycle as its queue knows it: the number of excerpts it held, whether it has ended, and
    whether its store file is there."""

    count: int
    is_closed: bool
    is_there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDoubt:
    """Cycles of which the parts do not tell all, the first and the last one; and what is known."""

    first: int
    last: int
    text: str


def found_parts(place: ArchivePlace, layout: QueueLayout) -> list[list[ArchivePart]]:
    """The parts that are there by cycle, in the order of their indexes; they have no digests yet.

    Raises:
        QueueDamaged: one has not the name of a part, two hold the same indexes, or one is missing
            between others of its cycle.
        LayoutMismatch: one is not where the layout puts it.
    """
    parts = sorted(
        (_named(place, layout, name) for name in place.parts()), key=lambda part: part.index_first
    )
    for before, part in pairwise(parts):
        if part.index_first <= before.index_last:
            raise QueueDamaged(
                f"{place.at(part.path)}: expected indexes above {before.index_last:#x}, which"
                f" {before.path} holds, found them from {part.index_first:#x} on; move the one"
                " away that is not to be in the archive"
            )
    shift = layout.roll_cycle.shift
    grouped = groupby(parts, key=lambda part: cycle_of(Index(part.index_first), shift))
    cycles = [list(those) for _, those in grouped]
    for cycle in cycles:
        _check_whole(place, cycle, shift)
    return cycles


def known_cycles(queue: Queue) -> tuple[dict[int, KnownCycle], int]:
    """The cycles as their queue knows them, by cycle; and the number of the highest cycle that has
    or had excerpts, -1 if there is none."""
    cycles = queue.cycles
    known = {
        int(cycle): KnownCycle(count=record.excerpts, is_closed=True, is_there=False)
        for cycle, record in cycles.closed.load().items()
    }
    for cycle in listed_cycles(cycles):
        count, noted = count_in(cycles, cycle), known.get(cycle)
        if noted is None or noted.count <= count:
            known[cycle] = KnownCycle(count=count, is_closed=cycles.has_ended(cycle), is_there=True)
    last = last_index(cycles)
    ends = [*known, -1 if last is None else cycle_of(last, cycles.shift)]
    return known, max(ends)


def judged(
    layout: QueueLayout,
    cycles: Sequence[Sequence[ArchivePart]],
    known: Mapping[int, KnownCycle],
    cycle_last: int,
) -> tuple[list[ArchivedCycle], list[CycleDoubt]]:
    """The cycles of an archive as its parts tell them; and what is missing, or may be.

    A cycle is taken for closed where the queue knows so and the parts hold all of it; where it
    knows nothing of it, if a later one has anything, and nothing tells that a part is missing.

    Args:
        known: what the queue knows of its cycles.
        cycle_last: the last one of the queue that has anything; -1 where there is no queue.
    """
    shift = layout.roll_cycle.shift
    by_cycle = {cycle_of(Index(parts[0].index_first), shift): parts for parts in cycles}
    end = max([cycle_last, *by_cycle])
    archived, doubts = [], []
    for cycle, parts in by_cycle.items():
        one = ArchivedCycle(
            cycle=cycle,
            day=day_of(layout, cycle),
            file=layout.roll_cycle.file_name(cycle, layout.epoch) + ".cq4",
            is_closed=cycle < end,
            parts=tuple(parts),
        )
        of_queue = known.get(cycle)
        if of_queue is not None:
            is_all = one.count == of_queue.count
            one = replace(one, is_closed=of_queue.is_closed and is_all)
            if one.count > of_queue.count or (of_queue.is_closed and not is_all):
                held = f"{one.count} excerpts, and {of_queue.count} are known to the queue"
                doubts.append(CycleDoubt(first=cycle, last=cycle, text=held))
        elif not (sequence_of(Index(one.index_last), shift) + 1) % BLOCK_EXCERPTS:
            one = replace(one, is_closed=False)
            more = "it ends where a part may end: another one may have been behind it"
            doubts.append(CycleDoubt(first=cycle, last=cycle, text=more))
        archived.append(one)
    doubts += _missing(list(by_cycle), known)
    return archived, sorted(doubts, key=lambda doubt: doubt.first)


def _missing(archived: Sequence[int], known: Mapping[int, KnownCycle]) -> Iterator[CycleDoubt]:
    """The cycles without a part: all between others, and those that a queue knows as closed."""
    lacking = {
        cycle: each
        for cycle, each in known.items()
        if cycle not in archived and each.is_closed and each.count
    }
    for cycles in _neighbours([cycle for cycle, each in lacking.items() if each.is_there]):
        text = "no part of it: the queue holds it, and the next run archives it"
        yield CycleDoubt(first=cycles[0], last=cycles[-1], text=text)
    for cycles in _neighbours([cycle for cycle, each in lacking.items() if not each.is_there]):
        count = sum(lacking[cycle].count for cycle in cycles)
        text = f"no part of it, and {count} excerpts are known to the queue"
        yield CycleDoubt(first=cycles[0], last=cycles[-1], text=text)
    for before, after in pairwise(sorted({*archived, *lacking})):
        if after > before + 1:
            text = "no part of it: nothing was in it, or its parts have gone"
            yield CycleDoubt(first=before + 1, last=after - 1, text=text)


def _neighbours(cycles: Iterable[int]) -> Iterator[list[int]]:
    """The cycles in groups that follow each other."""
    ordered = enumerate(sorted(cycles))
    for _, those in groupby(ordered, key=lambda each: each[1] - each[0]):
        yield [cycle for _, cycle in those]


def _named(place: ArchivePlace, layout: QueueLayout, name: str) -> ArchivePart:
    found = _PART.fullmatch(name)
    if found is None:
        raise QueueDamaged(
            f"{place.at(name)}: expected a part named by its first index, its number of excerpts"
            " and their digest"
        )
    first, count = int(found["first"], 16), int(found["count"])
    ends, shift = (first, first + count - 1), layout.roll_cycle.shift
    try:
        folders = {part_folder(layout, cycle_of(Index(index), shift)) for index in ends}
    except OverflowError:
        folders = {"a day that there is"}
    if folders != {found["folder"]}:
        raise LayoutMismatch(
            f"{place.at(name)}: expected it in {' and '.join(sorted(folders))} by {layout}"
        )
    return ArchivePart(
        path=name, index_first=first, index_last=first + count - 1, payload_bytes=0, blocks=()
    )


def _check_whole(place: ArchivePlace, parts: Sequence[ArchivePart], shift: int) -> None:
    cycle = Cycle(cycle_of(Index(parts[0].index_first), shift))
    expected: int = index_of(cycle, SEQUENCE_FIRST, shift)
    for part in parts:
        if part.index_first != expected:
            raise QueueDamaged(
                f"{place.at(part.path)}: expected parts of cycle {cycle} from {expected:#x} on,"
                f" found none of {expected:#x} to {part.index_first - 1:#x}; put it back, or move"
                " what is left of the cycle away"
            )
        expected = part.index_last + 1
