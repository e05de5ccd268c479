"""The sink: takes queues from sources and appends every excerpt at exactly the index it had there.

A sink owns its queues: it holds their append locks, so no other writer can get in between
(`sinkqueue`: from when). An acknowledgement goes out when the excerpts are in the mapped file with
their headers published: what was acknowledged survives the death of any process. A queue takes from
one connection at a time.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Set
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Unpack

import trio

from cqrepl.kernel.memory import page_populator
from cqrepl.net.endpoint import Endpoint
from cqrepl.net.eventloop import check_in_trio
from cqrepl.net.program import Program, programs_of
from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol.queuelife import CopyMove, Reason
from cqrepl.queue import QueueError
from cqrepl.queue.files import atomics
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.quarantine import Quarantine, quarantine
from cqrepl.queue.write.pretoucher import usual_ahead_bytes
from cqrepl.replicator.agreement.lineage import warn_without_proof
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.hostroles import check_known
from cqrepl.replicator.incoming.copylevels import note_applied
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.incoming.sinksession import SinkSession
from cqrepl.replicator.lostcycles.lostfiles import LostFiles
from cqrepl.replicator.queuestate.appendfence import AppendFence
from cqrepl.replicator.queuestate.descriptors import spare_descriptors
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.queuestate.logs import log_paths, named_logs
from cqrepl.replicator.queuestate.queues import (
    BY_HAND,
    IS_REMOVED,
    Signal,
    check_apart,
    named,
    turning,
    until,
    until_stuck,
)
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.queuestate.unopened import Unopened, check_any_is_left
from cqrepl.replicator.rolewatchers import RoleWatchers
from cqrepl.replicator.settings import HostOptions, SinkSettings, host_settings

ON_DIVERGENCE: Final = ("stop", "quarantine")
_logger = logging.getLogger(__name__)


class Sink:
    """A running sink; made by `serve_sink`."""

    endpoint: Endpoint  # of the host that runs it
    _lost_files: LostFiles  # of that host

    def __init__(self, queues: list[SinkQueue], opener: "SinkOpener") -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.role_watchers = RoleWatchers()
        self.takes = set(self.queues)  # names; those of queues that were removed, too
        self._opener = opener
        self.changed = Signal()
        self._token: trio.lowlevel.TrioToken | None = None  # of the event loop, once it is needed

    @property
    def port(self) -> int | None:
        """The port listened on; None for a sink that dials."""
        return self.endpoint.port

    @property
    def names(self) -> Set[str]:
        """The queues."""
        return self.queues.keys()

    @property
    def stops(self) -> list[Stop]:
        """The queues that have stopped, and those that a source has stopped."""
        found = (queue.life.end for queue in self.queues.values())
        return [stop for stop in found if stop is not None]

    def applied(self, index: int, queue: str | None = None) -> None:
        """A program here has taken everything up to `index`: the source is told, and what waits
        there for `applied` goes on. From any thread.

        Args:
            queue: name of the queue; may be left out when there is one.

        Raises:
            ValueError: no queue of this name.
        """
        if queue is None and len(self.queues) == 1:
            (queue,) = self.queues
        note_applied(self.queues[check_known(queue, self.queues.keys())], index, self._soon)

    def _soon(self, call: Callable[[], None]) -> None:
        """Has the event loop call it; at once where this is the event loop."""
        assert self._token is not None  # some session has a queue
        try:
            is_here = trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:  # no loop of trio runs in this thread
            is_here = False
        if is_here:
            call()
        else:
            with suppress(trio.RunFinishedError):  # the event loop has ended
                self._token.run_sync_soon(call)

    async def wait_ended(self) -> None:
        """Returns when a source has ended in order, and no host gives what a queue has lost."""
        await self.endpoint.ended_orderly.wait()
        await until(lambda: not self._lost_files.is_taking, self.changed)

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped for good: no source could get it any further."""
        await until(lambda: self.has_stopped, self.changed)

    @property
    def has_stopped(self) -> bool:
        """True while `wait_stopped` would return at once."""
        is_over = all(queue.life.stop for queue in self.queues.values())
        return is_over and not self._lost_files.is_taking

    async def wait_stuck(self) -> None:
        """Returns when no queue gets any further from the sources that are connected, whichever
        side has stopped it. A queue that no source names for `STUCK_SECONDS` counts as refused. One
        that this machine keeps from going on for so long counts as stopped."""
        await until_stuck(self._untaken, self.changed)
        self.give_up_paused()
        for name in (self._untaken() or set()) - self._damaged():
            self._refuse(self.queues[name])

    def give_up_unnamed(self) -> None:
        """Sources have named what they have, and never this: it lacks everything."""
        for queue in self.queues.values():
            if queue.was_left_out and not queue.was_offered and queue.life.stop is None:
                self._refuse(queue)

    def _refuse(self, queue: SinkQueue) -> None:
        message = "no source that is connected has a queue of this name"
        queue.end(Stop(name=queue.name, reason=StopReason.REFUSED, message=message))

    def give_up_paused(self) -> None:
        """Stops the queues that this machine keeps from going on: they may lack what their sources
        have."""
        for queue in self.queues.values():
            trouble = queue.life.trouble
            if trouble is not None:
                queue.end(trouble)

    def _damaged(self) -> Set[str]:
        """The queues that have stopped over damage of ours: it may yet be mended."""
        stops = [queue.life.stop for queue in self.queues.values()]
        return {stop.name for stop in stops if stop and stop.reason is StopReason.DAMAGED}

    def _untaken(self) -> Set[str] | None:
        """The queues that no source has, that nothing gets through to, or that are damaged; None
        while one gets further, or while there is no source."""
        ended = {name for name, queue in self.queues.items() if queue.life.end}
        paused = {name for name, queue in self.queues.items() if queue.life.trouble}
        untaken = self.queues.keys() - ended - paused
        sessions = list(self._sessions())
        if (not sessions and untaken) or self._lost_files.is_mending:
            return None
        for session in sessions:
            untaken &= session.from_here.unoffered
        untaken |= paused | self._damaged()
        return None if self.queues.keys() - ended - untaken else untaken

    def watch_over(self, lost: LostFiles) -> None:
        """Has it told of queues that are damaged."""
        self._lost_files = lost
        for name, queue in self.queues.items():
            queue.tell_damage = partial(lost.note, name)

    def restored(self, name: str) -> None:
        """The store files that a queue had lost are there again: it goes on."""
        queue = self.queues.get(name)
        if queue is not None and queue.life.stop is not None:
            queue.life.move(CopyMove.BEGIN_ANEW)
            for session in list(self._sessions()):
                session.begin_anew(name)

    def start_without(self, unopened: Iterable[Unopened]) -> None:
        """Goes on without what could not be opened at the start."""
        for each in unopened:
            _start_without(self.queues[each.name])

    async def pause(self, name: str) -> None:
        """Takes nothing more of a queue, and tells its source so; its files stay locked."""
        await self._hold(self.queues[name], BY_HAND)

    async def resume(self, name: str) -> None:
        """Takes it again. One that has stopped is opened and compared as after a restart.

        Raises:
            QueueError, OSError: it could not be opened before, and cannot be now; it stays stopped.
        """
        queue = self.queues[name]
        if queue.life.end is not None:
            await self._hold(queue, BY_HAND)
            await until(lambda: not self._is_used(queue), self.changed)
            was_unopened = queue.error_at_start is not None
            queue.begin_anew()
            if was_unopened:
                try:
                    await in_thread(queue.open_again)
                except (QueueError, OSError):
                    _start_without(queue)
                    self._take(queue)
                    raise
        self._take(queue)

    async def quarantine(self, name: str, start: int) -> Quarantine:
        """Puts aside what a queue that has stopped holds from an index on, and takes it again.

        Raises:
            QueueError, OSError: it cannot be put aside; the queue stays stopped.
        """
        queue = self.queues[name]
        await self._hold(queue, BY_HAND)
        try:
            await until(
                lambda: not self._is_used(queue) and not queue.way.is_passed_on, self.changed
            )
            queue.rest()
            gone = await in_thread(partial(quarantine, queue.path, start))
        except BaseException:
            queue.life.hold.set(None)
            raise
        queue.begin_anew()
        self._take(queue)
        return gone

    async def promise(
        self, name: str, number: int, host_id: int, members: frozenset[int] = frozenset()
    ) -> None:
        """Takes a queue from the host alone that leads in an epoch, or a later one. Nothing of it
        gets in any more from another one when this returns, and it is on the disk that it does not.

        Raises:
            QueueError, OSError: that cannot be kept; it is taken as before.
        """
        queue = self.queues[name]
        held = queue.life.hold.reason
        await self._hold(queue, turning(host_id, number))
        try:
            await until(lambda: not self._is_used(queue), self.changed)
            await in_thread(partial(queue.epochs.promise, number, host_id, members))
            queue.master_id = host_id
            self.role_watchers.look(name)
        finally:
            if held is None:
                self._take(queue)
            else:
                queue.life.hold.set(held)

    def _take(self, queue: SinkQueue) -> None:
        queue.life.hold.set(None)
        for session in list(self._sessions()):
            session.take(queue)
        self.changed.set()

    def place_logs(self, names: Iterable[str]) -> None:
        """Queues that are opened from now on log beside these."""
        self._opener.place_logs(names)

    def open(
        self,
        name: str,
        path: Path,
        epochs: KeptEpochs | None = None,
        fence: AppendFence | None = None,
    ) -> SinkQueue:
        """Opens or prepares a queue that is to be taken in too.

        Args:
            epochs: its own, where they are known already.
            fence: that keeps writers out of it until it is open.

        Raises:
            QueueError, OSError: as `open_sinks`.
        """
        with spare_descriptors():
            queue = self._opener.open(name, path, epochs, fence)
        if queue.error_at_start is not None:
            self._opener.close_at_once(queue)
            raise queue.error_at_start
        return queue

    async def take_in_again(
        self, name: str, path: Path, epochs: KeptEpochs, fence: AppendFence | None = None
    ) -> SinkQueue:
        """Takes in a queue that was open in this host until now, and keeps all other writers out.
        Where it cannot be opened, or locked, it pauses, and is opened when it is offered next.

        Args:
            epochs: its own.
            fence: that keeps writers out of it until it is open.
        """
        with spare_descriptors():
            queue = self._opener.open(name, path, epochs, fence)
        if queue.is_open:
            try:
                await in_thread(queue.lock)
            except (QueueError, OSError) as error:
                queue.open_later(error)
        if queue.error_at_start is not None:
            _pause(queue)
        self.add(queue)
        return queue

    def add(self, queue: SinkQueue) -> None:
        """Takes it in from now on."""
        self.queues[queue.name] = queue
        self.takes.add(queue.name)
        queue.tell_damage = partial(self._lost_files.note, queue.name)
        self.role_watchers.look(queue.name)
        self._take(queue)

    async def drop(self, queue: SinkQueue) -> None:
        """Closes a queue that was opened, and is not taken in."""
        await self._opener.close(queue)

    async def remove(self, name: str) -> None:
        """Takes it in no more; it is closed, and its lock given back, once nothing uses it."""
        queue = self.queues[name]
        await self._hold(queue, IS_REMOVED)
        await until(lambda: not self._is_used(queue), self.changed)
        del self.queues[name]
        for session in self._sessions():
            session.from_here.look_again()
        await self._opener.close(queue)
        self.changed.set()

    async def follow(self, name: str, master_id: int | None) -> None:
        """Takes a queue from another host than before."""
        queue = self.queues[name]
        queue.master_id = master_id
        self.role_watchers.look(name)
        for session in list(self._sessions()):
            session.from_here.look_again()
            refusal = session.from_here.refusal(queue)
            if refusal is None:
                session.take(queue)
            else:
                await session.let_go(name, refusal)
                session.from_here.tell_not_taken(name)
        self.changed.set()

    def change(self, settings: SinkSettings) -> None:
        """Other limits, and other masters."""
        self._opener.settings = settings
        for queue in self.queues.values():
            queue.change(any_cycle=settings.any_cycle, puts_aside=settings.puts_aside)

    async def _hold(self, queue: SinkQueue, why: Reason) -> None:
        queue.life.hold.set(why)
        for session in list(self._sessions()):
            await session.let_go(queue.name, why.message)
            session.tell_free(queue)
        self.changed.set()

    def _is_used(self, queue: SinkQueue) -> bool:
        uses = any(session.uses(queue.name) for session in self._sessions())
        return uses or queue.owner is not None

    def make_session(self, connection: Connection, pump: Pump) -> SinkSession:
        """The session that works on a new connection."""
        self._token = trio.lowlevel.current_trio_token()
        return SinkSession(self.queues, self.changed, connection, pump, self._sessions)

    def _sessions(self) -> Iterable[SinkSession]:
        return sessions_of(SinkSession, self.endpoint.sessions)


