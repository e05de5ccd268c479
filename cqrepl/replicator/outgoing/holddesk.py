"""Holds back queues of a source that do not go out on one connection for now, until they go on.

The source cannot read such a queue, the sink has not answered it in time, or the operator has
paused it. A sink that knows of that lets go of such a queue, and is offered it again. Another one,
as Java's, only gets nothing for a while; or the connection ends, where it would wait for something.
"""

from collections.abc import Callable

from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import QueueStopped
from cqrepl.protocol.queuelife import ToSinkMove, ToSinkState
from cqrepl.protocol.states import ConnectionState
from cqrepl.replicator.outgoing.offerdesk import OfferDesk
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.pausedesk import PauseDesk
from cqrepl.replicator.queuestate.stops import Stop


class HoldDesk:
    """The queues that are held back on one connection."""

    def __init__(
        self,
        outgoing: dict[Cid, Outgoing],
        offers: OfferDesk,
        pauses: PauseDesk,
        connection: Connection,
        pump: Pump,
    ) -> None:
        self._outgoing = outgoing
        self._offers = offers
        self._pauses = pauses
        self._connection = connection
        self._pump = pump

    def pause(self, each: Outgoing, trouble: Stop, drop: Callable[[Outgoing], None]) -> None:
        """Not now: it is tried again later, and the others go on meanwhile.

        Args:
            drop: takes a queue off the connection.
        """
        if not each.has_stopped:
            self._pauses.begin(trouble)
            self.hold(each, trouble.message, drop)

    def miss(self, each: Outgoing, note_stop: Callable[[Stop], None]) -> None:
        """The sink has not answered: it may not have the queue. The others go on."""
        if not each.life.try_move(ToSinkMove.MISS):  # it has stopped since the time was over
            return
        self._pauses.miss(each.queue.name)
        note_stop(Stop.unanswered(each.queue.name, each.marks.host_id))

    def offers_again(
        self, each: Outgoing, stopped: QueueStopped, drop: Callable[[Outgoing], None]
    ) -> bool:
        """True when a queue that has stopped is offered again on this connection, some time later.
        It is one that the sink has not answered in time, as it may only have been slow. The sink
        has to know that what has ended may come again.

        Args:
            drop: takes a queue off the connection.
        """
        name, reason, why = stopped.name, stopped.reason, stopped.message
        is_ours = reason is StopReason.NO_ANSWER and not (stopped.by_peer or each.has_stopped)
        is_put_off = is_ours and self._put_off(each, why, drop)
        if is_put_off:
            self._pauses.begin(Stop(name=name, reason=reason, message=why))
        return is_put_off

    def _put_off(self, each: Outgoing, why: str, drop: Callable[[Outgoing], None]) -> bool:
        """The sink lets go of it; false for one that does not know what that is."""
        if not self._connection.withdraw_queue(each.cid, why):
            return False
        self._offers.let_go.add(each.cid)
        self._offers.offered.discard(each.queue.name)
        drop(each)
        return True

    def hold(self, each: Outgoing, why: str, drop: Callable[[Outgoing], None]) -> None:
        """Nothing more of it goes out, until it is offered again or `go_on`."""
        self._pump.call_back()
        if self._put_off(each, why, drop):
            return
        if each.stream_from is not None:
            each.life.try_move(ToSinkMove.PAUSE)  # or it pauses already
            if each.tailer is not None:
                each.resumes_at = each.tailer.next_index
            each.close()
        else:  # it cannot be told that what it does has to be done again
            self._pump.fail(f"queue {each.queue.name!r}: {why}")

    def go_on(self, name: str, resume: Callable[[Outgoing], None]) -> None:
        """It is tried again.

        Args:
            resume: has a queue go on where it stood.
        """
        for each in self._outgoing.values():
            if each.queue.name == name and each.life.state is ToSinkState.PAUSED:
                if each.queue.life.hold.reason is None:
                    each.life.move(ToSinkMove.GO_ON)
                    resume(each)
                return
        is_open = self._connection.state is ConnectionState.OPEN
        if is_open and self._offers.has_offered and self._offers.is_wanted(name):
            self._offers.offer([name])
