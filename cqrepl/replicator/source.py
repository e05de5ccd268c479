"""The source: tails queues and streams them to every sink that connects.

Each connection has its own tailers and its own window, so a slow sink holds up no other. A source
queue is opened for reading; the marks of what was sent and acknowledged are raised in its table
store. Only while a sink copies back is the queue written, and locked for every other writer.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from cqrepl.net.endpoint import Endpoint, Settings
from cqrepl.net.pump import Pump
from cqrepl.protocol import PAYLOAD_MAX, Connection, Role, WireShape
from cqrepl.replicator.logs import log_paths
from cqrepl.replicator.queues import named, until
from cqrepl.replicator.sourcequeue import SourceQueue, SourceShared
from cqrepl.replicator.sourcesession import SourceSession
from cqrepl.replicator.stops import Stop


class Source:
    """A running source; made by `serve_source`."""

    def __init__(self, queues: list[SourceQueue], settings: Settings, *, asks_ack: bool) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self._shared = SourceShared(asks_ack=asks_ack)
        self.endpoint = Endpoint(settings, frozenset(self.queues), self._make_session)

    @property
    def port(self) -> int | None:
        """The port listened on; None for a source that dials."""
        return self.endpoint.port

    @property
    def stops(self) -> list[Stop]:
        """Queues that have stopped on some connection."""
        return self._shared.stops

    async def wait_acked(self, index: int, queue: str | None = None) -> None:
        """Returns when some sink has acknowledged everything up to `index`.

        Args:
            queue: name of the queue; may be left out when there is one.
        """
        each = self._only(queue)
        with each.awaiting(index):
            for session in self._sessions():
                session.look_for_awaited()
            await until(lambda: each.acknowledged >= index, self._shared.changed)

    async def wait_caught_up(self) -> None:
        """Returns when one sink has acknowledged all that was in the queues at the start."""
        await until(lambda: any(s.is_caught_up for s in self._sessions()), self._shared.changed)

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped on every connection there is."""
        await until(self._has_stopped, self._shared.changed)

    def _has_stopped(self) -> bool:
        sessions = [s for s in self._sessions() if s.has_offered]
        return bool(sessions) and all(s.has_stopped for s in sessions)

    def _sessions(self) -> Iterable[SourceSession]:
        return (s for s in self.endpoint.sessions if isinstance(s, SourceSession))

    def _only(self, name: str | None) -> SourceQueue:
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        if name is None or name not in self.queues:
            raise ValueError(f"one of the queues {sorted(self.queues)} expected, {name!r} came")
        return self.queues[name]

    def _make_session(self, connection: Connection, pump: Pump) -> SourceSession:
        return SourceSession(self.queues, self._shared, connection, pump)


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
    pauser: str = "balanced",
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
        pauser: how to wait for the next excerpt. `busy` never sleeps and keeps a core for each
            sink; `balanced` sleeps microseconds while excerpts come; `sleepy` milliseconds.

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
        pauser=pauser,
    )
    paths = named(queues)
    with ExitStack() as stack:
        opened = []
        for name, log in log_paths(ack_log, paths).items():
            opened.append(SourceQueue(name, paths[name], log))
            stack.callback(opened[-1].close)
        source = Source(opened, settings, asks_ack=acknowledge)
        async with source.endpoint.running():
            yield source
