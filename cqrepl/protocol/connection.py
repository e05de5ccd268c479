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
from typing import Final

from cqrepl.protocol.errors import LocalProtocolError, RemoteProtocolError
from cqrepl.protocol.events import Connected, Event, OrderlyEnd, PeerLost, StopReason
from cqrepl.protocol.greeting import ConnectionConfig, read_uber, uber_of
from cqrepl.protocol.heartbeat import Heartbeat
from cqrepl.protocol.inflow import FRAME_SECONDS, Inflow
from cqrepl.protocol.messages import (
    HEARTBEAT_CSP,
    SINK_HANDLER,
    HeartbeatHandler,
    QueueShape,
    ReplicationHandler,
    TerminatorHandler,
    write_registration,
    write_uber,
)
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.sink import SinkHandler
from cqrepl.protocol.source import SourceHandler
from cqrepl.protocol.states import (
    CONNECTION_MOVES,
    ConnectionMove,
    ConnectionState,
    SinkState,
    moved,
)
from cqrepl.protocol.uber import Router, RouterConfig
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from wire import Document, WireError

FRAME_OVERHEAD_MAX: Final = 4096
GREETING_BYTES_MAX: Final = 64 * 1024
RECEIVE_BYTES: Final = 256 * 1024  # taken from a socket at a time
GREETING_SECONDS: Final = 5.0


