"""The source: tails queues and streams them to every sink that connects.

Each connection has its own tailers and its own window, so a slow sink holds up no other. A source
queue is opened for reading; the marks of what was sent and acknowledged are raised in its table
store. Only while a sink copies back is the queue written, and locked for every other writer.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Set
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Unpack

import trio

from cqrepl.net.endpoint import Endpoint
from cqrepl.net.eventloop import check_in_trio
from cqrepl.net.program import Program, programs_of
from cqrepl.net.pump import Pump
from cqrepl.net.ticks import next_tick
from cqrepl.protocol import AckPolicy, Connection, StopReason
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.queuelife import Reason, ReasonKind
from cqrepl.queue import QueueError
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.replicator.agreement.consent import (
    RETURN_EXCERPTS_MAX,
    RETURN_SECONDS_MAX,
    ReturnSettings,
)
from cqrepl.replicator.agreement.lineage import warn_without_proof
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.leadership import AckOutcome, Leading
from cqrepl.replicator.lostcycles.lostfiles import LostFiles
from cqrepl.replicator.marks.ackboard import AckBoard
from cqrepl.replicator.outgoing.commitwatch import CommitWatch
from cqrepl.replicator.outgoing.latequeues import LateQueues, Told
from cqrepl.replicator.outgoing.lineagedesk import AUDIT_SECONDS
from cqrepl.replicator.outgoing.sinkprogress import SinkProgress
from cqrepl.replicator.outgoing.sourceopener import SourceOpener
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.outgoing.sourceshared import SourceShared
from cqrepl.replicator.outgoing.toldtailers import TailerLooks
from cqrepl.replicator.queuestate.descriptors import spare_descriptors
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.queuestate.logs import named_logs
from cqrepl.replicator.queuestate.queues import (
    BY_HAND,
    REMOVED,
    Signal,
    check_apart,
    named,
    until,
    until_stuck,
)
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.queuestate.unopened import Unopened, check_any_is_left
from cqrepl.replicator.rolewatchers import RoleWatchers
from cqrepl.replicator.settings import (
    HostOptions,
    SourceSettings,
    host_settings,
)
from cqrepl.surroundings import surroundings

TAILERS_MOVE_SECONDS: Final = 0.1  # between two looks at named tailers while one moves
TAILERS_REST_SECONDS: Final = 1.0  # and while none does
STOPS_PAUSE_SECONDS: Final = 0.05  # while a queue has stopped for one sink, and goes on for another


class Source:
    """A running source; made by `serve_source`."""

    endpoint: Endpoint  # of the host that runs it
    _lost_files: LostFiles  # of that host

    def __init__(
        self,
        queues: list[SourceQueue],
        late: LateQueues,
        opener: "SourceOpener",
    ) -> None:
        settings, bell = opener.settings, opener.bell
        self._opener = opener
        self.queues = {queue.name: queue for queue in queues}
        self._late = late
        self._bell = bell
        self._shared = SourceShared(settings, self.queues, late.troubles, bell.changed)
        self._commits = CommitWatch(self.queues, self._sessions, bell)
        self.role_watchers = RoleWatchers()
        for queue in queues:
            queue.note_stop = self._shared.note_stop
            self.role_watchers.watch(queue.leading)
        late.take, late.stop = self._take, self._stop_unopened

    @property
    def port(self) -> int | None:
        """The port listened on; None for a source that dials."""
        return self.endpoint.port

    def late_word(self, name: str) -> str:
        """The word that people see of a queue that is not open yet."""
        return self._late.word(name)

    @property
    def late(self) -> Mapping[str, Stop]:
        """Queues that are not open yet, and why."""
        return self._late.troubles

    def asks_ack(self, name: str) -> bool:
        """True when the sinks of a queue are to acknowledge."""
        return self._shared.asks_ack(name)

    @property
    def names(self) -> Set[str]:
        """The queues, with those that are not open yet."""
        return self.queues.keys() | self._late.troubles.keys()

    @property
    def changed(self) -> Signal:
        """Is set whenever something has changed that one may wait for."""
        return self._shared.changed

    @property
    def stops(self) -> list[Stop]:
        """Queues that have stopped on some connection."""
        return self._shared.stops

    async def wait_acked(
        self, index: int, queue: str | None = None, *, policy: AckPolicy | None = None
    ) -> AckOutcome:
        """Returns when everything up to `index` is safe.

        Args:
            queue: name of the queue; may be left out when there is one.
            policy: when it counts as safe, and how long that is waited for; None: as the policy
                says that the queue was given, and where it was given none, as soon as some sink has
                acknowledged it, without limit.

        Raises:
            AckUnknown: the time of the policy is over, and it says `fail`.
            WaitEnded: the queue goes no further, or no acknowledgements are asked for.
            ValueError: no queue of this name, what is no index, or a policy that counts all hosts
                and names none.
        """
        each = self._only(queue)
        leading, policy = each.leading, policy or each.leading.given
        wait = leading.wait_acked(index, policy) if policy else leading.wait_hosts(index)
        outcome = await wait
        each.counters.drained()
        return outcome

    def leading(self, queue: str | None = None) -> Leading:
        """A queue, to append to and to wait for in any thread.

        Args:
            queue: its name; may be left out when there is one.

        Raises:
            ValueError: no queue of this name.
        """
        return self._only(queue).leading

    def board(self, queue: str | None = None) -> AckBoard:
        """The board that tells how far each sink is with a queue; any thread may wait at it.

        Args:
            queue: its name; may be left out when there is one.

        Raises:
            ValueError: no queue of this name.
        """
        return self._only(queue).board

    async def wait_caught_up(self) -> None:
        """Returns when one sink has acknowledged all that was in the queues at the start, and its
        files hold it, as far as it can tell; and no store file that one of the two has lost is on
        its way."""
        while True:
            await until(lambda: bool(self._caught_up()), self._shared.changed)
            for session in self._caught_up():
                session.ask_audits()
            with trio.move_on_after(AUDIT_SECONDS):
                await until(
                    lambda: all(session.is_audited for session in self._caught_up()),
                    self._shared.changed,
                )
            if self._lost_files.is_mending:  # one side's file is on its way to the other
                await until(lambda: not self._lost_files.is_mending, self._shared.changed)
            elif self._caught_up():  # or one was found to hold something else
                return

    def _caught_up(self) -> list[SourceSession]:
        return [session for session in self._sessions() if session.is_caught_up]

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped on every connection there is, and not for something
        that is its sink's alone."""
        await until(lambda: self.has_stopped, self._shared.changed)

    async def wait_stuck(self) -> None:
        """Returns when no sink that is connected gets any further with any queue, whichever side
        has stopped it. A queue that no sink takes for `STUCK_SECONDS` counts as refused. A sink
        that has left in order counts as it stood then, until another one is there. With no sink at
        all, a queue of ours that is damaged gets no further."""
        await until_stuck(self._untaken, self._shared.changed)
        untaken = self._untaken() or set()
        troubles = self._troubles()
        for trouble in troubles:
            if trouble.name in untaken:
                self._shared.note_stop(trouble)
        told = {each.name for each in troubles} | {stop.name for stop in self.stops}
        for name in sorted(untaken - told):
            message = "no sink that is connected has a queue of this name, or takes it now"
            found = [each.withdrawn for each in self._progresses()]
            said = {withdrawn[name] for withdrawn in found if name in withdrawn}
            if said:
                message = f"no sink that is connected takes it now: {'; '.join(sorted(said))}"
            self._shared.note_stop(Stop(name=name, reason=StopReason.REFUSED, message=message))

    def ahead_for(self, name: str) -> frozenset[int]:
        """Ids of the hosts that take nothing of a queue for now, as it is of times to come by their
        clocks."""
        found = (each.ahead_for(name) for each in self._sessions())
        return frozenset(host_id for host_id in found if host_id is not None)

    @asynccontextmanager
    async def running(self, opened_late: Told | None = None) -> AsyncIterator[None]:
        """For the length of a block, opens what could not be opened at the start, and wakes tasks
        that wait for acknowledgements.

        Args:
            opened_late: is called with the name of each of those once it is open.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._late.work, opened_late)
            if surroundings().has_threads:  # else a step of a pump is counted when it is over
                nursery.start_soon(self._bell.hear, self._count)
                nursery.start_soon(self._commits.work)
            nursery.start_soon(self._end_waits)
            nursery.start_soon(self._commits.look, self._take_wanted)
            nursery.start_soon(self._tell_tailers)
            yield
            nursery.cancel_scope.cancel()

    def _take_wanted(self) -> None:
        """Sinks are to hear of levels that are waited for."""
        for queue in filter(None, map(self.queues.get, self._bell.take_wanted())):
            queue.touch(is_first=True)

    async def _tell_tailers(self) -> None:
        """Tells sinks where named tailers stand: of all queues once a second, and ten times a
        second of those where one moves."""
        all_at = trio.current_time()
        while True:
            is_all = trio.current_time() >= all_at
            if is_all:
                all_at = next_tick(TAILERS_REST_SECONDS)
            # apart: a session that is over, and its buffers, is not kept while this sleeps
            if await self._have_tailers_moved(only_moving=not is_all):
                await trio.sleep(TAILERS_MOVE_SECONDS)
            else:
                await trio.sleep_until(all_at)

    async def _have_tailers_moved(self, *, only_moving: bool) -> bool:
        """Tells all sinks; true where that was anything."""
        has_moved, looks = False, TailerLooks(all_names=self._shared.settings.all_tailers)
        for session in list(self._sessions()):
            has_moved = session.tell_tailers(looks, only_moving=only_moving) or has_moved
            await trio.lowlevel.checkpoint()
        return has_moved

    async def _end_waits(self) -> None:
        """Ends the waits for a queue that can be read no further, once nothing more can come of it:
        what was sent may be acknowledged yet, and a lost store file may come back."""
        while True:
            is_open = False
            for stop in self.stops:
                board = self.queues[stop.name].board if stop.name in self.queues else None
                if board is None or board.has_ended or not stop.is_own:
                    continue
                if self._has_ended(stop.name):
                    board.end(stop.message)
                else:
                    is_open = True
            if is_open:
                await self._shared.changed.wait()
                await trio.sleep(STOPS_PAUSE_SECONDS)
            else:
                await self._shared.stop_noted.wait()

    def _has_ended(self, name: str) -> bool:
        sessions = [s for s in self._sessions() if s.has_offered]
        is_over = bool(sessions) and all(s.has_ended(name) for s in sessions)
        return is_over and not self._lost_files.is_taking

    def _count(self) -> None:
        self._take_wanted()
        for session in list(self._sessions()):
            session.words.tell_levels()
            session.catch_up()

    def start_without(self, unopened: Iterable[Unopened]) -> None:
        """Goes on without what could not be opened at the start."""
        for each in unopened:
            self._late.tell(each)

    def _stop_unopened(self, stop: Stop) -> None:
        self._shared.note_stop(stop, is_logged=False)
        for session in self._sessions():
            session.tell_unopened(stop)

    def can_open(self, name: str) -> bool:
        """True for a queue that could not be opened before, and that no relay desk opens."""
        return self._late.has(name)

    def open_again(self, name: str) -> None:
        """Opens a queue that could not be opened before.

        Raises:
            QueueError, OSError: it cannot be opened now either; it stays as it is.
        """
        self._shared.forget_stops(name)
        self._late.open_again(name)

    def _take(self, queue: SourceQueue) -> None:
        queue.note_stop = self._shared.note_stop
        queue.tell_damage = partial(self._lost_files.note, queue.name)
        self.queues[queue.name] = queue
        self.role_watchers.watch(queue.leading)
        for session in self._sessions():
            session.offer_late(queue.name)
        self._shared.changed.set()

    def _troubles(self) -> list[Stop]:
        """The stops that keep queues from being read for now."""
        met = [each for progress in self._progresses() for each in progress.troubles.values()]
        return [*self._late.troubles.values(), *met]

    def _damaged(self, *, is_own: bool) -> Set[str]:
        """The queues of which our store files, or those of a sink, are not what they were."""
        found = [stop for stop in self.stops if stop.reason is StopReason.DAMAGED]
        return {stop.name for stop in found if stop.is_own_damage is is_own}

    def _progresses(self) -> list[SinkProgress]:
        """The progress of each sink that is there; that of the last one, where none is there and
        that one left in order."""
        found = [session.progress for session in self._sessions() if session.has_offered]
        left = self._shared.left
        return [left] if left is not None and not found else found

    def _untaken(self) -> Set[str] | None:
        """The queues that no sink takes, or that are damaged there and may yet be mended; None
        while one gets further, or while there is no sink, or one that has everything and tells what
        its files hold."""
        is_one_under_way = any(session.has_one_under_way for session in self._sessions())
        if self._lost_files.is_mending or self._caught_up() or is_one_under_way:
            return None
        progresses = self._progresses()
        if not progresses:  # one that comes again may give back what a damaged queue has lost
            return (self._damaged(is_own=True) or None) if self._shared.has_left else None
        names = frozenset(self.names)
        untaken = names
        for each in progresses:
            if names - each.ended - each.untaken - each.whole or names == each.whole:
                return None
            untaken &= each.untaken
        return untaken | (self._damaged(is_own=False) & names)

    @property
    def has_stopped(self) -> bool:
        """True while `wait_stopped` would return at once."""
        sessions = [s for s in self._sessions() if s.has_offered]
        is_over = bool(sessions) and all(s.has_stopped for s in sessions)
        is_over = is_over or self.names == self._late.stopped  # whatever sinks there are
        is_held = any(queue.life.hold.reason for queue in self.queues.values())
        is_waiting = is_held or self._late.is_trying or self._lost_files.is_taking
        return is_over and not is_waiting

    def _sessions(self) -> Iterable[SourceSession]:
        return sessions_of(SourceSession, self.endpoint.sessions)

    def _only(self, name: str | None) -> SourceQueue:
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        if name is None or name not in self.queues:
            raise ValueError(f"one of the queues {sorted(self.queues)} expected, {name!r} came")
        return self.queues[name]

    def look(self) -> None:
        """Wakes all tasks that wait for a change: something has changed."""
        self._shared.changed.set()

    def watch_over(self, lost: LostFiles) -> None:
        """Has it told of queues that are damaged."""
        self._lost_files = lost
        for queue in self.queues.values():
            queue.tell_damage = partial(lost.note, queue.name)

    def restored(self, name: str) -> None:
        """The store files that a queue had lost are there again: it goes on."""
        if name in self.queues:
            self._shared.forget_damage(name)
            for session in list(self._sessions()):
                session.begin_anew(name)

    async def pause(self, name: str) -> None:
        """Sends nothing more of a queue, and tells its sinks so."""
        await self._hold(self.queues[name], BY_HAND)

    def has_its_files(self, name: str) -> bool:
        """False for a queue whose directory, or table store, is not the one that was opened. One
        that is passed on is opened, and opened again, by who takes it in."""
        queue = self.queues[name]
        with suppress(QueueError, OSError):
            if queue.copy is None:
                queue.queue.check_name()
            return True
        return False

    def resume(self, name: str) -> None:
        """It goes on. Where it has stopped, all is compared again with another connection."""
        self.queues[name].life.hold.set(None)
        self._shared.forget_stops(name)
        for session in list(self._sessions()):
            session.take(name)

    def place_logs(self, names: Iterable[str]) -> None:
        """Queues that are opened from now on log beside these."""
        self._opener.place_logs(names)

    def open(self, name: str, path: Path, epochs: KeptEpochs | None = None) -> SourceQueue:
        """Opens a queue that is to be streamed too.

        Args:
            epochs: its own, where they are known already.

        Raises:
            QueueError, OSError: as `open_source`.
        """
        with spare_descriptors():
            return self._opener.open(name, path, epochs=epochs)

    def stream_again(self, name: str, path: Path, epochs: KeptEpochs) -> None:
        """Streams a queue that this host leads, from now on, or as soon as it can be opened."""
        try:
            self.add(self.open(name, path, epochs))
        except (QueueError, OSError) as error:
            unopened = Unopened(name=name, path=path, error=error)
            self._late.add(unopened, partial(self.open, name, path, epochs))
            self._late.tell(unopened)
            self._shared.changed.set()

    def add(self, queue: SourceQueue) -> None:
        """Streams it from now on."""
        self._take(queue)
        names = QueueNames(sources=frozenset({queue.name}))
        self.endpoint.tell_queues(added=names, removed=QueueNames())

    def open_copy(self, copy: SinkQueue, passed_by: tuple[int, ...]) -> SourceQueue:
        """Opens a queue that is taken in here, to pass it on.

        Raises:
            QueueError, OSError: it cannot be opened.
        """
        with spare_descriptors():
            return self._opener.open(copy.name, copy.path, copy, passed_by)

    def wait_for(self, trouble: Stop) -> None:
        """A queue is to be passed on, and cannot be for now."""
        self._late.wait_for(trouble)

    def forget_late(self, name: str) -> None:
        """It is passed on, or not to be any more."""
        self._late.forget(name)

    async def drop(self, queue: SourceQueue) -> None:
        """Closes a queue that was opened, and is not streamed."""
        await self._opener.close(queue)

    def has_all(self, name: str, host_id: int) -> bool:
        """True where a host is connected, and has acknowledged all of a queue; where it does not
        acknowledge: was sent all of it."""
        queue = self.queues[name]
        queue.counters.drained()
        marks, last = queue.marks_of(host_id), queue.queue.last_index()
        mark = marks.acknowledged if self.asks_ack(name) else marks.sent
        return host_id in self.endpoint.connections and (last is None or mark >= last)

    async def remove(self, name: str, why: str = REMOVED) -> None:
        """Streams it no more; it is closed once no sink has it."""
        queue = self.queues.get(name)
        if queue is None:
            self._late.forget(name)
        else:
            await self._hold(queue, Reason(kind=ReasonKind.REMOVED, message=why))
            for session in self._sessions():
                session.forget(queue)
            await until(lambda: not queue.sessions, self._shared.changed)
            del self.queues[name]
            await self._opener.close(queue)
        self._shared.forget_stops(name)
        names = QueueNames(sources=frozenset({name}))
        self.endpoint.tell_queues(added=QueueNames(), removed=names)

    def change(self, settings: SourceSettings) -> None:
        """Other limits, for connections and queues that come from now on."""
        self._opener.settings = self._shared.settings = settings

    async def _hold(self, queue: SourceQueue, why: Reason) -> None:
        queue.life.hold.set(why)
        for session in list(self._sessions()):
            await session.let_go(queue.name, why.message)
        self._shared.changed.set()

    def make_session(self, connection: Connection, pump: Pump) -> SourceSession:
        """The session that works on a new connection."""
        return SourceSession(self.queues, self._shared, connection, pump)


def open_source(
    queues: Mapping[str, Path],
    settings: SourceSettings,
    syncer: Syncer,
    stack: ExitStack,
    epochs: Mapping[str, KeptEpochs] | None = None,
) -> tuple[Source, list[Unopened]]:
    """A source with its queues open, as far as that can be done now; `stack` closes them.

    Args:
        epochs: of the queues, where they are known already.

    Returns:
        The source, and the queues that cannot be opened now: `start_without` takes them.
    """
    if queues:
        warn_without_proof()
    opener = SourceOpener(settings, syncer)
    opener.place_logs(queues)
    stack.callback(opener.close_all)
    known = epochs or {}
    opened, unopened, late = [], [], LateQueues()
    with spare_descriptors():
        for name, path in queues.items():
            open_late = partial(opener.open, name, path, epochs=known.get(name))
            try:
                opened.append(open_late())
            except (QueueError, OSError) as error:
                unopened.append(Unopened(name=name, path=path, error=error))
                late.add(unopened[-1], open_late)
    return Source(opened, late, opener), unopened


@asynccontextmanager
async def serve_source(
    queues: Mapping[str, Path | str] | Iterable[Path | str],
    *,
    acknowledge: bool = True,
    ack_log: Path | str | None = None,
    accept_returns: Iterable[int] | None = (),
    return_excerpts_max: int = RETURN_EXCERPTS_MAX,
    return_seconds_max: float = RETURN_SECONDS_MAX,
    wait_for_seconds: float = WAIT_FOR_SECONDS,
    wait_for: Iterable[int] | None = None,
    policies: Mapping[str, AckPolicy] | None = None,
    all_tailers: bool = False,
    program: Program | None = None,
    programs: Iterable[Program] = (),
    **options: Unpack[HostOptions],
) -> AsyncIterator[Source]:
    """Streams queues to sinks for the length of an `async with` block, then ends in order.

    Args:
        queues: directories, or a mapping from the name on the wire to the directory.
        acknowledge: ask for acknowledgements.
        ack_log: directory of the log of acknowledgements; one below it for each of several queues.
        accept_returns: ids of hosts whose back copy is taken though a queue was never streamed to
            them, or though they cannot prove what they hold, as Java's; None: no host's is taken.
        return_excerpts_max: most excerpts of one back copy.
        return_seconds_max: longest back copy in seconds; it keeps writers out.
        wait_for_seconds: after another start of the machine, what a power cut may have torn is
            streamed to no sink before a known sink's copy was compared, for so long.
        wait_for: only if one of these hosts is known to have a copy; None: any; empty: never.
        policies: when what is written to a queue counts as safe, by its name: `Leading.append`
            waits for that. A queue without one: as soon as one sink has appended it, and it waits
            for no sink.
        all_tailers: sinks keep where all named tailers stand; else those whose names begin
            `replicated:`.
        program: adds handlers of its own to the connections.
        programs: several that do; instead of `program`.
        options: where and how to reach the peers: `HostOptions`.

    Raises:
        QueueError: no directory holds a queue that can be read, or no log can be written. Of
            several, one that cannot be opened stops alone, and is in `stops`.
        Refused: a log would be written to a queue that is streamed.
        Unreachable: the port cannot be listened on, or the peer was not reached.
        ValueError: arguments that do not fit together.
        RuntimeError: not in a task of trio.
    """
    check_in_trio("cqrepl.serve_source")
    own = SourceSettings(
        acknowledge=acknowledge,
        ack_log=None if ack_log is None else Path(ack_log),
        returns=ReturnSettings(
            hosts=None if accept_returns is None else frozenset(accept_returns),
            excerpts_max=return_excerpts_max,
            seconds_max=return_seconds_max,
        ),
        wait_for_seconds=wait_for_seconds,
        wait_for=None if wait_for is None else frozenset(wait_for),
        policies=policies or {},
        all_tailers=all_tailers,
    )
    settings = host_settings(1, 2, source=own, **options)
    paths = named(queues)
    check_apart(paths, {}, named_logs(own.ack_log, paths, None, ()))
    with ExitStack() as stack:
        syncer = Syncer(settings.scrub_bytes_per_s)
        source, unopened = open_source(paths, own, syncer, stack)
        check_any_is_left(unopened, len(paths))
        lost = LostFiles(paths, source.restored, source.look)
        source.watch_over(lost)
        users = [lost, *programs_of(program, programs)]
        source.endpoint = endpoint = Endpoint(
            settings.net, settings.protocol, frozenset(), source.make_session, users
        )
        source.start_without(unopened)
        async with syncer.running(), lost.running(), endpoint.running(), source.running():
            yield source
