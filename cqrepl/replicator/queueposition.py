"""The position of a host's own copy of a queue, as a program asks for it: how far it is, and who
leads the queue as far as this host knows. No other host is asked."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.rolelog import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """The position of one host's copy of a queue.

    Args:
        queue: its name.
        role: the work of this host on the queue now; `IDLE` also while it changes its role.
        next_index: the first index that the copy does not have; 0 for an empty one, None where the
            copy cannot be read now.
        epoch: the latest epoch that this host has promised; 0: the queue was never promoted.
        leader: id of the host that leads the queue, or is to, as far as this host knows; None where
            it knows of none, as after it has stepped down.
        has_begun: this host knows that its latest epoch has begun. Where False, the leader may
            still be on its way to lead.
    """

    queue: str
    role: Role
    next_index: Index | None
    epoch: int
    leader: int | None
    has_begun: bool

    @property
    def last_index(self) -> Index | None:
        """The index of its last excerpt; None where it has none, or cannot be read."""
        return Index(self.next_index - 1) if self.next_index else None


def end_of_copy(taken: SinkQueue) -> Index:
    """The next index of a copy, which may not be open: one that was resumed waits for an offer.

    Raises:
        QueueError, OSError: it cannot be read.
    """
    if taken.is_open or not taken.is_there:
        return taken.next_index if taken.is_open else NEXT_OF_EMPTY
    return _end_on_disk(taken.path)


def position_of(
    name: str,
    path: Path,
    epochs: Epochs,
    host_id: int,
    queue: SourceQueue | SinkQueue | None,
    master_id: int | None,
) -> QueuePosition:
    """The position of this host's copy.

    Args:
        path: directory of the queue, which may not be there yet.
        epochs: what the copy has promised.
        queue: None while it is not open, or changes its role.
        master_id: the host that leads where no epoch and no copy tells; None: none is known.
    """
    end, role = None, Role.IDLE
    with suppress(QueueError, OSError):
        if isinstance(queue, SinkQueue):
            end = end_of_copy(queue)
        elif queue is not None:
            end = queue.queue.next_index()
        else:
            end = _end_on_disk(path) if path.is_dir() else NEXT_OF_EMPTY
    if isinstance(queue, SinkQueue):
        role = Role.FOLLOWING
    elif queue is not None and queue.leads(host_id):
        role = Role.LEADING
    leader = epochs.promised_to or master_id or None
    if role is Role.LEADING:
        leader = host_id
    elif leader == host_id:
        is_on_its_way = epochs.promised and epochs.is_begun and role is Role.IDLE
        leader = host_id if is_on_its_way else None  # it leads no longer, or not yet
    return QueuePosition(
        queue=name,
        role=role,
        next_index=end,
        epoch=epochs.promised,
        leader=leader,
        has_begun=epochs.is_begun,
    )


def _end_on_disk(path: Path) -> Index:
    with Queue.open(path) as queue:
        return queue.next_index()