class Connection:
    """The protocol of one connection. `now` is a monotonic time in seconds everywhere."""

    def __init__(self, config: ConnectionConfig, now: float) -> None:
        self.config = config
        self.state = ConnectionState.WAITING
        self.remote_id: int | None = None
        self._outbox = Outbox(config.shape)
        self._inflow = Inflow(GREETING_BYTES_MAX)
        router = RouterConfig(
            role=config.role, is_dialler=config.is_dialler, queue_names=config.queue_names
        )
        self._router = Router(router, self._outbox)
        self._cid_next = config.cid_first
        self._greeting_deadline = now + GREETING_SECONDS
        self._heard = now
        self._now = now
        self._is_busy = False  # the shell acts on an event, and reads nothing meanwhile
        if config.is_dialler:
            self._greet(now)

    # bytes and time

    def receive_data(self, data: bytes | memoryview, now: float) -> None:
        """Takes received bytes. Call `next_event` until it has no more."""
        if self.state is ConnectionState.CLOSED:
            return
        self._now = self._heard = now
        self._inflow.feed(data)

    def receive_room(self) -> memoryview:
        """Where a shell that wants no copy lets the next bytes be stored; `received` then takes
        them. To be dropped before the next call: what is still held is not used again."""
        return self._inflow.room(GREETING_BYTES_MAX if self.remote_id is None else RECEIVE_BYTES)

    def received(self, count: int, now: float) -> None:
        """Takes the first `count` bytes of the room, as `receive_data` does."""
        if self.state is ConnectionState.CLOSED:
            return
        self._now = self._heard = now
        self._inflow.received(count)

    def hand_over(self) -> bytes:
        """What was received and not taken, for a native pump that receives in the shell's place.
        `hand_back` takes what that leaves, before the next `tick`."""
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
            what = f"in the middle of a document ({mid} bytes of it came)" if mid else "unannounced"
            self._outbox.tell(PeerLost(message=f"end of stream {what}"))
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
        for handler in self._router.handlers.values():
            if isinstance(handler, SinkHandler):
                handler.flush()
        data = bytes(self._outbox.data)
        self._outbox.data.clear()
        return data

    @property
    def silence_max(self) -> float:
        """Longest time in seconds for which the peer may say nothing."""
        heartbeat = self._router.heartbeat  # None: not registered, or its numbers were refused
        own = self.config.heartbeat_timeout_ms / 1000
        return own if heartbeat is None else heartbeat.silence_max

    @property
    def has_data_to_send(self) -> bool:
        return bool(self._outbox.data)

    def next_deadline(self) -> float:
        """When `tick` is due at the latest; infinity for never."""
        if self.state is ConnectionState.CLOSED:
            return math.inf
        times = [handler.deadline for handler in self._router.handlers.values()]
        return min(
            *times, self._greeting_deadline, self._inflow.deadline, self._silence_deadline, math.inf
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
        if problem is None:
            problem = self._tick_handlers(now)
        if problem is not None:
            self._move(ConnectionMove.END)
            raise RemoteProtocolError(problem)

    # the source's side

    def offer_queue(
        self,
        name: str,
        next_index: int,
        *,
        acknowledgement: bool,
        source_id: int,
        shape: QueueShape | None,
    ) -> int:
        """Registers a SinkReplicationHandler at the peer; gives the cid of the queue."""
        self._require_open()
        offer = ReplicationHandler(
            kind=SINK_HANDLER,
            queue_name=name,
            acknowledgement=acknowledgement,
            next_index=next_index,
            source_id=source_id,
            shape=shape,
        )
        sink_id = self.remote_id
        cid = self._new_cid()
        handler = SourceHandler(
            f"/replication/{name}/{sink_id}",
            cid,
            offer,
            self._outbox,
            self._now,
            self.config.heartbeat_timeout_ms / 1000,
        )
        self._router.add(cid, handler)
        return cid

    def begin_back_copy(self, cid: int, next_index: int, shift: int) -> None:
        """The source queue is locked and lacks everything from `next_index` on."""
        self._router.source(cid).locked(next_index, shift, self._now)

    def source(self, cid: int) -> SourceHandler:
        """The state of an offered queue, to look at."""
        return self._router.source(cid)

    # the sink's side

    def answer_queue(self, cid: int, next_index: int, shift: int, shape: QueueShape | None) -> None:
        """Accepts an offered queue; `shift` is the number of sequence bits in its indexes.

        The `cqrepl` block is sent only to a source that announced the extension by sending its own.
        """
        handler = self._router.sink(cid)
        handler.answer(next_index, shift, shape if handler.offer.shape is not None else None)

    def end_back_copy(self, cid: int) -> None:
        """Every excerpt that the source lacks was framed and handed over."""
        self._router.sink(cid).end_back_copy()

    def stored(self, cid: int, index_last: int, ns: int) -> None:
        """Everything up to `index_last` is in the sink queue."""
        self._router.sink(cid).stored(index_last, ns)

    def receiving(self) -> list[SinkHandler]:
        """The queues whose stream is on, for a live pump to receive; none while a document comes
        in pieces that is longer than what is received at a time."""
        pending = self._inflow.splitter.pending_bytes
        if self.state is not ConnectionState.OPEN or pending > RECEIVE_BYTES // 2:
            return []
        return self._router.receiving()

    # both sides

    def frame_excerpts(
        self, cid: int, batch: ExcerptBatch, start: int, ns: int, out: bytearray, filled: int
    ) -> tuple[ExcerptBatch | None, int]:
        """Writes frames of excerpts `start`, ... of `batch` into `out` from offset `filled` on.

        As many as fit whole; they count as sent. `data_to_send` must be sent before them.

        Returns:
            Those that were framed (None: not one), and the offset in `out` behind the last.
        """
        self._require_open()
        return self._router.replication(cid).frame(batch, start, ns, out, filled)

    def frame_size(self, cid: int, payload_bytes: int) -> int:
        """Greatest size in bytes of the frame of one excerpt."""
        return self._router.replication(cid).framing.size_max(payload_bytes)

    def stop_queue(self, cid: int, reason: StopReason, message: str) -> None:
        """Ends one queue on this connection; everything else goes on."""
        self._router.replication(cid).stop(reason, message)

    def end(self) -> None:
        """Our side has nothing more to say: announces it to a peer that knows what that means."""
        self._require_open()
        self._move(ConnectionMove.TERMINATOR_SENT)
        if self._router.heartbeat is not None:
            self._router.heartbeat.stop()
        if self._router.peer_has_extension:
            cid, handler = self._new_cid(), TerminatorHandler()
            for sink in self._router.handlers.values():
                if isinstance(sink, SinkHandler):
                    sink.flush()
            self._outbox.send(write_registration(HEARTBEAT_CSP, cid, handler, self.config.shape))

    # inside

    @property
    def _may_end_unannounced(self) -> bool:
        """A Java source cannot announce its end: a sink that takes in its queues reads it so."""
        return not self._router.peer_has_extension and any(
            isinstance(handler, SinkHandler) and handler.state is SinkState.RECEIVING
            for handler in self._router.handlers.values()
        )

    @property
    def _silence_deadline(self) -> float:
        return self._heard + self.silence_max

    def _overdue(self, now: float) -> str | None:
        if now >= self._greeting_deadline:
            return f"no UberHandler within {GREETING_SECONDS:g} s"
        if now >= self._inflow.deadline:
            return f"a document that started was not complete after {FRAME_SECONDS:g} s"
        if now >= self._silence_deadline:
            return f"nothing received for {now - self._heard:.1f} s"
        return None

    def _tick_handlers(self, now: float) -> str | None:
        for handler in list(self._router.handlers.values()):
            handler.tick(now)
            if isinstance(handler, SourceHandler) and now >= handler.deadline:
                problem = f"queue {handler.name!r}: no answer from the sink"
                if not self._another_answered():
                    return problem  # nothing works here: a new connection may do better
                handler.stop(StopReason.NO_ANSWER, problem)
        return None

    def _another_answered(self) -> bool:
        return any(
            isinstance(handler, SourceHandler) and handler.answer is not None
            for handler in self._router.handlers.values()
        )

    def _greet(self, now: float) -> None:
        config = self.config
        (remote_id,) = config.remote_ids
        numbers = HeartbeatHandler(
            timeout_ms=config.heartbeat_timeout_ms, interval_ms=config.heartbeat_interval_ms
        )
        cid = self._new_cid()
        self._outbox.send(
            write_uber(uber_of(config, remote_id), config.shape),
            write_registration(HEARTBEAT_CSP, cid, numbers, config.shape),
        )
        self._router.heartbeat = Heartbeat(cid, numbers, now, self._outbox)
        self._router.add(cid, self._router.heartbeat)

    def _take_next(self) -> bool:
        """Takes what comes next; false when more bytes are needed."""
        try:
            return self._take_run() or self._take_document()
        except WireError as error:  # there is no next document to be found
            raise RemoteProtocolError(str(error)) from error

    def _take_run(self) -> bool:
        handler = self._router.selected
        if not isinstance(handler, SinkHandler | SourceHandler):
            return False
        run = self._inflow.next_run(handler.cid_document, self.config.payload_max)
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
        handler = read_uber(document.body, self.config)
        self.remote_id = handler.remote_id
        self._move(ConnectionMove.UBER_ACCEPTED)
        self._greeting_deadline = math.inf
        self._inflow.splitter.length_max = self.config.payload_max + FRAME_OVERHEAD_MAX
        if not self.config.is_dialler:
            answer = uber_of(self.config, handler.remote_id, handler.wire_type)
            self._outbox.send(write_uber(answer, self.config.shape))
        self._outbox.tell(Connected(remote_id=handler.remote_id))

    def _new_cid(self) -> int:
        while self._cid_next in self._router.handlers:
            self._cid_next += 1
        self._cid_next += 1
        return self._cid_next - 1

    def _require_open(self) -> None:
        if self.state is not ConnectionState.OPEN:
            raise LocalProtocolError(f"the connection is {self.state.name}, not OPEN")

    def _move(self, move: ConnectionMove) -> None:
        self.state = moved(CONNECTION_MOVES, self.state, move, LocalProtocolError, "the connection")
