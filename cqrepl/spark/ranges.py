"""Finds the excerpts that a job reads, and cuts them into tasks. Knows nothing of Spark.

Theory of operation. Sequences are dense within a cycle, so what a cycle holds is told by two
numbers, and a queue by one range for each of its cycles. `present` takes them from the files as
they are at that moment: only whole excerpts count, and what is appended later is in no range. A
cycle without an end counts like any other. A stream, which comes back for what is appended later,
must not leave such a cycle; `followed` is for that. Neither steps over a closed store file that is
noted to have held more than is there (`queue.files.closedcycles`), unless retention took it.

A task of Spark costs as much as reading tens of thousands of excerpts, so `split` makes few and
large ones. It fills one split after the next from the ranges in their order, over cycles and
queues alike, and cuts a range only where an index slot stands, as there a reader begins without a
walk. The positions that slots tell are taken as they are: a wrong one makes a split larger or
smaller, and nothing else. The ranges of all splits, in order, are exactly those that came.
"""

from collections import abc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue import (
    NEXT_OF_EMPTY,
    IndexGap,
    Queue,
    cycle_of,
    format_index,
    index_of,
    sequence_of,
)
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.storefile import START, Place, StoreFile
from cqrepl.queue.format.index import INDEX_MAX, SEQUENCE_FIRST, Cycle, Index, Sequence
from cqrepl.queue.read.count import count_in

