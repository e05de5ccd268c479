"""The sink: takes queues from sources and appends every excerpt at exactly the index it had there.

A sink owns its queues: it holds their append locks for its whole life, so no other writer can get
in between. An acknowledgement goes out when the excerpts are in the mapped file with their headers
published: what was acknowledged survives the death of any process. A queue takes from one
connection at a time.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from cqrepl.net.endpoint import Endpoint, Settings, Signal, until
from cqrepl.net.names import named
from cqrepl.net.pump import Pump
from cqrepl.net.stops import Stop, reason_of
from cqrepl.protocol import Connection, QueueShape, Role, StopReason, WireShape
from cqrepl.protocol import events as ev
from cqrepl.protocol.connection import PAYLOAD_MAX
from cqrepl.queue import Appender, LayoutMismatch, NotAQueue, Queue, QueueError, QueueLayout, Tailer
from cqrepl.queue.batch import ExcerptBatch
from cqrepl.queue.rollcycle import RollCycle, by_name

OUT_BYTES: Final = 256 * 1024
# a peer may ask for any index layout within these; beyond, one store file would fill a disk
_INDEX_COUNT: Final = range(8, 128 * 1024 + 1)
_INDEX_SPACING: Final = range(1, 16 * 1024 * 1024 + 1)
_logger = logging.getLogger(__name__)


class SinkQueue:
    """One queue of a sink, over all connections."""

    def __init__(self, name: str, path: Path, roll_cycle: RollCycle) -> None:
        self.name = name
        self.path = path
        self.owner: SinkSession | None = None
        self.stop: Stop | None = None
        self.received_excerpts = self.received_bytes = 0
        self._roll_cycle = roll_cycle
        self._queue: Queue | None = None
        self._appender: Appender | None = None
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            self._open(None)

    @property
    def queue(self) -> Queue:
        assert self._queue is not None
        return self._queue

    @property
    def appender(self) -> Appender:
        assert self._appender is not None
        return self._appender

    @property
    def shape(self) -> QueueShape:
        layout = self.queue.layout
        return QueueShape(
            roll_cycle=layout.roll_cycle.name,
            epoch=layout.epoch,
            index_count=layout.index_count,
            index_spacing=layout.index_spacing,
        )

    def prepare(self, offer: QueueShape | None, source_id: int) -> None:
        """Opens the queue, makes it like the source's if there is none, and checks that it is
        alike.

        Raises:
            LayoutMismatch: it exists and is not like the source's, or nothing like it can be made.
            QueueLocked: another process has the append lock.
        """
        if self._queue is None:
            self._open(self._layout(offer, source_id))
        if offer is not None and offer != self.shape:
            raise LayoutMismatch(
                f"the source's queue has {offer}, this one {self.shape}", path=self.path
            )

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = self._appender = None

    def _open(self, create: QueueLayout | None) -> None:
        if create is None and self.path.is_dir() and not _looks_like_queue(self.path):
            raise NotAQueue("a queue or an empty directory expected", path=self.path)
        queue = Queue.open_for_append(self.path, create=create)
        try:
            queue.append_lock.acquire()
            self._appender = queue.appender()
        except BaseException:
            queue.close()
            raise
        self._queue = queue

    def _layout(self, offer: QueueShape | None, source_id: int) -> QueueLayout:
        if offer is None:
            return QueueLayout.of(self._roll_cycle)
        count, spacing = offer.index_count, offer.index_spacing
        if (
            count not in _INDEX_COUNT
            or spacing not in _INDEX_SPACING
            or count & (count - 1)
            or spacing & (spacing - 1)
        ):
            raise LayoutMismatch(f"index {count}/{spacing} cannot be made here", path=self.path)
        try:
            roll_cycle = by_name(offer.roll_cycle)
        except ValueError as error:
            raise LayoutMismatch(str(error), path=self.path) from error
        return QueueLayout(
            roll_cycle=roll_cycle,
            epoch=offer.epoch,
            index_count=count,
            index_spacing=spacing,
            source_id=source_id,
        )


def _looks_like_queue(path: Path) -> bool:
    return any(each.suffix in (".cq4", ".cq4t") for each in path.iterdir())


class Sink:
    """A running sink; made by `serve_sink`."""

    def __init__(self, queues: list[SinkQueue], settings: Settings) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.changed = Signal()
        self.endpoint = Endpoint(settings, frozenset(self.queues), self._make_session)

    @property
    def port(self) -> int | None:
        """The port listened on; None for a sink that dials."""
        return self.endpoint.port

    @property
    def stops(self) -> list[Stop]:
        """The queues that have stopped."""
        return [queue.stop for queue in self.queues.values() if queue.stop is not None]

    async def wait_ended(self) -> None:
        """Returns when a source has ended in order."""
        await self.endpoint.ended_orderly.wait()

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped."""
        await until(lambda: len(self.stops) == len(self.queues), self.changed)

    def _make_session(self, connection: Connection, pump: Pump) -> "SinkSession":
        return SinkSession(self, connection, pump)


