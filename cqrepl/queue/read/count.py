"""The number of excerpts of a queue, and its first and last index: by files, not by excerpts.

Theory of operation. What writers record of the last sequence are hints. The number of excerpts of a
cycle is found by walking from its last index slot, checked by the slot before (see `indexing`), to
the end: two index spacings, however many excerpts lie before. So all of this costs time for each
cycle, never for each excerpt, and the cycles are what the directory lists, which is the truth; the
table store's listing may lag.

A closed store file that is known to have been there (see `closedcycles`) is not counted as nothing:
what passes it tells. The ends alone are those of what is there: a queue without a file can be
opened, and may get it back.
"""

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Sequence,
    cycle_of,
    index_of,
    sequence_of,
)


def first_index(cycles: Cycles) -> Index | None:
    """Index of the first excerpt; None when there is none."""
    for cycle in cycles.listing():
        start = max(cycles.begin, index_of(cycle, SEQUENCE_FIRST, cycles.shift))
        end = sequence_of(start, cycles.shift) + 1
        if cycle_of(start, cycles.shift) == cycle and count_in(cycles, cycle, end) == end:
            return start
    return None


def last_index(cycles: Cycles) -> Index | None:
    """Index of the last excerpt; None when there is none."""
    for cycle in reversed(cycles.listing()):
        in_cycle = count_in(cycles, cycle)
        if in_cycle:
            return index_of(cycle, Sequence(in_cycle - 1), cycles.shift)
    return None


def last_index_before(cycles: Cycles, index: Index) -> Index | None:
    """Index of the last excerpt before `index`, which stands at or behind one, or begins a cycle;
    None when there is none."""
    shift = cycles.shift
    if sequence_of(index, shift) != SEQUENCE_FIRST:
        return Index(index - 1)
    for cycle in reversed(cycles.listing()):
        if cycle < cycle_of(index, shift) and (in_cycle := count_in(cycles, cycle)):
            return index_of(cycle, Sequence(in_cycle - 1), shift)
    return None


def end_index(cycles: Cycles) -> Index:
    """One past the last excerpt, where a tailer waits for the next; 0 for an empty queue."""
    last = last_index(cycles)
    return NEXT_OF_EMPTY if last is None else Index(last + 1)


def nth_last_index(cycles: Cycles, nth: int) -> Index | None:
    """Index of the `nth` excerpt from behind, 1 for the last; the first one when there are fewer.

    None when there is none at all.

    Raises:
        QueueDamaged: a store file on the way is missing, or holds less than it did.
    """
    assert nth > 0
    found = above = None
    for cycle in reversed(cycles.listing()):
        in_cycle = count_in(cycles, cycle)
        if above is not None:
            cycles.check_between(cycle, above)
            cycles.check_counted(cycle, in_cycle)
        above = cycle
        first = index_of(cycle, SEQUENCE_FIRST, cycles.shift)
        end = Index(first + in_cycle)
        first = max(first, cycles.begin)
        if end - first >= nth:
            return Index(end - nth)
        if end > first:
            found = first
            nth -= end - first
    return found


def count(cycles: Cycles, first: int, last: int) -> int:
    """The number of excerpts from index `first` to index `last`, both included.

    Neither has to be there: excerpts are counted that have an index between the two.

    Raises:
        QueueDamaged: a store file between them is missing, or holds less than it did.
    """
    if first > last:
        return 0
    shift, total = cycles.shift, 0
    index_first, index_last = Index(max(first, cycles.begin)), Index(last)
    cycle_first, cycle_last = cycle_of(index_first, shift), cycle_of(index_last, shift)
    listed = cycles.listing()
    if listed:
        lowest, greatest = Cycle(cycle_first - 1), Cycle(cycle_last + 1)
        cycles.check_between(max(lowest, listed[0]), min(greatest, listed[-1]))
    for cycle in listed:
        if cycle_first <= cycle <= cycle_last:
            end = sequence_of(index_last, shift) + 1 if cycle == cycle_last else NO_LIMIT
            start = sequence_of(index_first, shift) if cycle == cycle_first else 0
            in_cycle = count_in(cycles, cycle, end)
            if in_cycle < end and cycle < listed[-1]:
                cycles.check_counted(cycle, in_cycle)
            total += max(0, in_cycle - start)
    return total


def count_in(cycles: Cycles, cycle: Cycle, end: int = NO_LIMIT) -> int:
    """The number of excerpts of one cycle, of those before sequence `end`.

    Raises:
        QueueDamaged: its store file breaks the format.
    """
    store = cycles.open(cycle)
    if store is None:  # not ready, or removed since it was listed
        return 0
    try:
        start = Indexing(store).place_before(end - 1 if end < NO_LIMIT else NO_LIMIT)
        return store.walk(start, end).place.sequence
    finally:
        store.close()