class SinkOpener:
    """Opens the queues of one sink, and closes them.

    Args:
        settings: for those that are opened next.
    """

    def __init__(self, settings: SinkSettings, syncer: Syncer) -> None:
        self.settings = settings
        self._syncer = syncer
        self._open: list[SinkQueue] = []
        self._logs: dict[str, Path | None] = {}
        self._touch_ahead_bytes = _touch_ahead(settings)

    def place_logs(self, names: Iterable[str]) -> None:
        """Chooses where the logs of appended excerpts are: that depends on the number of queues."""
        self._logs = log_paths(self.settings.append_log, names)

    def open(
        self,
        name: str,
        path: Path,
        epochs: KeptEpochs | None = None,
        fence: AppendFence | None = None,
        *,
        is_late: bool = False,
    ) -> SinkQueue:
        """Opens or prepares one; see `SinkQueue`. Where that cannot be done its `error_at_start`
        says why."""
        settings = self.settings
        queue = SinkQueue(
            name,
            path,
            by_name(settings.roll_cycles.get(name, settings.roll_cycle)),
            self._touch_ahead_bytes,
            self._logs.get(name),
            self._syncer,
            any_cycle=settings.any_cycle,
            puts_aside=settings.puts_aside,
            min_free_bytes=settings.min_free_bytes,
            epochs=epochs,
            fence=fence,
            is_late=is_late,
            is_start_locked=name in settings.start_locked,
        )
        queue.master_id = settings.masters.get(name)
        if queue.epochs.are_known:
            queue.know_epochs()
        self._open.append(queue)
        return queue

    async def close(self, queue: SinkQueue) -> None:
        """Closes one, in order."""
        try:
            if queue.is_open:
                await self._syncer.settle(queue.queue)
        finally:
            self.close_at_once(queue)

    def close_at_once(self, queue: SinkQueue) -> None:
        """Closes one that nothing was appended to."""
        self._open.remove(queue)
        queue.close()

    def close_all(self) -> None:
        """Closes those that are left."""
        with ExitStack() as stack:
            for queue in self._open:
                stack.callback(queue.close)


