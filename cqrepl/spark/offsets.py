"""The offsets of a stream: the place it has reached in each queue, and where its next batch ends.

    {"queues": {"orders": {"next": "0x451600000010"}}, "v": 1}

Beside `next` stands the mark that tells the queue (`streammarks`).
`next` is the index wanted next. So a batch begins at `next` of its start, and ends before `next` of
its end. Behind the last excerpt of a cycle `next` stays there until an excerpt of a later cycle is
taken: no index is ever invented. Spark keeps an offset as text, so there is one form only: names
sorted, indexes in hexadecimal.

A batch can be limited. Several queues share a limit evenly, and what one queue does not need goes
to the rest. Each gets at least one excerpt, so that a busy queue starves no other. Limits in
excerpts and cycles are exact; a limit in bytes ends at the next index slot.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cqrepl.queue import NEXT_OF_EMPTY, format_index, parse_index
from cqrepl.spark.ranges import IndexRange, cut
from cqrepl.spark.tableoptions import TableError

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one batch may hold; None is no limit."""

    excerpts: int | None = None
    size_bytes: int | None = None
    cycles: int | None = None


NO_LIMITS: Final = Limits()


def as_offset(
    positions: Mapping[str, int], marks: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, object]:
    """The next index of each queue, by name, as Spark keeps it, with what tells the queue."""
    queues = {
        name: {"next": format_index(positions[name]), **(marks or {}).get(name, {})}
        for name in sorted(positions)
    }
    return {"queues": queues, "v": _VERSION}


def positions_of(offset: Mapping[str, object]) -> dict[str, int]:
    """The next index of each queue, by name.

    Raises:
        TableError: it is no offset of this version.
    """
    queues = offset.get("queues")
    if offset.get("v") != _VERSION or not isinstance(queues, Mapping):
        raise TableError(f"expected an offset of version {_VERSION}, found {dict(offset)}")
    return {str(name): parse_index(str(each["next"])) for name, each in queues.items()}


def advanced(
    positions: Mapping[str, int], pending: Mapping[str, Sequence[IndexRange]], limits: Limits
) -> dict[str, int]:
    """The positions at which the next batch ends, by queue.

    Args:
        positions: where it starts.
        pending: the ranges to be read of each queue, beginning at its position; as many of them
            as one batch may hold (`filled_by`).
    """
    waiting = {name: ranges for name, ranges in sorted(pending.items()) if ranges}
    excerpts = _shares(
        [sum(one.count for one in each) for each in waiting.values()], limits.excerpts
    )
    sizes = _shares(
        [sum(one.size_bytes for one in each) for each in waiting.values()], limits.size_bytes
    )
    cycles = _shares([len(each) for each in waiting.values()], limits.cycles)
    ends = dict(positions)
    for nth, (name, ranges) in enumerate(waiting.items()):
        ends[name] = _end_within(ranges[: cycles[nth]], excerpts[nth], sizes[nth])
    return ends


def filled_by(limits: Limits, end: int | None = None) -> Callable[[IndexRange], bool]:
    """Is told the ranges of a queue in turn, and whether they are all that one batch may hold.

    So what is planned of a queue is what the next batch takes, however much there is behind it.

    Args:
        end: nothing from there on is wanted.
    """
    count = size_bytes = cycles = 0

    def is_filled(one: IndexRange) -> bool:
        nonlocal count, size_bytes, cycles
        count, size_bytes, cycles = count + one.count, size_bytes + one.size_bytes, cycles + 1
        return (
            (limits.excerpts is not None and count >= limits.excerpts)
            or (limits.size_bytes is not None and size_bytes >= limits.size_bytes)
            or (limits.cycles is not None and cycles >= limits.cycles)
            or (end is not None and one.index_last + 1 >= end)
        )

    return is_filled


def capped(ranges: Sequence[IndexRange], end: int) -> list[IndexRange]:
    """The ranges as far as they lie before an index."""
    found = []
    for one in ranges:
        if one.index_last < end:
            found.append(one)
        elif one.index_first < end:
            found.append(one.until(end - 1))
    return found


def end_of(ranges: Sequence[IndexRange], otherwise: int = NEXT_OF_EMPTY) -> int:
    """One past the last excerpt of some ranges."""
    return ranges[-1].index_last + 1 if ranges else otherwise


def _end_within(ranges: Sequence[IndexRange], count: int, size_bytes: int) -> int:
    """One past the last excerpt that a batch may hold."""
    for one in ranges:
        head, rest = cut(one, size_bytes)
        if head.count >= count or rest is not None:
            return one.index_first + min(head.count, count)
        count, size_bytes = count - head.count, size_bytes - head.size_bytes
        if size_bytes <= 0:
            return one.index_last + 1
    return end_of(ranges)


def _shares(demands: Sequence[int], limit: int | None) -> list[int]:
    """A limit shared among demands: none gets more than it asks for, and each at least 1."""
    if limit is None or sum(demands) <= limit:
        return list(demands)
    shares = [0] * len(demands)
    left = limit
    for nth, place in enumerate(sorted(range(len(demands)), key=demands.__getitem__)):
        shares[place] = max(1, min(demands[place], left // (len(demands) - nth)))
        left = max(0, left - shares[place])
    return shares
