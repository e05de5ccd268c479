"""The source: tails queues and streams them to every sink that connects.

Each connection has its own tailers and its own window, so a slow sink holds nobody up. A source
queue is opened for reading; the marks of what was sent and acknowledged are raised in its table
store. Only while a sink copies back is the queue locked for others and written.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import trio

from cqrepl.net.acklog import AckLog
from cqrepl.net.backcopy import BackCopyTarget
from cqrepl.net.endpoint import Endpoint, Settings, Signal, until
from cqrepl.net.names import named
from cqrepl.net.pump import Pump
from cqrepl.net.stops import Stop, reason_of
from cqrepl.protocol import Connection, QueueShape, Role, StopReason, WireShape
from cqrepl.protocol import events as ev
from cqrepl.protocol.connection import PAYLOAD_MAX
from cqrepl.queue import Queue, QueueError, Tailer
from cqrepl.queue.batch import ExcerptBatch
from cqrepl.queue.index import format_index

OUT_BYTES: Final = 256 * 1024
T = TypeVar("T")
_logger = logging.getLogger(__name__)


class SourceQueue:
    """One queue of a source, over all connections."""

    def __init__(self, name: str, path: Path, ack_log: Path | None) -> None:
        self.name = name
        self.path = path
        self.queue = Queue.open(path)
        self.target = self.queue.last_index()  # what was there at the start
        self.acknowledged = -1
        self.sent_excerpts = self.sent_bytes = 0
        self.ack_log = None if ack_log is None else AckLog(ack_log)

    @property
    def shape(self) -> QueueShape:
        layout = self.queue.layout
        return QueueShape(
            roll_cycle=layout.roll_cycle.name,
            epoch=layout.epoch,
            index_count=layout.index_count,
            index_spacing=layout.index_spacing,
        )

    def close(self) -> None:
        self.queue.close()
        if self.ack_log is not None:
            self.ack_log.close()


class Source:
    """A running source; made by `serve_source`."""

    def __init__(self, queues: list[SourceQueue], settings: Settings, *, asks_ack: bool) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.asks_ack = asks_ack
        self.changed = Signal()
        self.stops: list[Stop] = []
        self.endpoint = Endpoint(settings, frozenset(self.queues), self._make_session)

    @property
    def port(self) -> int | None:
        """The port listened on; None for a source that dials."""
        return self.endpoint.port

    async def wait_acked(self, index: int, queue: str | None = None) -> None:
        """Returns when some sink has acknowledged everything up to `index`.

        Args:
            queue: name of the queue; may be left out when there is one.
        """
        each = self._only(queue)
        await until(lambda: each.acknowledged >= index, self.changed)

    async def wait_caught_up(self) -> None:
        """Returns when one sink has acknowledged all that was in the queues at the start."""
        await until(lambda: any(s.is_caught_up for s in self._sessions()), self.changed)

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped on every connection there is."""
        await until(self._has_stopped, self.changed)

    def note_stop(self, stop: Stop) -> None:
        """A queue goes no further on some connection."""
        self.stops.append(stop)
        _logger.error("%s", stop)
        self.changed.set()

    def _has_stopped(self) -> bool:
        sessions = [s for s in self._sessions() if s.outgoing]
        return bool(sessions) and all(s.has_stopped for s in sessions)

    def _sessions(self) -> "Iterable[SourceSession]":
        return (s for s in self.endpoint.sessions if isinstance(s, SourceSession))

    def _only(self, name: str | None) -> SourceQueue:
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        if name is None or name not in self.queues:
            raise ValueError(f"one of the queues {sorted(self.queues)} expected, {name!r} came")
        return self.queues[name]

    def _make_session(self, connection: Connection, pump: Pump) -> "SourceSession":
        return SourceSession(self, connection, pump)


class Outgoing:
    """One queue on one connection."""

    def __init__(self, source_queue: SourceQueue, cid: int) -> None:
        self.queue = source_queue
        self.cid = cid
        self.tailer: Tailer | None = None
        self.batch: ExcerptBatch | None = None
        self.start = 0
        self.stream_from: int | None = None
        self.back_copy: BackCopyTarget | None = None
        self.has_stopped = False

    def close(self) -> None:
        self.batch = None
        if self.tailer is not None:
            self.tailer.close()
            self.tailer = None
        if self.back_copy is not None:
            self.back_copy.close()
            self.back_copy = None