SPLIT_BYTES: Final = 64 * 1024 * 1024
SPLIT_EXCERPTS: Final = 4096
SPLITS_MAX: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """Excerpts of one cycle, `index_first` to `index_last` without a gap; at least one.

    Args:
        queue: its directory.
        size_bytes: what they take of the store file, about.
    """

    queue: Path
    index_first: int
    index_last: int
    size_bytes: int

    @property
    def count(self) -> int:
        """The number of excerpts."""
        return self.index_last - self.index_first + 1

    def until(self, index_last: int) -> "IndexRange":
        """Its excerpts up to one of them, included; their size is estimated."""
        assert self.index_first <= index_last <= self.index_last
        count = index_last - self.index_first + 1
        size = max(1, self.size_bytes * count // self.count)
        return replace(self, index_last=index_last, size_bytes=size)

    def __str__(self) -> str:
        first, last = format_index(self.index_first), format_index(self.index_last)
        return f"{self.queue}: {first} to {last}"


Split = tuple[IndexRange, ...]


def present(
    queue: Queue, index_from: int = NEXT_OF_EMPTY, index_to: int = INDEX_MAX
) -> list[IndexRange]:
    """The ranges that a queue holds now from `index_from` to `index_to`, both included.

    There is one range for each cycle that holds any of these indexes, in the order of the cycles.
    The time this takes grows with the cycles, and not with the excerpts.

    Raises:
        QueueDamaged: a store file cannot be followed; or one between others is missing, or holds
            less than it did.
    """
    cycles = queue.cycles
    begin, end = Index(index_from), Index(index_to)
    first, last = cycle_of(begin, cycles.shift), cycle_of(end, cycles.shift)
    listed = listed_cycles(cycles)
    ranges = []
    noted = cycles.closed.load()  # what is noted from now on is of what is found from now on
    for cycle in listed:
        if first <= cycle <= last:
            record = noted.get(cycle) if cycle < listed[-1] else None
            found = present_in(queue, cycle, begin, end, noted=record)
            ranges += [] if found is None else [found]
    if listed:
        below, above = Cycle(first - 1), Cycle(last + 1)
        cycles.check_between(max(below, listed[0]), min(above, listed[-1]))
    return ranges


def followed(
    queue: Queue,
    index_from: int = NEXT_OF_EMPTY,
    *,
    may_be_lost: bool = False,
    open_below: int = -1,
    is_enough: abc.Callable[[IndexRange], bool] | None = None,
) -> list[IndexRange]:
    """The ranges that a tailer at `index_from` would read now. They are as `present` gives them, up
    to the first cycle that has not ended: more may be appended there.

    Args:
        may_be_lost: go on with the excerpts that are left, where others are lost.
        open_below: go on behind an open cycle too, where it is lower than this.
        is_enough: is given each range in turn; True ends the search.

    Raises:
        IndexGap: the excerpts that follow `index_from` are not there any more.
        QueueDamaged: as `present`.
    """
    cycles, ranges = queue.cycles, []
    begin = Index(index_from)
    first = cycle_of(begin, cycles.shift)
    if not may_be_lost:
        check_held(queue, begin)
    listed = listed_cycles(cycles)
    reached = Cycle(first - 1)
    noted = cycles.closed.load()
    for cycle in listed:
        if cycle < first:
            continue
        has_ended = cycles.has_ended(cycle)  # asked first: nothing comes in between then
        record = noted.get(cycle) if has_ended and cycle < listed[-1] else None
        found = present_in(queue, cycle, begin, Index(INDEX_MAX), noted=record)
        if found is not None:
            ranges.append(found)
        reached = cycle
        waits = not has_ended and cycle >= open_below
        if waits or (found is not None and is_enough is not None and is_enough(found)):
            break
    if listed:
        cycles.check_between(max(Cycle(first - 1), listed[0]), reached)
    return ranges


def check_held(queue: Queue, next_index: Index) -> None:
    """Does nothing while the queue still holds the cycle of `next_index`, up to that index.

    Without the file it is unknown what else stood in it, or in those that followed.

    Raises:
        IndexGap: it does not.
        QueueDamaged: its store file is missing, though retention did not take it.
    """
    if next_index == NEXT_OF_EMPTY:
        return
    cycles, shift = queue.cycles, queue.cycles.shift
    cycle, sequence = cycle_of(next_index, shift), sequence_of(next_index, shift)
    if not cycles.has(cycle):
        following = cycles.following(cycle)
        if following is not None:
            cycles.check_between(Cycle(cycle - 1), following)
        found = NEXT_OF_EMPTY if following is None else index_of(following, SEQUENCE_FIRST, shift)
        raise IndexGap(next_index, found, "its store file was removed", path=queue.path)
    count = count_in(cycles, cycle, sequence)
    if count < sequence:
        found = index_of(cycle, Sequence(count), shift)
        raise IndexGap(next_index, found, "its cycle ends before", path=queue.path)


def listed_cycles(cycles: Cycles) -> list[Cycle]:
    """The cycles that have a store file, without a hole; `Cycles` tells why it takes two looks."""
    last = max(cycles.listing(), default=-1)
    return [cycle for cycle in cycles.listing() if cycle <= last]


def present_in(
    queue: Queue,
    cycle: Cycle,
    index_from: Index,
    index_to: Index,
    *,
    noted: ClosedCycle | None = None,
) -> IndexRange | None:
    """The range that one cycle holds between two indexes, both included; None where it holds none.

    Args:
        noted: the note of the cycle, given where the reader goes on to a later one. If the cycle
            holds less than that, its note is looked up again and decides.

    Raises:
        QueueDamaged: the cycle cannot be followed, or holds less than it did.
    """
    cycles = queue.cycles
    shift = cycles.shift
    is_first = cycle == cycle_of(index_from, shift)
    start = sequence_of(index_from, shift) if is_first else SEQUENCE_FIRST
    is_last = cycle == cycle_of(index_to, shift)
    end = sequence_of(index_to, shift) + 1 if is_last else NO_LIMIT
    store = cycles.open(cycle)
    if store is None:  # not ready, or removed since it was listed
        return None
    try:
        indexing = Indexing(store)
        before = indexing.place_before(end - 1 if end < NO_LIMIT else NO_LIMIT)
        walked = store.walk(before, end)
        place = walked.place
        if place.sequence < end:  # else a last excerpt that was overwritten is none
            last = Place(Sequence(max(0, place.sequence - 1)), walked.position_last)
            store.check_end(place.position, last)
        if noted is not None and place.sequence < min(noted.excerpts, end):
            cycles.check_counted(cycle, place.sequence)
        if place.sequence <= start:
            return None
        # the last slot in use before the end is the last one before the start, too, where it stands
        # there: as in each cycle with few excerpts
        is_nearest = before != START and before.sequence <= start
        origin = before if is_nearest else indexing.guess_before(start)
        size = place.position - origin.position
    finally:
        store.close()
    return IndexRange(
        queue=queue.path,
        index_first=index_of(cycle, start, cycles.shift),
        index_last=index_of(cycle, Sequence(place.sequence - 1), cycles.shift),
        size_bytes=max(1, size),
    )


def split(
    ranges: abc.Sequence[IndexRange],
    *,
    split_bytes: int = SPLIT_BYTES,
    split_excerpts: int = SPLIT_EXCERPTS,
    splits_max: int = SPLITS_MAX,
) -> list[Split]:
    """The same ranges, cut and put together so that each split is worth a task.

    Args:
        split_bytes: of store file that each split has at least, but for the last; raised where
            there would be more than `splits_max`.
        split_excerpts: that each has at least, but for the last.
    """
    total = sum(one.size_bytes for one in ranges)
    split_bytes = max(split_bytes, total // splits_max + 1)
    splits: list[Split] = []
    filled: list[IndexRange] = []
    size_missing, count_missing = split_bytes, split_excerpts
    opened: dict[Path, Cycles] = {}
    for one in ranges:
        rest: IndexRange | None = one
        while rest is not None:
            head, rest = cut(rest, size_missing, count_missing, opened)
            filled.append(head)
            size_missing -= head.size_bytes
            count_missing -= head.count
            if size_missing <= 0 and count_missing <= 0:
                splits.append(tuple(filled))
                filled = []
                size_missing, count_missing = split_bytes, split_excerpts
    return [*splits, tuple(filled)] if filled else splits


def cut(
    one: IndexRange, size_bytes: int, count: int = 1, opened: dict[Path, Cycles] | None = None
) -> tuple[IndexRange, IndexRange | None]:
    """The least beginning of a range that has a size and a number of excerpts, and the rest of it.

    Cut before an index slot; None for the rest where there is none.

    Args:
        opened: cycles of the queues that were cut before, for opening one lists its directory.
    """
    if one.size_bytes <= size_bytes or one.count <= count:
        return one, None
    opened = {} if opened is None else opened
    if one.queue not in opened:
        with Queue.open(one.queue) as queue:
            opened[one.queue] = queue.cycles
    cycles = opened[one.queue]
    store = cycles.open(cycle_of(Index(one.index_first), cycles.shift))
    if store is None:  # gone meanwhile: the task that reads it will say so
        return one, None
    try:
        start = sequence_of(Index(one.index_first), cycles.shift)
        sequence, size = _slot_behind(store, start, start + one.count, size_bytes, count)
    finally:
        store.close()
    index = one.index_first + sequence - start
    if index > one.index_last:
        return one, None
    size = min(max(1, size), one.size_bytes - 1)
    head = replace(one, index_last=index - 1, size_bytes=size)
    return head, replace(one, index_first=index, size_bytes=one.size_bytes - size)


def _slot_behind(
    store: StoreFile, start: int, end: int, size_bytes: int, count: int
) -> tuple[int, int]:
    """The first sequence with a slot so far behind `start`, and its distance; or `end`, if none."""
    indexing, spacing = Indexing(store), store.header.index_spacing
    origin = indexing.guess_before(start).position

    def distance(slot: int) -> int:
        return indexing.guess_before(slot * spacing).position - origin

    low = -(-max(start + 1, start + count) // spacing)
    high = -(-end // spacing)
    while low < high:
        middle = (low + high) // 2
        if distance(middle) >= size_bytes:
            high = middle
        else:
            low = middle + 1
    sequence = min(low * spacing, end)
    return sequence, distance(low) if sequence < end else 0
