"""Offers the queues of a source over one connection, as far as the sink takes them now."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.states import ConnectionState
from cqrepl.queue import QueueError
from cqrepl.queue.files.queuedirectory import place_of
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from cqrepl.replicator.agreement.lineage import first_held
from cqrepl.replicator.marks.hostmarks import HostMarks
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.pausedesk import PauseDesk
from cqrepl.replicator.outgoing.returndesk import ReturnDesk
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue, StreamingSession
from cqrepl.replicator.outgoing.sourceshared import SourceShared
from cqrepl.replicator.queuestate.pause import is_passing
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


class OfferDesk:
    """The offers of one connection.

    Args:
        session: whose queues they are, from their offers on.
        outgoing: gets each queue that is offered.
        returns: says whether a sink that is ahead may give back.
        pauses: of queues that cannot be read for now.
        pump: knows how log lines name the peer.
    """

    def __init__(
        self,
        session: StreamingSession,
        outgoing: dict[Cid, Outgoing],
        queues: Mapping[str, SourceQueue],
        shared: SourceShared,
        returns: ReturnDesk,
        pauses: PauseDesk,
        connection: Connection,
        pump: Pump,
    ) -> None:
        self.has_offered = False  # every queue, or it has stopped before
        self.offered: set[str] = set()  # names; not those that the sink has let go of
        self.failed: set[str] = set()  # names of queues that could not be offered
        self.let_go: set[Cid] = set()  # of queues that we have withdrawn; the core tells of it yet
        self._told: set[str] = set()  # names of queues that were not open
        self._session: StreamingSession | None = session
        self._outgoing = outgoing
        self._queues = queues
        self._shared = shared
        self._returns = returns
        self._pauses = pauses
        self._connection = connection
        self._pump = pump
        self._is_over = False

    def end(self) -> None:
        """Nothing more is offered. Lets go of the session, too: a circle would keep the buffers of
        what is over."""
        self._is_over, self._session = True, None

    def offer_named(self, sinks: frozenset[str]) -> None:
        for name in sorted(self._shared.late.keys() & sinks):
            if not self.has_offered or name not in self._told:
                self._tell(self._shared.late[name])
        if not self.has_offered:
            peer = self._connection.peer_queues
            streamed = frozenset[str]() if peer is None else peer.sources
            for name in sorted(self._queues.keys() - sinks):
                why = f"queue {name!r}: the peer does not take it now"
                if name in streamed:  # by another file, or a later epoch, or it passes it on
                    why += f", host {self._connection.remote_id} streams it too"
                self._pump.log.tell(logging.INFO, self._pump.label, why)
            for each in self._queues.values():
                held = each.life.hold.reason
                if held is not None and each.name in sinks:
                    self._tell_pause(Stop.held(each.name, held.message))
        self.offer(sorted((self._queues.keys() & sinks) - self.offered))

    def offer_late(self, name: str) -> None:
        """A queue that could not be opened at the start is there."""
        if self.has_offered and self.is_wanted(name):
            self.offer([name])
            self._pump.look()
            self._pump.wake()

    def is_wanted(self, name: str) -> bool:
        peer = self._connection.peer_queues
        is_named = not self._connection.names_queues or (peer is not None and name in peer.sinks)
        return is_named and name in self._queues and name not in self.offered

    def offer(self, names: Iterable[str]) -> None:
        if self._is_over or self._connection.state is not ConnectionState.OPEN:
            return  # the end was announced while this peer was being let in, or has come since
        if self._connection.is_guest:
            return  # it is no sink
        for each in [self._queues[name] for name in names if not self._pauses.holds(name)]:
            if each.life.hold.reason is not None:
                continue
            if why := self._connection.link.refusal("follow", each.name):
                self._tell_refused(each.name, why)
                continue
            try:
                assert self._connection.remote_id is not None
                marks = each.marks_of(self._connection.remote_id)
                next_index = self._end_of(each, marks)
                own_id = each.queue.layout.source_id
                source_id = own_id if each.source_id is None else each.source_id
                lineage = self._held(each)
                each.check_leads(self._connection.config.settings.host_id)
            except (QueueError, OSError) as error:
                self._not_offered(each, error)
                continue
            cid = self._connection.offer_queue(
                each.name,
                next_index,
                acknowledgement=self._shared.asks_ack(each.name),
                source_id=source_id,
                shape=each.shape,
                lineage=lineage,
                epochs=each.epochs.now.history,
                passed_by=each.passed_by,
            )
            self.offered.add(each.name)
            self._outgoing[cid] = Outgoing(each, marks, cid)
            assert self._session is not None
            each.sessions.append(self._session)
        self.has_offered = True
        self._shared.changed.set()

    def tell_late(self, stop: Stop) -> None:
        """A queue that is not open has stopped since everything else was offered."""
        peer = self._connection.peer_queues
        if self.has_offered and peer is not None and stop.name in peer.sinks:
            self._tell(stop)

    def _tell(self, trouble: Stop) -> None:
        """Tells the peer of a queue that is not open."""
        self._told.add(trouble.name)
        if trouble in self._shared.stops:
            self._tell_stop(trouble)
        else:
            self._tell_pause(trouble)

    def _tell_stop(self, stop: Stop) -> None:
        """The queue goes no further, and only with a cid it can be told why: by an offer that
        stops at once. It is offered again with the next connection."""
        is_news = stop.name not in self.failed
        self.failed.add(stop.name)
        if is_news and self._connection.names_queues:
            cid = self._connection.offer_queue(
                stop.name, NEXT_OF_EMPTY, acknowledgement=True, source_id=0, shape=None
            )
            self.let_go.add(cid)
            self._connection.stop_queue(cid, stop.reason, stop.message)

    def _tell_refused(self, name: str, why: str) -> None:
        """The peer may not have the queue: it hears so once, and it is logged once."""
        if name in self.failed:
            return
        self._pump.log.tell(logging.WARNING, self._pump.label, f"refused: {why}")
        host_id = self._connection.remote_id
        self._tell_stop(Stop(name=name, reason=StopReason.REFUSED, message=why, host_id=host_id))

    def _not_offered(self, queue: SourceQueue, error: QueueError | OSError) -> None:
        error = queue.cause_of(error)
        stop = Stop.of(queue.name, error, queue.path)
        if not is_passing(error):
            self._shared.note_stop(stop)
            self._tell_stop(stop)
        elif self._pauses.begin(stop):
            self._tell_pause(stop)

    def _tell_pause(self, trouble: Stop) -> None:
        """Only with a cid can it be told why nothing comes: by an offer that is taken back."""
        if self._connection.names_queues:
            cid = self._connection.offer_queue(
                trouble.name, NEXT_OF_EMPTY, acknowledgement=True, source_id=0, shape=None
            )
            if self._connection.withdraw_queue(cid, trouble.message):
                self.let_go.add(cid)

    def _end_of(self, queue: SourceQueue, marks: HostMarks) -> Index:
        """The end; or how far it is proved to be as it was appended, for a host that can give the
        rest back: it is compared then, and mended."""
        end, start = queue.queue.next_index(), queue.disk.unproved_from
        can_prove = self._connection.compares_lineage and self._returns.takes_from(marks)
        return end if start is None or not can_prove else min(start, end)

    def _held(self, queue: SourceQueue) -> Lineage | None:
        """The lineage of a queue for its offer; None for a peer that does not compare."""
        if not self._connection.compares_lineage:
            return None
        identity = queue.queue.identity.load() if self._connection.tells_identities else None
        held = first_held(queue.chains, place_of(queue.path), identity)
        return held if queue.copy is None else replace(held, places_before=queue.copy.way.places)
