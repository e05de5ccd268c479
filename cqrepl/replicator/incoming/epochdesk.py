"""Refuses the sources, and cuts off the tails of copies, that epochs have overtaken.

It is the work of a sink on one connection.
"""

import logging
from functools import partial
from typing import Final

from cqrepl.console.units import plural
from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.excerpts import Promise
from cqrepl.protocol.messages.offer import ReplicationHandler
from cqrepl.queue import QueueLocked
from cqrepl.queue.format.epochs import History, why_refused
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, format_index
from cqrepl.replicator.incoming.masters import QueuesFromHere
from cqrepl.replicator.incoming.sinkqueue import SinkQueue

BEYOND: Final = "what it had beyond this queue is in quarantine"
_logger: Final = logging.getLogger(__name__)


class TailInUse(OSError):
    """Another process has a queue open that a tail is to be taken off: that is done when it has
    ended."""


class EpochDesk:
    """The work for epochs on one connection of a sink.

    Args:
        from_here: says which queues are taken from its peer, where there never was an epoch.
    """

    def __init__(self, connection: Connection, pump: Pump, from_here: QueuesFromHere) -> None:
        self._connection = connection
        self._pump = pump
        self._from_here = from_here

    def is_refused(self, event: ev.QueueOffered, queue: SinkQueue) -> bool:
        """Refuses a source that does not lead the queue: by its epoch; or, where there never was
        one, by the file of the cluster."""
        own, offered = queue.epochs.now, event.offer.epochs or ()
        path, leader = event.offer.passed_by, self._leader(event.offer)
        refusal, reason = why_refused(own, offered, leader), StopReason.FENCED
        if refusal is not None and self._is_of_own_number(queue, offered, leader):
            # the host that leads by now has begun the epoch whose number this host gave up
            refusal, queue.master_id = None, leader
            self._from_here.look_again()
        is_by_file = not own.promised and not offered
        if is_by_file or (path and refusal is None):
            refusal, reason = self._from_here.refusal(queue), StopReason.REFUSED
        if refusal is None:
            return False
        why = f"queue {event.name!r} refused: {refusal}"
        self._pump.log.tell(logging.WARNING, self._pump.label, why)
        promise = Promise(own.promised, own.promised_to) if own.promised else None
        self._connection.sink(event.cid).stop(reason, refusal, promise=promise)
        return True

    async def follow(
        self, event: ev.LineageProved, queue: SinkQueue, end: Index, identity: Identity | None
    ) -> bool:
        """Locks a copy: the source has proved that it holds the same, and no other writer may
        append to it from now on. False where the copy had a tail that the source never had: that is
        in quarantine, and the queue is to be offered anew.

        Args:
            end: of the copy, when it was compared: one that goes on behind it is none of that.
            identity: that its source has told, if it has; the copy gets it.

        Raises:
            OtherQueue: it has another identity.
            TailInUse: another process has it open.
            QueueError, OSError: it cannot be locked, its tail not be put aside, or what it promises
                may not be on the disk.
        """
        if not queue.has_tail:
            offer = self._connection.offer_of(event.cid)
            await in_thread(partial(_follow, queue, offer, self._leader(offer), end, identity))
            return True
        try:
            gone = await in_thread(queue.cut_off)
        except QueueLocked as error:
            raise TailInUse(error.reason) from error
        _logger.warning(
            "queue %r: %s from %s on, which the leader of a later epoch never had, went to %s",
            event.name,
            "everything" if gone.excerpts is None else plural(gone.excerpts, "excerpt"),
            format_index(gone.start or NEXT_OF_EMPTY),
            gone.folder,
        )
        return False

    def _is_of_own_number(self, queue: SinkQueue, offered: History, leader: int) -> bool:
        """True where a host offers the epoch that it has begun, and this host has promised that
        number to itself alone, and not begun it."""
        if not offered or offered[-1].leader != leader:
            return False
        return queue.epochs.may_give_up(offered[-1].number)

    def _leader(self, offer: ReplicationHandler) -> int:
        """The host that streams the queue: the peer, or where it has come by that, the first of
        those that pass it on."""
        assert self._connection.remote_id is not None
        return offer.passed_by[0] if offer.passed_by else self._connection.remote_id


def _follow(
    queue: SinkQueue, offer: ReplicationHandler, leader: int, end: Index, identity: Identity | None
) -> None:
    queue.follow(offer.epochs, leader)
    queue.queue.note_copy_of(leader)
    if identity is not None and queue.next_index == end:
        queue.take_identity(identity)
