"""From a time to the index of the first excerpt at or after it.

Theory of operation. An excerpt says its time itself, in a form that only the caller knows, who
gives a function that reads it, or that gives None for an excerpt that has none. Times of excerpts
that have one must not fall from one to the next; then two binary searches and one short walk do:

    over the cycles     by the first excerpt of each: the last one that is before the time
    inside that cycle   by the excerpts of index slots: the last one that is before the time
    from there          excerpt by excerpt, until one is not before it

Where an excerpt has no time, the few behind it are asked in its place; where none of these has one,
the cycle or the slot below is taken. So excerpts without times make the search longer, never wrong.

One excerpt may have a wrong time: 0, -1 or 2^63-1 in place of none. So a cycle or a slot counts by
the middle one of the first three times from there on, and has no time where there are fewer. The
walk passes an excerpt whose time is above those of both behind it in its cycle. Where times never
fall, this changes nothing but the length of the search.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from cqrepl.kernel.batch import Found
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.storefile import Place, StoreFile
from cqrepl.queue.format.index import Cycle, Index, Position, Sequence, index_of
from cqrepl.queue.read.count import end_index
from wire.header import HEADER_BYTES

ReadTime = Callable[[memoryview], int | None]
_ASKED: Final = 24  # excerpts, or cycles, in a row that are asked for times
_VOTES: Final = 3  # times that say on which side of a time a place is
_WALK_COUNT: Final = 256  # excerpts per step of the walk


def seek_time(cycles: Cycles, time: int, read_time: ReadTime) -> Index:
    """Index of the first excerpt with a time at or after `time`; one past the last if none has.

    Args:
        read_time: the time of an excerpt, in the unit of `time`; None if it has none. The payload
            is valid during the call only.

    Raises:
        QueueDamaged: a store file cannot be followed; or one that may hold it is missing, or holds
            less than it did.
    """
    listed = cycles.listing()

    def first_time(nth: int) -> int | None:
        asked = listed[nth : nth + _ASKED]
        return _middle(one for cycle in asked for one in _first_times(cycles, cycle, read_time))

    below = _last_before(len(listed), first_time, time)
    passed: Cycle | None = None
    for cycle in listed[max(below, 0) :]:
        if passed is not None:
            cycles.check_between(passed, cycle)
        passed = cycle
        store = cycles.open(cycle)
        if store is None:  # not ready, or removed since it was listed
            continue
        try:
            sequence = _seek_in(store, time, read_time)
            if sequence is None and cycle < listed[-1]:
                cycles.check_counted(
                    cycle, store.walk(Indexing(store).place_before()).place.sequence
                )
        finally:
            store.close()
        if sequence is not None:
            return index_of(cycle, sequence, cycles.shift)
    return end_index(cycles)


def _last_before(count: int, time_of: Callable[[int], int | None], time: int) -> int:
    """The greatest of `count` places with a time before `time`, of those that have one; or -1."""
    best = low = -1  # all up to `low` are before the time, or have none; `best` has one
    high = count  # all from `high` on are not before it, or have none
    while high - low > 1:
        middle = place = (low + high) // 2
        found = time_of(place)
        while found is None and place > low + 1:
            place -= 1
            found = time_of(place)
        if found is not None and found >= time:
            high = place
            continue
        low = middle
        if found is not None:
            best = place
    return best


def _first_times(cycles: Cycles, cycle: Cycle, read_time: ReadTime) -> list[int]:
    """The times of the first excerpts of a cycle."""
    store = cycles.open(cycle)
    if store is None:
        return []
    try:
        return _times_from(store, Position(0), read_time)
    finally:
        store.close()


def _seek_in(store: StoreFile, time: int, read_time: ReadTime) -> Sequence | None:
    """The sequence of the first excerpt of a file at or after a time; None when there is none."""
    indexing, spacing = Indexing(store), store.header.index_spacing

    def place_of(slot: int) -> Place:
        return store.walk(indexing.place_before(slot * spacing), slot * spacing).place

    slots = -(-store.walk(indexing.place_before()).place.sequence // spacing)

    def slot_time(slot: int) -> int | None:
        return _middle(_times_from(store, place_of(slot).position, read_time))

    below = _last_before(slots, slot_time, time)
    place = place_of(max(below, 0))
    while (found := store.find(place.position, count_max=_WALK_COUNT)).offsets:
        for nth, one in enumerate(_times(store, found, read_time)):
            if one is not None and one >= time:
                votes = _times_from(store, Position(found.offsets[nth] - HEADER_BYTES), read_time)
                if len(votes) < _VOTES or one <= max(votes[1:]):
                    return Sequence(place.sequence + nth)
        sequence = Sequence(place.sequence + len(found.offsets))
        place = Place(sequence, Position(found.position))
    return None


def _times_from(store: StoreFile, position: Position, read_time: ReadTime) -> list[int]:
    """The first times, as many as decide, that the excerpts from a place on have."""
    found = store.find(position, count_max=_ASKED)
    timed = (one for one in _times(store, found, read_time) if one is not None)
    return list(islice(timed, _VOTES))


def _middle(times: Iterable[int]) -> int | None:
    """The middle one of the first times; None where there are too few to decide."""
    votes = sorted(islice(times, _VOTES))
    return votes[_VOTES // 2] if len(votes) == _VOTES else None


def _times(store: StoreFile, found: Found, read_time: ReadTime) -> Iterator[int | None]:
    """The times of some excerpts, each read when it is asked for."""
    data = store.mapping.data.toreadonly()
    for offset, length in zip(found.offsets, found.lengths, strict=True):
        time = read_time(data[offset : offset + length])
        yield time if time == time else None  # a NaN is no time, and equals nothing
