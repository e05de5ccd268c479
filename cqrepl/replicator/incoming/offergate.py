"""Decides whether a sink takes a queue that is offered on one connection from there now.

Where it does not, the source hears why: that it may offer it again, or that it is refused.
"""

import logging
from typing import TYPE_CHECKING

from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import QueueOffered
from cqrepl.protocol.messages.offer import ReplicationHandler
from cqrepl.replicator.incoming.epochdesk import EpochDesk
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.replicator.queuestate.stops import Stop

if TYPE_CHECKING:
    from cqrepl.replicator.incoming.sinksession import SinkSession


class OfferGate:
    """The gate for the offers that come on one connection.

    Args:
        epochs: refuses a source that does not lead.
        changed: is set when a queue is refused.
    """

    def __init__(
        self,
        epochs: EpochDesk,
        connection: Connection,
        pump: Pump,
        changed: Signal,
    ) -> None:
        self._epochs = epochs
        self._connection = connection
        self._pump = pump
        self._changed = changed

    def lets_in(self, session: "SinkSession", event: QueueOffered, queue: SinkQueue) -> bool:
        """True when this offer is to be answered; then the path that the queue has come is kept.

        Args:
            session: lets go of what is not for now. It has this gate: kept here, the two would be a
                circle, which keeps the buffers of what is over.
        """
        if queue.held is not None:
            session.put_off(event.cid, queue.held)
            return False
        if self._epochs.is_refused(event, queue):
            return False
        if queue.stop is not None and not self._gives_way(queue.stop, event.offer):
            # a new connection does not start it again, and hears why
            self._connection.stop_queue(event.cid, queue.stop.reason, queue.stop.message)
            return False
        if queue.owner is not None:
            session.put_off(event.cid, "it takes from another source")
            return False
        trouble = None if queue.pause.is_over else queue.pause.trouble
        if trouble is not None and session.withdraw(event.cid, trouble.message):
            return False  # it is named again when the pause is over
        path = event.offer.passed_by or (self._connection.remote_id or 0,)
        if self._connection.config.settings.host_id in path:
            self._refuse_loop(event.cid, queue, path)
            return False
        lineage, queue.stop, queue.differs_at = event.offer.lineage, None, None
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
        queue.left = Stop(name=queue.name, reason=StopReason.REFUSED, message=why)
        self._pump.log.tell(logging.ERROR, self._pump.label, queue.left.line)
        self._connection.stop_queue(cid, StopReason.REFUSED, why)
        self._changed.set()
