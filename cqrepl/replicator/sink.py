"""The sink: takes queues from sources and appends every excerpt at exactly the index it had there.

A sink owns its queues: it holds their append locks, so no other writer can get in between
(`sinkqueue`: from when). An acknowledgement goes out when the excerpts are in the mapped file with
their headers published: what was acknowledged survives the death of any process. A queue takes from
one connection at a time.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Unpack

from cqrepl.kernel.memory import page_populator
from cqrepl.net.endpoint import Endpoint
from cqrepl.net.program import Program
from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection, StopReason
from cqrepl.queue.files import atomics
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.write.pretoucher import usual_ahead_bytes
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.lineage import warn_without_proof
from cqrepl.replicator.logs import log_paths, named_logs
from cqrepl.replicator.queues import Signal, check_apart, named, until, until_stuck
from cqrepl.replicator.settings import HostOptions, SinkSettings, host_settings
from cqrepl.replicator.sinkqueue import SinkQueue
from cqrepl.replicator.sinksession import SinkSession
from cqrepl.replicator.stops import Stop
from cqrepl.replicator.syncer import Syncer

_logger = logging.getLogger(__name__)


class Sink:
    """A running sink; made by `serve_sink`."""

    endpoint: Endpoint  # of the host that runs it

    def __init__(self, queues: list[SinkQueue]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.changed = Signal()

    @property
    def port(self) -> int | None:
        """The port listened on; None for a sink that dials."""
        return self.endpoint.port

    @property
    def stops(self) -> list[Stop]:
        """The queues that have stopped, and those that a source has stopped."""
        found = (queue.stop or queue.left for queue in self.queues.values())
        return [stop for stop in found if stop is not None]

    async def wait_ended(self) -> None:
        """Returns when a source has ended in order."""
        await self.endpoint.ended_orderly.wait()

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped for good: no source could get it any further."""
        await until(lambda: all(queue.stop for queue in self.queues.values()), self.changed)

    async def wait_stuck(self) -> None:
        """Returns when no queue gets any further from the sources that are connected, whoever has
        stopped it. What none names for `STUCK_SECONDS` counts as refused, and what this machine
        keeps from going on for so long as stopped."""
        await until_stuck(self._untaken, self.changed)
        for name in self._untaken() or ():
            message = "no source that is connected has a queue of this name"
            refused = Stop(name=name, reason=StopReason.REFUSED, message=message)
            queue = self.queues[name]
            queue.stop = queue.pause.trouble or refused
            _logger.error("%s", queue.stop)

    def _untaken(self) -> Set[str] | None:
        """The queues that no source has, or that nothing gets through to; None while one gets
        further, or while there is no source."""
        ended = {name for name, queue in self.queues.items() if queue.stop or queue.left}
        paused = {name for name, queue in self.queues.items() if queue.pause.trouble} - ended
        untaken = self.queues.keys() - ended - paused
        sessions = list(self._sessions())
        if not sessions and untaken:
            return None
        for session in sessions:
            untaken &= session.unoffered_queues
        untaken |= paused
        return None if self.queues.keys() - ended - untaken else untaken

    def make_session(self, connection: Connection, pump: Pump) -> SinkSession:
        """What works on a new connection."""
        return SinkSession(self.queues, self.changed, connection, pump, self._sessions)

    def _sessions(self) -> Iterable[SinkSession]:
        return sessions_of(SinkSession, self.endpoint.sessions)


def open_sinks(
    queues: Mapping[str, Path], settings: SinkSettings, syncer: Syncer, stack: ExitStack
) -> list[SinkQueue]:
    """Opens or prepares queues to be taken in; `stack` closes them.

    Raises:
        QueueError: a directory holds something else, another process holds its append lock, or a
            library is missing that writing needs.
    """
    cycle = by_name(settings.roll_cycle)
    touch_ahead_bytes = settings.touch_ahead_bytes
    if touch_ahead_bytes is None:
        touch_ahead_bytes = usual_ahead_bytes()
    elif touch_ahead_bytes and page_populator() is None:
        _logger.warning("nothing is touched ahead: that takes the native kernel")
    if queues:
        warn_without_proof()
    atomics.require()  # now, not when the first queue is offered
    opened = []
    for name, log in log_paths(settings.append_log, queues).items():
        queue = SinkQueue(
            name,
            queues[name],
            cycle,
            touch_ahead_bytes,
            log,
            syncer,
            any_cycle=settings.any_cycle,
        )
        opened.append(queue)
        stack.callback(queue.close)
    return opened


@asynccontextmanager
async def serve_sink(
    queues: Mapping[str, Path | str] | Iterable[Path | str],
    *,
    roll_cycle: str = "FAST_DAILY",
    touch_ahead_bytes: int | None = None,
    append_log: Path | str | None = None,
    any_cycle: bool = False,
    program: Program | None = None,
    **options: Unpack[HostOptions],
) -> AsyncIterator[Sink]:
    """Takes in queues from sources for the length of an `async with` block, then ends in order.

    Args:
        queues: directories, or a mapping from the name on the wire to the directory. One that is
            not there is made when a source offers it, like the source's.
        roll_cycle: of a new queue whose source does not say its own, as Java's do not.
        touch_ahead_bytes: so many bytes of each queue's file are brought into memory ahead of the
            writer, by a thread of its own; 0 for none. By default 8 MiB where there are
            three processors. The plain kernel cannot.
        append_log: directory of a log of when excerpts were appended; one below it for each of
            several queues.
        any_cycle: take a first index that is of a day far from this host's clock; else the queue
            stops and says by which roll cycles it would be near.
        program: adds handlers of its own to the connections.
        options: where and how to reach the peers: `HostOptions`.

    Raises:
        QueueError: a directory holds something else, another process holds its append lock, or a
            library is missing that writing needs.
        Refused: two queues, or a queue and a log, would be kept in one directory.
        Unreachable: the port cannot be listened on, or the peer was not reached.
        ValueError: arguments that do not fit together.
    """
    own = SinkSettings(
        roll_cycle=roll_cycle,
        touch_ahead_bytes=touch_ahead_bytes,
        append_log=None if append_log is None else Path(append_log),
        any_cycle=any_cycle,
    )
    settings = host_settings(2, 1, sink=own, **options)
    paths = named(queues)
    check_apart({}, paths, named_logs(None, (), own.append_log, paths))
    with ExitStack() as stack:
        syncer = Syncer()
        sink = Sink(open_sinks(paths, own, syncer, stack))
        endpoint = Endpoint(
            settings.net, settings.protocol, frozenset(sink.queues), sink.make_session, program
        )
        sink.endpoint = endpoint
        async with syncer.running(), endpoint.running():
            yield sink
