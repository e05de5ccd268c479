"""The changes of the roles that a host has on its queues, in the order in which they come about.

Theory of operation. Whatever may give a queue another role calls `look` at once, in its own thread:
the source and the sink where they take or give back a queue, a leader that steps down or leads
again. The log compares the role with the one that it knew, and hands a change to each reader. So a
reader that is slow misses none, and all readers have the same order. A queue on its way from the
source to the sink, or back, has the role that it had, until the other half has it: but once a host
is deposed, that is told before.

A reader keeps at most `WAITING_MAX` changes of a queue that were not taken yet. Of more, the oldest
is left out, and the next one says how many were.
"""

import logging
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from cqrepl.queue import QueueError
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source

WAITING_MAX: Final = 1024  # changes of one queue, for one reader
_logger: Final = logging.getLogger(__name__)


class Role(Enum):
    """The work of this host on a queue."""

    LEADING = "leading"  # it streams the queue, and local writers may append
    FOLLOWING = "following"  # it takes the queue in
    IDLE = "idle"  # neither: it was removed, this host has stepped down, or another one leads


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """A change of a host's role on a queue, or of the epoch or leader that it knows.

    Args:
        queue: its name.
        epoch: number of the latest epoch that this host has promised; 0 where there never was a
            promotion.
        role: of this host, from now on.
        leader: id of the host that leads in the epoch, or is to; without an epoch, of the host that
            the queue is taken from. None where no host is known to, as after this one has stepped
            down, or while it is being promoted.
        missed: so many changes of this queue came before this one and were left out, as more than
            `WAITING_MAX` waited to be told.
    """

    queue: str
    epoch: int
    role: Role
    leader: int | None
    missed: int = 0


class RoleReader:
    """The changes that one program has not been told yet; made by `RoleLog.reader`."""

    def __init__(self, guard: threading.Lock) -> None:
        self._guard = guard
        self._waiting: list[RoleChange] = []
        self._counts: Counter[str] = Counter()

    def take(self) -> list[RoleChange]:
        """All of them, the oldest first; they count as told."""
        with self._guard:
            taken, self._waiting = self._waiting, []
            self._counts.clear()
        return taken

    def add(self, change: RoleChange) -> None:
        """For the log, which has the guard."""
        self._waiting.append(change)
        self._counts[change.queue] += 1
        if self._counts[change.queue] > WAITING_MAX:
            self._leave_out_oldest(change.queue)

    def _leave_out_oldest(self, name: str) -> None:
        oldest, second, *_ = (at for at, each in enumerate(self._waiting) if each.queue == name)
        gone = self._waiting[oldest]
        if not gone.missed:
            told = "queue %r: more than %d changes of its role wait to be told: the oldest are left"
            _logger.warning(told + " out", name, WAITING_MAX)
        following = self._waiting[second]
        self._waiting[second] = replace(following, missed=following.missed + gone.missed + 1)
        del self._waiting[oldest]
        self._counts[name] -= 1


class RoleLog:
    """The roles of one host. Any thread may call it.

    Args:
        source: None for a host that streams nothing.
        sink: None for one that takes nothing in.
    """

    def __init__(self, source: Source | None = None, sink: Sink | None = None) -> None:
        self._source = source
        self._sink = sink
        self._guard = threading.Lock()
        self._last: dict[str, RoleChange] = {}
        self._readers: list[RoleReader] = []
        for half in (source, sink):
            if half is not None:
                half.role_watchers.append(self.look)
        self.look_at_all()

    def reader(self) -> RoleReader:
        """Has each change from now on; first the roles as they are."""
        reader = RoleReader(self._guard)
        with self._guard:
            for each in self._last.values():
                reader.add(each)
            self._readers.append(reader)
        return reader

    def drop(self, reader: RoleReader) -> None:
        """It is read no more."""
        with self._guard:
            self._readers.remove(reader)

    def end(self) -> None:
        """Nothing calls it any more."""
        for half in (self._source, self._sink):
            if half is not None:
                half.role_watchers.remove(self.look)

    def look_at_all(self) -> None:
        """For what calls nothing."""
        for half in (self._sink, self._source):
            for name in () if half is None else list(half.queues):
                self.look(name)

    def look(self, name: str) -> None:
        """The role of a queue may be another one now."""
        with self._guard:
            self._note(self._now(name))

    def removed(self, name: str) -> None:
        """The host has a queue no more."""
        with self._guard:
            last = self._last.get(name)
            if last is not None:
                self._note(replace(last, role=Role.IDLE, leader=None))
                del self._last[name]

    def _note(self, change: RoleChange | None) -> None:
        if change is not None and change != self._last.get(change.queue):
            self._last[change.queue] = change
            for reader in self._readers:
                reader.add(change)

    def _now(self, name: str) -> RoleChange | None:
        """None for a queue that is not open yet, or is on its way."""
        taken = None if self._sink is None else self._sink.queues.get(name)
        if taken is not None and self._sink is not None:
            own = self._sink.endpoint.protocol.host_id
            # of a copy that waits for its disk they are read later
            epoch, leader = _promised(taken.epochs) if taken.epochs.are_known else (0, None)
            leader = leader if epoch else taken.master_id or None
            leader = None if leader == own else leader  # it does not lead yet, or no longer
            return RoleChange(queue=name, epoch=epoch, role=Role.FOLLOWING, leader=leader)
        queue = None if self._source is None else self._source.queues.get(name)
        if queue is None or queue.copy is not None or self._source is None:
            return None
        own, (epoch, leader) = self._source.endpoint.protocol.host_id, _promised(queue.epochs)
        if _leads(queue, own):
            return RoleChange(queue=name, epoch=epoch, role=Role.LEADING, leader=own)
        leader = None if leader == own else leader
        return RoleChange(queue=name, epoch=epoch, role=Role.IDLE, leader=leader)


def _leads(queue: SourceQueue, host_id: int) -> bool:
    with suppress(OSError, QueueError):  # its epochs cannot be read now
        return queue.leads(host_id)
    return not queue.leading.has_stepped_down


def _promised(epochs: KeptEpochs) -> tuple[int, int | None]:
    """The latest epoch that is promised, and its leader; 0 and None where that is not known."""
    with suppress(OSError, QueueError):
        now = epochs.now
        return (now.promised, now.promised_to) if now.promised else (0, None)
    return 0, None
