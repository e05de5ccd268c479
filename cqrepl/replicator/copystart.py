"""The start of a copy: whether it has that of the queue, and which states it can go on from."""

from pathlib import Path

from cqrepl.queue import NotAQueue, Queue
from cqrepl.queue.format.index import Index, cycle_of, format_index
from cqrepl.queue.format.logpos import LogPos


def first_index_of(path: Path) -> Index | None:
    """The first index that a copy has; None where it is empty.

    Raises:
        QueueError, OSError: the copy cannot be read.
    """
    with Queue.open(path) as queue:
        return queue.first_index()


def lost_start(path: Path) -> str:
    """A sentence where a copy lacks the start of the queue; empty where it has it, or is yet to
    come.

    Raises:
        QueueError, OSError: as `first_index_of`.
    """
    first = _first_behind_lost(path)
    if first is None:
        return ""
    return f"its copy begins at {format_index(first)}, behind files that were removed"


def begins_behind(path: Path, pos: LogPos) -> bool:
    """True where a copy lacks excerpts from a position on, so the state of that position is of no
    use to it: they were removed.

    Raises:
        QueueError, OSError: as `first_index_of`.
    """
    first = _first_behind_lost(path)
    return first is not None and pos.index < first


def _first_behind_lost(path: Path) -> Index | None:
    """The first index of a copy that lacks the start of the queue; else None."""
    try:
        with Queue.open(path) as queue:
            first = queue.first_index()
            if first is None:
                return None
            cycle = cycle_of(first, queue.layout.roll_cycle.shift)
            return first if queue.cycles.closed.holds_from(cycle) else None
    except NotAQueue:
        return None
