"""A host with queues in both directions: some it streams, others it takes in, on one connection."""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from cqrepl.net.endpoint import Endpoint
from cqrepl.net.link import Session
from cqrepl.net.program import Program
from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection
from cqrepl.replicator.duplexsession import DuplexSession
from cqrepl.replicator.logs import named_logs
from cqrepl.replicator.lostfiles import LostFiles
from cqrepl.replicator.queues import check_apart, named
from cqrepl.replicator.settings import HostSettings
from cqrepl.replicator.sink import Sink, open_sinks
from cqrepl.replicator.source import Source, open_source
from cqrepl.replicator.stops import Stop
from cqrepl.replicator.syncer import Syncer


class Host:
    """A running host; made by `serve_host`. Its two halves are as `serve_source` and `serve_sink`
    give them."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        settings: HostSettings,
        program: Program | None,
    ) -> None:
        self.source = source
        self.sink = sink
        self.endpoint = Endpoint(
            settings.net,
            settings.protocol,
            frozenset(sink.queues),
            self._make_session,
            program,
        )
        source.endpoint = sink.endpoint = self.endpoint

    @property
    def port(self) -> int | None:
        """The port listened on; None for a host that only dials."""
        return self.endpoint.port

    @property
    def stops(self) -> list[Stop]:
        """The queues that have stopped, whichever way they go."""
        return [*self.source.stops, *self.sink.stops]

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped, as `wait_stopped` of the two halves has it."""
        while True:
            if self.source.names:
                await self.source.wait_stopped()
            if self.sink.queues:
                await self.sink.wait_stopped()
            if not self.source.names or self.source.has_stopped:  # and not gone on meanwhile
                return

    def _make_session(self, connection: Connection, pump: Pump) -> Session:
        if not self.sink.queues and self.source.names:
            return self.source.make_session(connection, pump)
        if not self.source.names and self.sink.queues:
            return self.sink.make_session(connection, pump)
        return DuplexSession(
            self.source.make_session(connection, pump), self.sink.make_session(connection, pump)
        )


@asynccontextmanager
async def serve_host(
    settings: HostSettings,
    *,
    sources: Mapping[str, Path | str],
    sinks: Mapping[str, Path | str],
    program: Program | None = None,
) -> AsyncIterator[Host]:
    """Streams some queues and takes in others for the length of an `async with` block.

    Both go over one connection with each peer, which then runs without native pumps: right, and
    slower than one that goes one way. A host has one connection with each of its peers, whichever
    of the two has dialled (`NetSettings.peers`); of two the newer one stays.

    Args:
        sources: name on the wire and directory of each queue that is streamed.
        sinks: the same of each that is taken in.
        program: adds handlers of its own to the connections.

    A guest (`ProtocolSettings.guest`) has no queues: its program registers what takes guests.

    Raises:
        QueueError: a directory holds no queue, or one that another process writes.
        Refused: a directory would be for two queues, or for a queue and a log.
        Unreachable: the port cannot be listened on, or the peer was not reached.
        ValueError: a queue that goes both ways, or names that cannot be used.
    """
    both = sorted(sources.keys() & sinks.keys())
    if both:
        raise ValueError(f"a queue goes one way: {', '.join(map(repr, both))} is to go both")
    paths: dict[str, Path | str] = dict(sources)
    paths.update(sinks)
    if paths and settings.protocol.guest:
        raise ValueError("a guest has no queues, only handlers of its program")
    if not paths and program is None:
        raise ValueError("at least one queue or a program expected, none came")
    names = named(paths) if paths else {}
    from_here = {each: names[each] for each in sources}
    to_here = {each: names[each] for each in sinks}
    logs = named_logs(settings.source.ack_log, from_here, settings.sink.append_log, to_here)
    check_apart(from_here, to_here, logs)
    with ExitStack() as stack:
        syncer = Syncer(settings.scrub_bytes_per_s)
        source = open_source(from_here, settings.source, syncer, stack)
        sink = Sink(open_sinks(to_here, settings.sink, syncer, stack))

        def restored(name: str) -> None:
            source.restored(name)
            sink.restored(name)

        def look() -> None:
            source.look()
            sink.changed.set()

        if not names:  # a guest has nothing to give, or to lose
            host = Host(source, sink, settings, program)
            async with host.endpoint.running():
                yield host
            return
        lost = LostFiles(names, program, restored, look)
        source.watch_over(lost)
        sink.watch_over(lost)
        host = Host(source, sink, settings, lost)
        async with syncer.running(), lost.running(), host.endpoint.running(), source.running():
            yield host
