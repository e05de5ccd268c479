"""A host with queues in both directions: some it streams, others it takes in, on one connection."""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from cqrepl.net.endpoint import Endpoint
from cqrepl.net.errors import Refused
from cqrepl.net.link import Session
from cqrepl.net.program import Program
from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection
from cqrepl.queue.quarantine import Quarantine
from cqrepl.replicator.duplexsession import DuplexSession
from cqrepl.replicator.logs import named_logs
from cqrepl.replicator.lostfiles import LostFiles
from cqrepl.replicator.queues import check_apart, named
from cqrepl.replicator.settings import HostSettings
from cqrepl.replicator.sink import Sink, open_sinks
from cqrepl.replicator.source import Source, open_source
from cqrepl.replicator.stops import Stop
from cqrepl.replicator.syncer import Syncer

SHOWN_MAX: Final = 10  # names of queues, of an error


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

    async def pause(self, name: str) -> None:
        """Stops one queue by hand, until `resume` or the end: its peers are told.

        Raises:
            ValueError: there is no such queue.
            Refused: it has stopped.
        """
        self._check_name(name)
        stopped = [each for each in self.stops if each.name == name and each.host_id is None]
        if stopped:
            raise Refused(str(stopped[0]))
        if name in self.sink.queues:
            self.sink.pause(name)
        else:
            await self.source.pause(name)

    async def resume(self, name: str) -> None:
        """Has a queue go on that was paused by hand, or has stopped: then all that both sides hold
        is compared again, as after a restart. A stop of the other side's is ended there.

        Raises:
            ValueError: there is no such queue.
        """
        self._check_name(name)
        if name in self.sink.queues:
            await self.sink.resume(name)
        else:
            self.source.resume(name)

    def forget(self, host_id: int) -> list[str]:
        """A sink that is not to come again holds no store files any more; names of the queues that
        it was known for.

        Raises:
            ValueError: none of them knows it.
            Refused: it is connected.
            OSError, QueueError: it cannot be written that it is forgotten.
        """
        if host_id in self.endpoint.connections:
            raise Refused(f"host {host_id} is connected")
        queues = self.source.queues.values()
        known = sorted({each for queue in queues for each in queue.marks})
        names = [queue.name for queue in queues if queue.forget(host_id)]
        if not names:
            ids = ", ".join(map(str, known)) or "none"
            raise ValueError(f"a known host expected to be forgotten ({ids}), {host_id} came")
        return names

    def differs_at(self, name: str) -> int:
        """The index that a queue which is taken in has stopped at, as its source holds something
        else there.

        Raises:
            ValueError: there is no such queue.
            Refused: it is streamed from here, or has not diverged at an index that is known.
        """
        self._check_name(name)
        if name not in self.sink.queues:
            raise Refused(f"queue {name!r} is streamed from here: its copies can be put aside")
        queue = self.sink.queues[name]
        if queue.stop is None or queue.differs_at is None:
            raise Refused(f"queue {name!r} has not stopped as diverged at an index that is known")
        return queue.differs_at

    async def quarantine(self, name: str) -> Quarantine:
        """What a queue that is taken in holds otherwise than its source goes to quarantine, and
        comes again; what has gone.

        Raises:
            ValueError, Refused: as `differs_at`.
            QueueError, OSError: that cannot be done; the queue stays stopped.
        """
        return await self.sink.quarantine(name, self.differs_at(name))

    def _check_name(self, name: str) -> None:
        if name in self.source.late:
            raise Refused(f"queue {name!r} is not open yet: {self.source.late[name].message}")
        known = sorted(self.source.queues.keys() | self.sink.queues.keys())
        if name not in known:
            shown = ", ".join(known[:SHOWN_MAX]) + (", ..." if len(known) > SHOWN_MAX else "")
            raise ValueError(f"one of the queues {shown} expected, {name!r} came")

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
