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

from cqrepl.kernel.memory import page_populator
from cqrepl.net.endpoint import Endpoint, Settings
from cqrepl.net.pump import Pump
from cqrepl.protocol import PAYLOAD_MAX, Connection, Role, WireShape
from cqrepl.queue.files import atomics
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.write.pretoucher import usual_ahead_bytes
from cqrepl.replicator.logs import log_paths
from cqrepl.replicator.queues import Signal, named, until
from cqrepl.replicator.sinkqueue import SinkQueue
from cqrepl.replicator.sinksession import SinkSession
from cqrepl.replicator.stops import Stop

_logger = logging.getLogger(__name__)


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

    def _make_session(self, connection: Connection, pump: Pump) -> SinkSession:
        return SinkSession(self.queues, self.changed, connection, pump)


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
    touch_ahead_bytes: int | None = None,
    append_log: Path | str | None = None,
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
        touch_ahead_bytes: so many bytes of each queue's file are brought into memory ahead of the
            writer, by a thread of its own; 0 for none. By default 8 MiB where there are
            three processors. The plain kernel cannot.
        append_log: directory of a log of when excerpts were appended; one below it for each of
            several queues.

    Raises:
        QueueError: a directory holds something else, another process holds its append lock, or a
            library is missing that writing needs.
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
    if touch_ahead_bytes is None:
        touch_ahead_bytes = usual_ahead_bytes()
    elif touch_ahead_bytes and page_populator() is None:
        _logger.warning("nothing is touched ahead: that takes the native kernel")
    atomics.require()  # now, not when the first queue is offered
    opened: list[SinkQueue] = []
    try:
        paths = named(queues)
        for name, log in log_paths(append_log, paths).items():
            opened.append(SinkQueue(name, paths[name], cycle, touch_ahead_bytes, log))
        sink = Sink(opened, settings)
        async with sink.endpoint.running():
            yield sink
    finally:
        for queue in opened:
            queue.close()
