"""One connection, without I/O and without a clock: bytes and time in, events and bytes out.

Theory of operation. The shell feeds what it received, takes events one by one, acts on each,
answers through the methods here, and sends what `data_to_send` gives. Parsing is lazy: the next
document is looked at only when the shell asks for the next event, so what the shell answers to
one event is in place before the next message is read. Time is an argument; `next_deadline` says
when `tick` is due.

A run of `re` frames becomes one event without a Python object per excerpt; every other document
goes through the wire reader (`inflow`).

The dialler greets at once with its UberHandler and heartbeat numbers; the acceptor answers both.
Ids are written from the receiver's point of view: `remote_id` on the wire is the sender's own.
"""

import math
from collections.abc import Callable
from typing import Final

from cqrepl.protocol.capabilities import ENDED_CAPABILITY, QUEUES_CAPABILITY
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.errors import LocalProtocolError, RemoteProtocolError
from cqrepl.protocol.events import (
    Connected,
    Event,
    OrderlyEnd,
    PeerLost,
    QueueOffered,
    StopReason,
)
from cqrepl.protocol.greeting import ConnectionConfig, is_guest, read_uber, refusal, uber_of
from cqrepl.protocol.heartbeat import Heartbeat
from cqrepl.protocol.inflow import FRAME_SECONDS, Inflow
from cqrepl.protocol.messages import (
    HEARTBEAT_CSP,
    SINK_HANDLER,
    HeartbeatHandler,
    QueueShape,
    ReplicationHandler,
    TerminatorHandler,
    UberHandler,
    write_registration,
    write_uber,
)
from cqrepl.protocol.messages.names import QUEUES_CSP
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.messages.registry import QueuesHandler
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.queuelist import OwnQueues
from cqrepl.protocol.sink import SinkHandler
from cqrepl.protocol.source import AnswerPace, SourceHandler
from cqrepl.protocol.states import CONNECTION_MOVES, ConnectionMove, ConnectionState, moved
from cqrepl.protocol.subhandler import LinkView
from cqrepl.protocol.uber import Router, unheard
from cqrepl.queue.format.epochs import History
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.identity import Identity
from wire import Document, WireError

_GREETING_ROOM: Final = 4096  # of a peer that may stay silent: each of hundreds has one
GREETING_BYTES_MAX: Final = 64 * 1024
RECEIVE_BYTES: Final = 256 * 1024  # taken from a socket at a time
GREETING_SECONDS: Final = 5.0


