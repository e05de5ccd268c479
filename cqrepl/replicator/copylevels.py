"""How far a queue that is taken in has come beyond appended, and what its source says of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cqrepl.kernel.board import AckLevel

if TYPE_CHECKING:
    from cqrepl.replicator.sinkqueue import SinkQueue


@dataclass(slots=True)
class BeyondAppended:
    """Up to which indexes.

    Args:
        committed: its source has called it safe up to this.
        applied: a program here has taken everything up to this.
    """

    committed: int = -1
    applied: int = -1


def tell_synced(queue: "SinkQueue", index: int) -> None:
    """Everything up to an index is on the disk: its source hears of it."""
    if queue.owner is not None and queue.stop is None:
        queue.owner.tell_level(queue.name, AckLevel.SYNCED, index)


def sync_later(queue: "SinkQueue") -> None:
    """No source waits any more until what comes is on the disk."""
    if queue.is_open:
        queue.disk.is_at_once = False


def note_applied(queue: "SinkQueue", index: int) -> None:
    """A program here has taken everything up to an index: its source hears of it."""
    if index > queue.beyond.applied:
        queue.beyond.applied = index
        if queue.owner is not None:
            queue.owner.tell_level(queue.name, AckLevel.APPLIED, index)


def note_committed(queue: "SinkQueue", index: int) -> None:
    """Its source's policy calls it safe up to an index: kept where Java's readers look."""
    if queue.is_open:
        queue.beyond.committed = max(index, queue.beyond.committed)
        queue.queue.raise_acknowledged(index)


def levels_of(queue: "SinkQueue") -> dict[AckLevel, int]:
    """Up to which index each level beyond appended is true here.

    Raises:
        QueueError: the queue cannot be read.
    """
    return {AckLevel.SYNCED: queue.disk.index_synced, AckLevel.APPLIED: queue.beyond.applied}
