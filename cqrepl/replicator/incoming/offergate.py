"""Decides whether a sink takes a queue that is offered on one connection from there now.

Where it does not, the source hears why: that it may offer it again, or that it is refused.
"""

import logging
from typing import Final, Protocol

from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import QueueOffered
from cqrepl.protocol.messages.offer import ReplicationHandler
from cqrepl.protocol.queuelife import CopyMove
from cqrepl.replicator.incoming.epochdesk import EpochDesk
from cqrepl.replicator.incoming.sinkpauses import SinkPauses
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


class LettingGo(Protocol):
    """Lets go of a queue that was offered."""

    def put_off(self, cid: Cid, why: str) -> None:
        """Not now: it can be offered again."""

    def withdraw(self, cid: Cid, why: str) -> bool:
        """Lets go of a queue; false where its source knows nothing of that."""


class OfferGate:
    """The gate for the offers that come on one connection.

    Args:
        epochs: refuses a source that does not lead.
        pauses: is told of a queue that has come by this host.
    """

    def __init__(self, epochs: EpochDesk, connection: Connection, pauses: SinkPauses) -> None:
        self._epochs = epochs
        self._connection = connection
        self._pauses = pauses
        self._lacking: set[str] = set()  # queues that the peer may not lead

    def lets_in(self, session: LettingGo, event: QueueOffered, queue: SinkQueue) -> bool:
        """True when this offer is to be answered; then the path that the queue has come is kept.

        Args:
            session: lets go of what is not for now. It has this gate: kept here, the two would be a
                circle, which keeps the buffers of what is over.
        """
        held, stop = queue.life.hold.reason, queue.life.stop
        if held is not None:
            session.put_off(event.cid, held.message)
            return False
        if why := self._connection.link.refusal("lead", queue.name):
            if queue.name not in self._lacking:  # a peer may offer it again and again
                self._lacking.add(queue.name)
                _logger.warning("refused: %s", why)
            self._connection.stop_queue(event.cid, StopReason.REFUSED, why)
            return False
        if self._epochs.is_refused(event, queue):
            return False
        if stop is not None and not self._gives_way(stop, event.offer):
            # a new connection does not start it again, and hears why
            self._connection.stop_queue(event.cid, stop.reason, stop.message)
            return False
        if queue.owner is not None:
            session.put_off(event.cid, "it takes from another source")
            return False
        trouble = None if queue.pause.is_over else queue.life.trouble
        if trouble is not None and session.withdraw(event.cid, trouble.message):
            return False  # it is named again when the pause is over
        path = event.offer.passed_by or (self._connection.remote_id or 0,)
        if self._connection.config.settings.host_id in path:
            self._refuse_loop(event.cid, queue, path)
            return False
        if stop is not None:
            queue.life.move(CopyMove.BEGIN_ANEW)
        lineage = event.offer.lineage
        queue.way.passed_by, queue.way.places = path, () if lineage is None else lineage.places
        return True

    def _gives_way(self, stop: Stop, offer: ReplicationHandler) -> bool:
        """True where a stopped queue is tried with this offer: what it was stopped for came
        of another source, or of this one, which is looked at anew before anything moves. Where a
        copy differs, or a source that cannot prove what it holds left a gap, an operator has to
        look first."""
        if stop.host_id != self._connection.remote_id:
            return stop.host_id is not None
        can_prove = stop.reason is StopReason.GAP and offer.lineage is not None
        return can_prove or stop.reason is StopReason.REFUSED

    def _refuse_loop(self, cid: Cid, queue: SinkQueue, path: tuple[int, ...]) -> None:
        """Refuses a queue that has come by this host: no host in that circle has its own of it."""
        why = f"a loop: it has come by hosts {', '.join(map(str, path))}, of which this is one"
        left = Stop(name=queue.name, reason=StopReason.REFUSED, message=why)
        self._pauses.leave(queue, left)
        self._connection.stop_queue(cid, StopReason.REFUSED, why)