class SourceSession:
    """A source's work on one connection."""

    def __init__(self, source: Source, connection: Connection, pump: Pump) -> None:
        self.outgoing: dict[int, Outgoing] = {}
        self.out_bytes = OUT_BYTES
        self._source = source
        self._connection = connection
        self._pump = pump
        self._is_draining = False
        self._turn = 0

    @property
    def polls(self) -> bool:
        return not self._is_draining and any(
            each.tailer is not None and self._connection.source(each.cid).has_room
            for each in self.outgoing.values()
        )

    @property
    def is_settled(self) -> bool:
        return all(
            each.has_stopped or self._connection.source(each.cid).is_settled
            for each in self.outgoing.values()
        )

    @property
    def is_caught_up(self) -> bool:
        """True when this sink has all that was in the queues at the start."""
        return len(self.outgoing) == len(self._source.queues) and all(
            self._has_target(each) for each in self.outgoing.values()
        )

    @property
    def has_stopped(self) -> bool:
        return all(each.has_stopped for each in self.outgoing.values())

    def drain(self) -> None:
        self._is_draining = True

    async def act(self, event: ev.Event) -> None:
        match event:
            case ev.Connected():
                self._offer()
            case ev.SinkAhead():
                await self._lock(self.outgoing[event.cid], event.next_index)
            case ev.AppendExcerpts() | ev.CompareExcerpts():
                await self._take_back(self.outgoing[event.cid], event)
            case ev.StreamingStarted():
                self._start(self.outgoing[event.cid], event.next_index)
            case ev.Acknowledged():
                self._acknowledged(self.outgoing[event.cid], event)
            case ev.QueueStopped():
                self._stopped(self.outgoing[event.cid], event.reason, event.message)

    def frame(self, out: bytearray) -> int:
        """Frames of the queues in turn, so that a busy queue does not hold up the others."""
        if self._is_draining:
            return 0
        filled = 0
        live = list(self.outgoing.values())
        for nth in range(len(live)):
            each = live[(self._turn + nth) % len(live)]
            if each.tailer is not None:
                filled = self._frame_queue(each, each.tailer, out, filled)
        self._turn += 1
        return filled

    async def close(self) -> None:
        for each in self.outgoing.values():
            each.close()
        self._source.changed.set()

    def _offer(self) -> None:
        for each in self._source.queues.values():
            try:
                next_index = each.queue.next_index()
                source_id = each.queue.layout.source_id
            except QueueError as error:
                self._source.note_stop(
                    Stop(name=each.name, reason=reason_of(error), message=str(error))
                )
                continue
            cid = self._connection.offer_queue(
                each.name,
                next_index,
                acknowledgement=self._source.asks_ack,
                source_id=source_id,
                shape=each.shape,
            )
            self.outgoing[cid] = Outgoing(each, cid)

    def _frame_queue(self, each: Outgoing, tailer: Tailer, out: bytearray, filled: int) -> int:
        if not self._connection.source(each.cid).has_room:
            return filled
        if each.batch is None:
            if len(out) - filled < OUT_BYTES // 4 and filled:
                return filled  # what is left is too little to be worth a look
            each.batch = self._guarded(each, lambda: self._next_batch(tailer))
            each.start = 0
            if each.batch is None:
                return filled
        batch, start = each.batch, each.start
        count, end = self._connection.frame_excerpts(
            each.cid, batch, start, time.monotonic_ns(), out, filled
        )
        if not count:
            if not filled:  # an excerpt that is larger than the buffer gets one of its own
                self.out_bytes = self._connection.frame_size(each.cid, batch.lengths[start])
            return filled
        if self.out_bytes != OUT_BYTES:
            self.out_bytes = OUT_BYTES
        self._sent(each, batch, start, count)
        return end

    def _next_batch(self, tailer: Tailer) -> ExcerptBatch | None:
        payload_max = self._connection.config.payload_max
        return tailer.next_batch(bytes_max=OUT_BYTES, payload_max=payload_max)

    def _sent(self, each: Outgoing, batch: ExcerptBatch, start: int, count: int) -> None:
        each.queue.sent_excerpts += count
        each.queue.sent_bytes += sum(batch.lengths[start : start + count])
        each.queue.queue.raise_sent(batch.index_first + start + count - 1)
        each.start = start + count
        if each.start == len(batch):
            each.batch = None

    async def _lock(self, each: Outgoing, next_index: int) -> None:
        """The sink has more than this queue: keeps everybody else out while it copies back."""
        offered = self._connection.source(each.cid).offer.next_index
        _logger.info(
            "%s: queue %r: the sink is ahead (%s, here %s): back copy",
            self._pump.label,
            each.queue.name,
            format_index(next_index),
            format_index(offered),
        )
        try:
            each.back_copy = await trio.to_thread.run_sync(BackCopyTarget, each.queue.path, offered)
        except (QueueError, OSError) as error:
            self._stop(each, error)
            return
        self._connection.begin_back_copy(
            each.cid, each.back_copy.next_index, each.queue.queue.layout.roll_cycle.shift
        )

    async def _take_back(
        self, each: Outgoing, event: ev.AppendExcerpts | ev.CompareExcerpts
    ) -> None:
        if each.back_copy is None:  # stopped a moment ago
            return
        try:
            if isinstance(event, ev.CompareExcerpts):
                each.back_copy.compare(event.batch)
            else:
                await each.back_copy.append(event.batch)
        except (QueueError, OSError) as error:
            self._stop(each, error)

    def _start(self, each: Outgoing, next_index: int) -> None:
        each.close()
        each.stream_from = next_index
        each.tailer = self._guarded(each, lambda: each.queue.queue.tailer(next_index))
        self._source.changed.set()

    def _acknowledged(self, each: Outgoing, event: ev.Acknowledged) -> None:
        each.queue.acknowledged = max(each.queue.acknowledged, event.index)
        each.queue.queue.raise_acknowledged(event.index)
        if each.queue.ack_log is not None:
            each.queue.ack_log.note(event)
        self._pump.wake()  # the window may have been full
        self._source.changed.set()

    def _stopped(self, each: Outgoing, reason: StopReason, message: str) -> None:
        if each.has_stopped:  # by us, and now the core tells of it
            return
        each.close()
        each.has_stopped = True
        self._source.note_stop(Stop(name=each.queue.name, reason=reason, message=message))

    def _guarded(self, each: Outgoing, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (QueueError, OSError) as error:
            self._stop(each, error)
            return None

    def _stop(self, each: Outgoing, error: QueueError | OSError) -> None:
        reason = reason_of(error) if isinstance(error, QueueError) else StopReason.FAILED
        self._connection.stop_queue(each.cid, reason, str(error))
        self._stopped(each, reason, str(error))

    def _has_target(self, each: Outgoing) -> bool:
        target = each.queue.target
        if each.stream_from is None:
            return False
        acknowledged = self._connection.source(each.cid).index_acknowledged
        return target is None or each.stream_from > target or acknowledged >= target


@asynccontextmanager
async def serve_source(
    queues: Mapping[str, Path | str] | Iterable[Path | str],
    *,
    listen: str | None = None,
    connect: str | None = None,
    host_id: int = 1,
    remote_ids: Iterable[int] = (),
    acknowledge: bool = True,
    heartbeat_interval_ms: int = 20_000,
    heartbeat_timeout_ms: int = 40_000,
    payload_max: int = PAYLOAD_MAX,
    wire_shape: WireShape = WireShape.NETWORK,
    ack_log: Path | str | None = None,
    gives_up: bool = False,
) -> AsyncIterator[Source]:
    """Streams queues to sinks for the length of an `async with` block, then ends in order.

    Args:
        queues: directories, or a mapping from the name on the wire to the directory.
        listen: `HOST:PORT`; port 0 lets the system choose, see `Source.port`.
        connect: `HOST:PORT` of a listening sink. Exactly one of the two is given.
        remote_ids: host ids that are accepted; any but our own when empty. One that dials expects
            the first, 2 when there is none.
        acknowledge: ask for acknowledgements.
        payload_max: a queue that holds a longer excerpt (bytes) stops there.
        ack_log: directory of the log of acknowledgements; one below it for each of several queues.
        gives_up: one that dials stops after 30 s without success.

    Raises:
        QueueError: a directory holds no queue that can be read.
        Unreachable: the port cannot be listened on, or the peer was not reached.
        ValueError: arguments that do not fit together.
    """
    settings = Settings.checked(
        Role.SOURCE,
        listen=listen,
        connect=connect,
        host_id=host_id,
        remote_ids=remote_ids,
        remote_id_default=2,
        heartbeat_interval_ms=heartbeat_interval_ms,
        heartbeat_timeout_ms=heartbeat_timeout_ms,
        payload_max=payload_max,
        shape=wire_shape,
        gives_up=gives_up,
    )
    paths = named(queues)
    with ExitStack() as stack:
        opened = []
        for name, path in paths.items():
            log = None if ack_log is None else Path(ack_log)
            if log is not None and len(paths) > 1:
                log = log / name
            opened.append(SourceQueue(name, path, log))
            stack.callback(opened[-1].close)
        source = Source(opened, settings, asks_ack=acknowledge)
        async with source.endpoint.running():
            yield source