def _touch_ahead(settings: SinkSettings) -> int:
    if settings.touch_ahead_bytes is None:
        return usual_ahead_bytes()
    if settings.touch_ahead_bytes and page_populator() is None:
        _logger.warning("nothing is touched ahead: that takes the native kernel")
    return settings.touch_ahead_bytes


def open_sinks(
    queues: Mapping[str, Path],
    settings: SinkSettings,
    syncer: Syncer,
    stack: ExitStack,
    epochs: Mapping[str, KeptEpochs] | None = None,
) -> tuple[Sink, list[Unopened]]:
    """A sink with its queues opened or prepared; `stack` closes them.

    Args:
        epochs: of the queues, where they are known already.

    Returns:
        The sink, and the queues that cannot be opened now: `start_without` takes them.

    Raises:
        AtomicsMissing: a library is missing that writing needs.
    """
    if queues:
        warn_without_proof()
    atomics.require()  # now, not when the first queue is offered
    opener = SinkOpener(settings, syncer)
    opener.place_logs(queues)
    stack.callback(opener.close_all)
    with spare_descriptors():
        known = epochs or {}
        opened = [opener.open(name, path, known.get(name)) for name, path in queues.items()]
    return Sink(opened, opener), [each for each in map(_unopened, opened) if each is not None]