class SinkSession:
    """A sink's work on one connection."""

    def __init__(self, sink: Sink, connection: Connection, pump: Pump) -> None:
        self.out_bytes = OUT_BYTES
        self.is_settled = True  # whatever was received has been acted on when anybody asks
        self.polls = False
        self._sink = sink
        self._connection = connection
        self._pump = pump
        self._back_copies: dict[int, Tailer] = {}
        self._batch: ExcerptBatch | None = None
        self._start = 0
        self._is_draining = False

    def drain(self) -> None:
        self._is_draining = True

    async def act(self, event: ev.Event) -> None:
        match event:
            case ev.QueueOffered():
                await self._answer(event)
            case ev.BackCopyWanted():
                self._begin_back_copy(event)
            case ev.AppendExcerpts() | ev.CompareExcerpts():
                await self._store(event)
            case ev.QueueStopped():
                self._stopped(event.name, event.reason, event.message)

    def frame(self, out: bytearray) -> int:
        """Frames of the back copies, one queue after the other."""
        for cid, tailer in list(self._back_copies.items()):
            filled = 0 if self._is_draining else self._frame_queue(cid, tailer, out)
            if filled or self._batch is not None:
                return filled
        return 0

    async def close(self) -> None:
        for tailer in self._back_copies.values():
            tailer.close()
        for queue in self._sink.queues.values():
            if queue.owner is self:
                queue.owner = None
        self._sink.changed.set()

    async def _answer(self, event: ev.QueueOffered) -> None:
        queue = self._sink.queues[event.name]
        if queue.owner is not None or queue.stop is not None:
            why = "it takes from another source" if queue.stop is None else "it has stopped"
            self._connection.stop_queue(event.cid, StopReason.REFUSED, why)
            return
        queue.owner = self
        offer = event.offer
        try:
            await trio.to_thread.run_sync(queue.prepare, offer.shape, offer.source_id)
        except (QueueError, OSError) as error:
            self._stop(event.cid, event.name, error)
            return
        shift = queue.queue.layout.roll_cycle.shift
        self._connection.answer_queue(event.cid, queue.appender.next_index, shift, queue.shape)

    def _begin_back_copy(self, event: ev.BackCopyWanted) -> None:
        queue = self._sink.queues[event.name]
        _logger.info("%s: queue %r: back copy", self._pump.label, event.name)
        try:
            self._back_copies[event.cid] = queue.queue.tailer(event.index_first)
        except QueueError as error:
            self._stop(event.cid, event.name, error)

    def _frame_queue(self, cid: int, tailer: Tailer, out: bytearray) -> int:
        if self._batch is None:
            self._start = 0
            self._batch = tailer.next_batch(payload_max=self._connection.config.payload_max)
        if self._batch is None:
            del self._back_copies[cid]
            tailer.close()
            self._connection.end_back_copy(cid)
            return 0
        # the nano time is the writer's, and only the sink's own acknowledgements echo it
        count, filled = self._connection.frame_excerpts(cid, self._batch, self._start, 0, out, 0)
        if not count:
            self.out_bytes = self._connection.frame_size(cid, self._batch.lengths[self._start])
            return 0
        self.out_bytes = OUT_BYTES
        self._start += count
        if self._start == len(self._batch):
            self._batch = None
        return filled

    async def _store(self, event: ev.AppendExcerpts | ev.CompareExcerpts) -> None:
        queue = self._sink.queues[event.name]
        batch = event.batch
        if queue.stop is not None:
            return
        try:
            if isinstance(event, ev.CompareExcerpts):
                queue.appender.compare(batch)
            else:
                if queue.appender.space_needed(batch):
                    await trio.to_thread.run_sync(queue.appender.reserve, batch)
                queue.appender.append_at(batch)
        except QueueError as error:
            self._stop(event.cid, event.name, error)
            return
        except OSError as error:
            # no space, most likely: nothing of it is acknowledged, and it is tried again later
            _logger.error("%s: queue %r: %s", self._pump.label, event.name, error)
            self._pump.fail(f"queue {event.name!r}: {error}")
            return
        queue.received_excerpts += len(batch)
        queue.received_bytes += batch.payload_bytes
        self._connection.stored(event.cid, batch.index_last, event.ns)

    def _stop(self, cid: int, name: str, error: QueueError | OSError) -> None:
        reason = reason_of(error) if isinstance(error, QueueError) else StopReason.FAILED
        self._stopped(name, reason, str(error))
        self._connection.stop_queue(cid, reason, str(error))

    def _stopped(self, name: str, reason: StopReason, message: str) -> None:
        queue = self._sink.queues[name]
        if queue.owner is not self or queue.stop is not None:
            return  # refused for this connection only, or known
        queue.stop = Stop(name=name, reason=reason, message=message)
        _logger.error("%s: %s", self._pump.label, queue.stop)
        self._sink.changed.set()