class Connection:
    """The protocol of one connection. `now` is a monotonic time in seconds everywhere."""

    def __init__(self, config: ConnectionConfig, now: float) -> None:
        self.config = config
        self.state = ConnectionState.WAITING
        self.remote_id: int | None = None
        self.was_refused = False  # by either side, for what the UberHandlers say
        self._peer_uber: UberHandler | None = None  # once it was accepted
        self._outbox = Outbox(config.settings.shape)
        self._inflow = Inflow(GREETING_BYTES_MAX)
        self._router = Router(config, self._outbox)
        self.link_of = self._router.link_of  # the connection as one program sees it, by its number
        self._own_queues: tuple[Cid, OwnQueues] | None = None  # with the cid
        self._pace = AnswerPace(config.settings.heartbeat.timeout_seconds)
        self._greeting_deadline = now + GREETING_SECONDS
        self._list_deadline = math.inf  # of the peer's first list of queues
        self._heard = now
        self._now = now
        self._is_busy = False  # the shell acts on an event, and reads nothing meanwhile
        if config.is_dialler:
            self._greet(now)

    def hold_few(self, excerpts: int) -> None:
        """Holds so many excerpts at most that are not acknowledged, of all queues that go out."""
        self._pace.budget.free = excerpts

    # bytes and time

    def receive_data(self, data: bytes | memoryview, now: float) -> None:
        """Takes received bytes. Call `next_event` until it has no more."""
        if self.state is ConnectionState.CLOSED:
            return
        self._now = self._heard = now
        self._inflow.feed(data)

    def receive_room(self) -> memoryview:
        """The memory in which a shell that wants no copy stores the next bytes. `received` then
        takes them. Drop it before the next call: memory that is still held is not used again."""
        return self._inflow.room(_GREETING_ROOM if self.remote_id is None else RECEIVE_BYTES)

    def received(self, count: int, now: float) -> None:
        """Takes the first `count` bytes of the room, as `receive_data` does."""
        if self.state is ConnectionState.CLOSED:
            return
        self._now = self._heard = now
        self._inflow.received(count)

    def hand_over(self) -> bytes:
        """The bytes that were received and not taken, for a native pump that receives in the
        shell's place. `hand_back` takes those that the pump leaves, before the next `tick`."""
        return self._inflow.hand_over()

    def hand_back(self, data: bytes, now: float, heard: float | None, began: float | None) -> None:
        """Takes what a native pump has left. What it hands back unread is no news of the peer.

        Args:
            heard: when the pump last received anything; None when it has received nothing.
            began: when the first byte of `data` came; None when that was before the hand-over.
        """
        self._now, self._heard = now, self._heard if heard is None else max(self._heard, heard)
        self._inflow.hand_back(data, began)

    def receive_end(self, now: float) -> None:
        """The stream ended. A peer that cannot announce its end may close between two documents."""
        self._now = now
        if self.state is ConnectionState.CLOSED:
            return
        mid = self._inflow.splitter.pending_bytes
        quiet = self.state is ConnectionState.OPEN and not mid
        if self.state is ConnectionState.ENDING or (quiet and self._may_end_unannounced):
            self._outbox.tell(OrderlyEnd())
        else:
            where = f"in the middle of a document ({mid} bytes of it came)"
            how = where if mid else "without a goodbye"
            self._outbox.tell(PeerLost(message=f"the connection ended {how}"))
        self._move(ConnectionMove.END)

    def next_event(self) -> Event | None:
        """The next thing to act on; None until more bytes or time have passed.

        Raises:
            RemoteProtocolError: the peer broke the protocol: close the connection.
        """
        events = self._outbox.events
        try:
            while not events and self.state is not ConnectionState.CLOSED:
                if not self._take_next():
                    break
        except RemoteProtocolError:
            self._move(ConnectionMove.END)
            raise
        self._inflow.watch(self._now)
        self._is_busy = bool(events)
        return events.popleft() if events else None

    def data_to_send(self) -> bytes:
        """Bytes for the peer, in order; they count as sent."""
        self._outbox.flush()
        self._collect()
        data = bytes(self._outbox.data)
        self._outbox.data.clear()
        return data

    @property
    def silence_max(self) -> float:
        """Longest time in seconds for which the peer may say nothing."""
        heartbeat = self._router.heartbeat
        if heartbeat is None:  # not registered, or its numbers were refused
            return self.config.settings.heartbeat.timeout_seconds
        return heartbeat.silence_max

    @property
    def has_data_to_send(self) -> bool:
        self._collect()
        return bool(self._outbox.data)

    @property
    def link(self) -> LinkView:
        """The connection as a program's handlers see it, where there is one program."""
        return self._router

    @property
    def is_guest(self) -> bool:
        """True when the peer is no member."""
        return self._router.is_guest

    @property
    def has_events(self) -> bool:
        """True when `next_event` has something without another byte."""
        return bool(self._outbox.events)

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Has `wake` called when a handler has something to send outside any call here."""
        self._outbox.wake = wake

    def on_fault(self, report: Callable[[str, Exception], None]) -> None:
        """Has `report` called when a program's handler fails: with its kind and csp, and why. That
        handler ends; all else goes on."""
        self._router.report = report

    def refuse(self, problem: str) -> bool:
        """The shell does not let in the peer that is there since a moment: says why in place of our
        UberHandler; false where the peer would not understand that, or has ours already."""
        handler = self._peer_uber
        if self.config.is_dialler or handler is None or handler.announcement is None:
            return False
        assert self.state is ConnectionState.OPEN
        self._outbox.data.clear()  # nothing was sent since the peer's came
        self._answer_uber(handler, refused=problem)
        self._move(ConnectionMove.END)
        return True

    def close(self, reason: str) -> None:
        """The shell has closed the connection: a program's handlers hear of it."""
        self._router.close(reason)
        self.on_fault(unheard)
        self.on_wake(lambda: None)  # no circle keeps the buffers of what is over

    def judges_peer(self, now: float) -> bool:
        """True when `tick` would do more than say that we are there: what was heard counts."""
        return self._overdue(now) is not None or self._router.is_due(now)

    def next_deadline(self) -> float:
        """The latest time at which `tick` is due; infinity for never."""
        if self.state is ConnectionState.CLOSED:
            return math.inf
        return min(
            self._router.agenda.next_deadline,
            self._greeting_deadline,
            self._names_deadline,
            self._inflow.deadline,
            self._heard + self.silence_max,
        )

    def tick(self, now: float) -> None:
        """Does what is due.

        Raises:
            RemoteProtocolError: the peer is silent, or too slow: close the connection.
        """
        self._now = now
        if self.state is ConnectionState.CLOSED:
            return
        if self._is_busy:
            self._heard = now  # the shell read nothing: the peer was not silent
        problem = self._overdue(now)
        if problem is not None:
            self._move(ConnectionMove.END)
            raise RemoteProtocolError(problem)
        self._tick_handlers(now)
        self._router.remove_failed()

    # the source's side

    def offer_queue(
        self,
        name: str,
        next_index: int,
        *,
        acknowledgement: bool,
        source_id: int,
        shape: QueueShape | None,
        lineage: Lineage | None = None,
        epochs: History = (),
        passed_by: tuple[int, ...] = (),
    ) -> Cid:
        """Registers a SinkReplicationHandler at the peer; gives the cid of the queue.

        Args:
            epochs: who has led the queue; not said to a peer that knows of no epochs.
        """
        self._require_open()
        offer = ReplicationHandler(
            kind=SINK_HANDLER,
            queue_name=name,
            acknowledgement=acknowledgement,
            next_index=next_index,
            source_id=source_id,
            shape=shape,
            lineage=lineage,
            epochs=self._outbox.epochs_told(epochs),
            passed_by=passed_by,
        )
        cid = self._router.new_cid()
        csp = f"/replication/{name}/{self.remote_id}"
        self._router.add(cid, SourceHandler(csp, cid, offer, self._outbox, self._now, self._pace))
        return cid

    def begin_back_copy(self, cid: Cid, next_index: int, shift: int) -> None:
        """The source queue is locked and lacks everything from `next_index` on."""
        self._router.source(cid).locked(next_index, shift, self._now)
        self._router.touched(cid)

    def source(self, cid: Cid) -> SourceHandler:
        """The state of an offered queue, to look at."""
        return self._router.source(cid)

    # the sink's side

    def awaits_answer(self, offered: QueueOffered) -> bool:
        """True while this very offer is still to be answered: not once the source or our side has
        withdrawn it, or the connection has ended."""
        handler = self._router.handlers.get(offered.cid)
        return (
            self.state is ConnectionState.OPEN
            and isinstance(handler, SinkHandler)
            and handler.offer is offered.offer
            and handler.is_offered
        )

    @property
    def compares_lineage(self) -> bool:
        """True when a sink tells with its answer what it holds, for the source to compare."""
        return self._outbox.has_lineage

    @property
    def tells_identities(self) -> bool:
        """True when both sides tell which queue is which, besides."""
        return self._outbox.has_identities

    def lineage_compared(self, cid: Cid, identity: Identity | None = None) -> None:
        """A sink holds what the source does: its time goes on. It takes the identity, if it has
        none."""
        self._router.source(cid).lineage_compared(identity, self._now)
        self._router.touched(cid)

    def ask_proof(self, cid: Cid, index: int) -> None:
        """Asks a sink what it holds before an index, while its lineage is compared."""
        self._router.source(cid).ask_proof(index, self._now)
        self._router.touched(cid)

    def ask_audit(self, cid: Cid, index: int) -> bool:
        """Asks a sink for the chain over what its files hold before an index, which comes as
        `CopyAudited`; false for a sink that cannot tell."""
        return self._router.source(cid).ask_audit(index)

    def offer_of(self, cid: Cid) -> ReplicationHandler:
        """The handler with which the source offered a queue."""
        return self._router.sink(cid).offer

    def give_proof(self, cid: Cid, index: int, held: Lineage) -> None:
        """Tells the source what we hold before an index that it has asked for."""
        self._router.sink(cid).give_proof(index, held)

    def sink(self, cid: Cid) -> SinkHandler:
        """The queue that comes in behind a cid.

        Raises:
            LocalProtocolError: there is none.
        """
        return self._router.sink(cid)

    def answer_queue(
        self,
        cid: Cid,
        next_index: int,
        shift: int,
        shape: QueueShape | None,
        lineage: Lineage | None = None,
        epochs: History = (),
    ) -> None:
        """Accepts an offered queue; `shift` is the number of sequence bits in its indexes.

        The `cqrepl` block is sent only to a source that announced the extension by sending its own.
        """
        handler = self._router.sink(cid)
        shape = shape if handler.offer.shape is not None else None
        handler.answer(next_index, shift, shape, lineage if handler.has_lineage else None, epochs)

    def go_on(self, cid: Cid) -> None:
        """The source holds what the sink queue does, and no other writer has that any more."""
        self._router.sink(cid).begin_back_copy()

    def end_back_copy(self, cid: Cid) -> None:
        """Every excerpt that the source lacks was framed and handed over."""
        self._router.sink(cid).end_back_copy()

    def tell_stored(self, cid: Cid, index_last: int, ns: int) -> None:
        """Everything up to `index_last` is in the sink queue; nothing where that has been stopped
        or withdrawn meanwhile."""
        handler = self._router.handlers.get(cid)
        if isinstance(handler, SinkHandler) and not handler.has_stopped:
            handler.stored(index_last, ns)

    def suits_pump(self) -> bool:
        """True while a live pump can receive."""
        return self.state is ConnectionState.OPEN and not self._inflow.is_long

    def receiving(self) -> list[SinkHandler]:
        """The queues whose stream is on, for a live pump to receive; none while it cannot."""
        return self._router.receiving() if self.suits_pump() else []

    # both sides

    def frame_excerpts(
        self, cid: Cid, batch: ExcerptBatch, start: int, ns: int, out: bytearray, filled: int
    ) -> tuple[ExcerptBatch | None, int]:
        """Writes frames of excerpts `start`, ... of `batch` into `out` from offset `filled` on.

        As many as fit whole; they count as sent. `data_to_send` must be sent before them.

        Returns:
            Those that were framed (None: not one), and the offset in `out` behind the last.
        """
        self._require_open()
        return self._router.replication(cid).frame(batch, start, ns, out, filled)

    def frame_size(self, cid: Cid, payload_bytes: int) -> int:
        """Greatest size in bytes of the frame of one excerpt."""
        return self._router.replication(cid).framing.size_max(payload_bytes)

    def stop_queue(
        self, cid: Cid, reason: StopReason, message: str, index: int | None = None
    ) -> None:
        """Ends one queue on this connection; everything else goes on.

        Args:
            index: the first one that the two copies differ at, where that is why.
        """
        self._router.replication(cid).stop(reason, message, index)

    def has_stopped(self, cid: Cid) -> bool:
        """True when a queue goes no further, though what tells of it may not be acted on yet; also
        for one that was withdrawn."""
        return self._router.has_stopped(cid)

    def tell_stopped(
        self, cid: Cid, reason: StopReason, message: str, index: int | None = None
    ) -> None:
        """Tells the peer that nothing more comes for a queue; what it was sent before is still to
        be acknowledged. `index` as `stop_queue` has it."""
        self._router.replication(cid).tell_stopped(reason, message, index)

    def withdraw_queue(self, cid: Cid, reason: str) -> bool:
        """Ends one queue on both sides, so that it can be offered again; false when the peer has
        not announced that it knows what this means, and nothing was done."""
        self._router.replication(cid)
        if ENDED_CAPABILITY not in self._router.capabilities:
            return False
        self._router.remove(cid, reason)
        return True

    @property
    def names_queues(self) -> bool:
        """True when the two sides tell each other which queues they have: nothing is offered before
        the peer's first list has ended, and nothing that it does not name."""
        return QUEUES_CAPABILITY in self._router.capabilities

    @property
    def peer_queues(self) -> QueueNames | None:
        """The queues that the peer names; None before its first list has ended."""
        peer = self._router.peer_queues
        return peer.queues if peer is not None and peer.is_known else None

    def name_queues(self, queues: QueueNames) -> None:
        """Names our queues to a peer that `names_queues`, once."""
        self._require_open()
        assert self.names_queues
        assert self._own_queues is None
        cid, own = self._router.new_cid(), OwnQueues(queues)
        self._outbox.send(write_registration(QUEUES_CSP, cid, QueuesHandler(), self._outbox.shape))
        self._list_deadline = self._now + self.config.settings.heartbeat.timeout_seconds
        self._router.add(cid, own)
        self._own_queues = cid, own

    def change_queues(self, *, added: QueueNames, removed: QueueNames) -> None:
        """Tells the peer what is different from now on; nothing where it was told nothing."""
        if self._own_queues is not None and self.state is ConnectionState.OPEN:
            cid, own = self._own_queues
            own.change(added, removed)
            self._router.wake(cid)

    def end(self) -> None:
        """Our side has nothing more to say: announces it to a peer that knows what that means."""
        self._require_open()
        self._move(ConnectionMove.TERMINATOR_SENT)
        if self._router.heartbeat is not None:
            self._router.heartbeat.stop()
        if self._knows_terminator:
            cid, handler = self._router.new_cid(), TerminatorHandler()
            self._outbox.flush()
            self._outbox.send(write_registration(HEARTBEAT_CSP, cid, handler, self._outbox.shape))

    # inside

    @property
    def _may_end_unannounced(self) -> bool:
        """A Java source cannot announce its end: a sink that takes in its queues reads it so."""
        return not self._knows_terminator and bool(self._router.receiving())

    @property
    def _knows_terminator(self) -> bool:
        return self._router.peer_has_extension or bool(self._router.capabilities)

    @property
    def _names_deadline(self) -> float:
        if self._list_deadline < math.inf and self.peer_queues is not None:
            self._list_deadline = math.inf  # it has come
        return self._list_deadline

    def _overdue(self, now: float) -> str | None:
        if now >= self._greeting_deadline:
            return f"no greeting (an UberHandler) of the peer within {GREETING_SECONDS:g} s"
        if now >= self._names_deadline:
            return "no list of the peer's queues, though it announced one"
        if now >= self._inflow.deadline:
            return f"a document that started was not complete after {FRAME_SECONDS:g} s"
        if now >= self._heard + self.silence_max:
            return f"nothing received for {now - self._heard:.1f} s"
        return None

    def _tick_handlers(self, now: float) -> None:
        for cid in self._router.agenda.due(now):
            handler = self._router.handlers.get(cid)
            if handler is None:
                continue  # removed by one that was due before it
            handler.tick(now)
            if isinstance(handler, SourceHandler) and now >= handler.deadline:
                handler.unanswered(is_over=ENDED_CAPABILITY not in self._router.capabilities)
            if cid in self._router.handlers:
                self._router.touched(cid)

    def _greet(self, now: float) -> None:
        settings = self.config.settings
        numbers = HeartbeatHandler(
            timeout_ms=settings.heartbeat.timeout_ms, interval_ms=settings.heartbeat.interval_ms
        )
        cid = self._router.new_cid()
        own = uber_of(self.config, self.config.dialled_id, announces=True)
        self._outbox.send(
            write_uber(own, settings.shape),
            write_registration(HEARTBEAT_CSP, cid, numbers, settings.shape),
        )
        self._router.heartbeat = Heartbeat(cid, numbers, now, self._outbox)
        self._router.add(cid, self._router.heartbeat)

    def _take_next(self) -> bool:
        """Takes what comes next; false when more bytes are needed."""
        try:
            self._outbox.check()
            return self._take_run() or self._take_document()
        except WireError as error:  # there is no next document to be found
            raise RemoteProtocolError(self._inflow.why(error)) from error

    def _take_run(self) -> bool:
        handler = self._router.selected
        if not isinstance(handler, SinkHandler | SourceHandler):
            return False
        run = self._inflow.next_run(handler.cid_document, self.config.settings.payload_max)
        if run is None:
            return False
        handler.receive_batch(run.batch, run.ns, self._now)
        return True

    def _take_document(self) -> bool:
        document = self._inflow.next_document()
        if document is None:
            return False
        if self.state is ConnectionState.WAITING:
            self._receive_uber(document)
        elif self.state is ConnectionState.OPEN or self.state is ConnectionState.ENDING:
            self._router.route(document, self._now)
            if self._router.has_terminated:
                self._move(ConnectionMove.TERMINATOR_RECEIVED)
                self._outbox.tell(OrderlyEnd())
        return True

    def _receive_uber(self, document: Document) -> None:
        handler = read_uber(document.body)
        problem = refusal(handler, self.config)
        if problem is not None:
            self.was_refused = True
            if not self.config.is_dialler and handler.announcement is not None:
                self._answer_uber(handler, refused=problem)
            raise RemoteProtocolError(problem)
        self.remote_id, self._peer_uber = handler.remote_id, handler
        self._router.opened(handler.remote_id, handler.announcement, is_guest=is_guest(handler))
        self._move(ConnectionMove.UBER_ACCEPTED)
        self._greeting_deadline = math.inf
        self._inflow.splitter.length_max = self._router.body_max
        if not self.config.is_dialler:
            self._answer_uber(handler)
        self._outbox.tell(Connected(remote_id=handler.remote_id))

    def _collect(self) -> None:
        """Takes what handlers produce, while there is room."""
        if self.state is ConnectionState.OPEN and self._router.has_ready:
            self._router.produce()

    def _answer_uber(self, handler: UberHandler, refused: str = "") -> None:
        answer = uber_of(
            self.config,
            handler.remote_id,
            handler.wire_type,
            announces=handler.announcement is not None,
            refused=refused,
        )
        self._outbox.send(write_uber(answer, self.config.settings.shape))

    def _require_open(self) -> None:
        if self.state is not ConnectionState.OPEN:
            raise LocalProtocolError(f"the connection is {self.state.name}, not OPEN")

    def _move(self, move: ConnectionMove) -> None:
        self.state = moved(CONNECTION_MOVES, self.state, move, LocalProtocolError, "the connection")