def _unopened(queue: SinkQueue) -> Unopened | None:
    error = queue.error_at_start
    return None if error is None else Unopened(name=queue.name, path=queue.path, error=error)


def _start_without(queue: SinkQueue) -> None:
    """A queue could not be opened: it stops alone, or pauses and is tried again."""
    unopened = _unopened(queue)
    assert unopened is not None
    if unopened.may_pass:
        _pause(queue)
    else:
        unopened.log()
        queue.life.move(CopyMove.STOP, unopened.trouble)


def _pause(queue: SinkQueue) -> None:
    """A queue could not be opened: it is tried again when it is offered."""
    error = queue.error_at_start
    assert error is not None
    trouble = Stop.of(queue.name, error, queue.path)
    _logger.error("queue %r pauses: %s", queue.name, trouble.message)
    queue.life.move(CopyMove.PAUSE, trouble)
    queue.pause.begin(trouble.message, is_told=True)


@asynccontextmanager
async def serve_sink(
    queues: Mapping[str, Path | str] | Iterable[Path | str],
    *,
    roll_cycle: str = "FAST_DAILY",
    touch_ahead_bytes: int | None = None,
    append_log: Path | str | None = None,
    min_free_bytes: int = 0,
    any_cycle: bool = False,
    on_divergence: str = "stop",
    program: Program | None = None,
    programs: Iterable[Program] = (),
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
        min_free_bytes: where less is free on a queue's disk, it pauses until there is more; 0:
            it is not looked at.
        any_cycle: take a first index that is of a day far from this host's clock; else the queue
            stops and says by which roll cycles it would be near.
        on_divergence: what becomes of a queue that differs from its source's: `stop`, or
            `quarantine`: what it has from the first differing index on goes to a queue of its own
            below `quarantine/`, and is taken again from the source.
        program: adds handlers of its own to the connections.
        programs: several that do; instead of `program`.
        options: where and how to reach the peers: `HostOptions`.

    Raises:
        QueueError: no queue can be opened, as its directory holds something else, or another
            process holds its append lock; or a library is missing that writing needs. Of several
            queues, one that cannot be opened stops alone, and is in `stops`.
        Refused: two queues, or a queue and a log, would be kept in one directory.
        Unreachable: the port cannot be listened on, or the peer was not reached.
        ValueError: arguments that do not fit together.
        RuntimeError: not in a task of trio.
    """
    check_in_trio("cqrepl.serve_sink")
    own_programs = programs_of(program, programs)
    if on_divergence not in ON_DIVERGENCE:
        raise ValueError(f"on_divergence: one of {', '.join(ON_DIVERGENCE)} expected")
    own = SinkSettings(
        roll_cycle=roll_cycle,
        touch_ahead_bytes=touch_ahead_bytes,
        append_log=None if append_log is None else Path(append_log),
        min_free_bytes=min_free_bytes,
        any_cycle=any_cycle,
        puts_aside=on_divergence == "quarantine",
    )
    settings = host_settings(2, 1, sink=own, **options)
    paths = named(queues)
    check_apart({}, paths, named_logs(None, (), own.append_log, paths))
    with ExitStack() as stack:
        syncer = Syncer(settings.scrub_bytes_per_s)
        sink, unopened = open_sinks(paths, own, syncer, stack)
        check_any_is_left(unopened, len(paths))
        sink.start_without(unopened)
        lost = LostFiles(paths, sink.restored, sink.changed.set)
        sink.watch_over(lost)
        endpoint = Endpoint(
            settings.net, settings.protocol, sink.takes, sink.make_session, [lost, *own_programs]
        )
        sink.endpoint = endpoint
        async with syncer.running(), lost.running(), endpoint.running():
            yield sink