@asynccontextmanager
async def serve_sink(
    queues: Mapping[str, Path | str] | Iterable[Path | str],
    *,
    listen: str | None = None,
    connect: str | None = None,
    host_id: int = 2,
    remote_ids: Iterable[int] = (),
    roll_cycle: str = "FAST_DAILY",
    heartbeat_interval_ms: int = 20_000,
    heartbeat_timeout_ms: int = 40_000,
    payload_max: int = PAYLOAD_MAX,
    wire_shape: WireShape = WireShape.NETWORK,
    gives_up: bool = False,
) -> AsyncIterator[Sink]:
    """Takes in queues from sources for the length of an `async with` block, then ends in order.

    Args:
        queues: directories, or a mapping from the name on the wire to the directory. One that is
            not there is made when a source offers it, like the source's.
        listen: `HOST:PORT`; port 0 lets the system choose, see `Sink.port`.
        connect: `HOST:PORT` of a listening source. Exactly one of the two is given.
        remote_ids: host ids that are accepted; any but our own when empty. One that dials expects
            the first, 1 when there is none.
        roll_cycle: of a new queue whose source does not say its own, as Java's do not.
        payload_max: longest excerpt in bytes that is taken.
        gives_up: one that dials stops after 30 s without success.

    Raises:
        QueueError: a directory holds something else, or another process holds its append lock.
        Unreachable: the port cannot be listened on, or the peer was not reached.
        ValueError: arguments that do not fit together.
    """
    settings = Settings.checked(
        Role.SINK,
        listen=listen,
        connect=connect,
        host_id=host_id,
        remote_ids=remote_ids,
        remote_id_default=1,
        heartbeat_interval_ms=heartbeat_interval_ms,
        heartbeat_timeout_ms=heartbeat_timeout_ms,
        payload_max=payload_max,
        shape=wire_shape,
        gives_up=gives_up,
    )
    cycle = by_name(roll_cycle)
    opened: list[SinkQueue] = []
    try:
        for name, path in named(queues).items():
            opened.append(SinkQueue(name, path, cycle))
        sink = Sink(opened, settings)
        async with sink.endpoint.running():
            yield sink
    finally:
        for queue in opened:
            queue.close()
