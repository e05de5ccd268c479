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
    try:
        with Queue.open(path) as queue:
            first = queue.first_index()
            if first is None:
                return ""
            cycle = cycle_of(first, queue.layout.roll_cycle.shift)
            if not queue.cycles.closed.holds_from(cycle):
                return ""
            return f"its copy begins at {format_index(first)}, behind files that were removed"
    except NotAQueue:
        return ""


def begins_behind(path: Path, pos: LogPos) -> bool:
    """True where a copy lacks excerpts from a position on, so the state of that position is of no
    use to it: they were removed.

    Raises:
        QueueError, OSError: as `first_index_of`.
    """
    if not lost_start(path):
        return False
    first = first_index_of(path)
    return first is not None and pos.index < first
