"""A host with queues in both directions: some it streams, others it takes in, on one connection.

This module alone knows all parts of a host, and puts them together; none of them imports it.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import trio

from cqrepl.cluster.election.electiondesk import ElectionDesk
from cqrepl.cluster.fencedesk import FenceDesk
from cqrepl.cluster.masterchange import MasterChanges
from cqrepl.cluster.memberlists import NewMembers
from cqrepl.cluster.promoter import Promoter
from cqrepl.cluster.promotion import Promotion
from cqrepl.net.directoryclaim import DirectoryClaim
from cqrepl.net.endpoint import Endpoint
from cqrepl.net.errors import Refused
from cqrepl.net.eventloop import check_in_trio
from cqrepl.net.link import Session
from cqrepl.net.program import Program, programs_of
from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection
from cqrepl.queue.quarantine import Quarantine
from cqrepl.replicator.direction import Direction
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.duplexsession import DuplexSession
from cqrepl.replicator.fitness import Fitness
from cqrepl.replicator.hostevents import HostEvents, events_of, telling
from cqrepl.replicator.hostqueue import HostQueue
from cqrepl.replicator.hostroles import (
    by_epochs,
    check_known,
    check_no_epoch,
    directions,
    log_other_leaders,
    relays_of,
)
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.lostcycles.lostfiles import LostFiles
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.ownwriters import OwnWriter, OwnWriters
from cqrepl.replicator.queueplaces import place_queues
from cqrepl.replicator.queueposition import QueuePosition, position_of
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.queuestate.queues import named
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.queuestate.unopened import check_any_is_left
from cqrepl.replicator.relaydesk import RelayDesk
from cqrepl.replicator.rolelog import Role, RoleLog
from cqrepl.replicator.settings import HostSettings, settings_of_host
from cqrepl.replicator.sink import Sink, open_sinks
from cqrepl.replicator.source import Source, open_source
from cqrepl.status.controldesk import ControlDesk


class Host:
    """A host, which runs for the length of an `async with` block, then ends in order.

    Its two halves are as `serve_source` and `serve_sink` give them. Both go over one connection
    with each peer, whichever of the two has dialled (`NetSettings.peers`); of two connections with
    a peer the newer one stays.

    Args:
        settings: with its queues; `HostSettings.of` and `read_settings` make them.
        program: adds handlers of its own to the connections.
        programs: several that do; instead of `program`. Each is told of each peer, in their order,
            and hears of its own handlers only.
        events: what is called when something has changed; several for several programs, none of
            which waits for another one.

    A guest (`ProtocolSettings.guest`) has no queues: its program registers what takes guests.

    Raises:
        QueueError: when it is entered, as all of these: none of its queues can be opened. Of
            several, one that cannot be opened stops alone, and is in `stops`.
        Refused: a directory would be for two queues, or for a queue and a log, or another process
            runs a host of this id on it (where its settings name a `run_dir`).
        Unreachable: the port cannot be listened on, or the peer was not reached.
        ValueError: a queue that goes both ways, or names that cannot be used; and where it is made:
            two programs add a kind of the same name.
        TypeError: where it is made: settings, programs or events are of another type.
        RuntimeError: it is entered again, or not in a task of trio; or it is used before its block.
    """

    source: Source  # of a host that runs
    sink: Sink
    endpoint: Endpoint
    direction: Direction

    def __init__(
        self,
        settings: HostSettings,
        *,
        program: Program | None = None,
        programs: Iterable[Program] = (),
        events: HostEvents | Iterable[HostEvents] | None = None,
    ) -> None:
        self.settings = settings_of_host(settings)
        self._events = events_of(events)
        self.control: Final = ControlDesk(self)
        self.fitness: Final = Fitness()
        self._programs = programs_of(program, programs)
        self._block: AbstractAsyncContextManager[None] | None = None
        self._writers = OwnWriters()
        self._paths: dict[str, Path] = {}  # of all queues
        self._claim: Final = DirectoryClaim(settings.run_dir, settings.protocol.host_id)
        self._lost: LostFiles | None = None
        self._syncer: Syncer  # of a host that runs
        self._relays: RelayDesk
        self._roles: RoleLog | None = None
        self._promoter: Promoter | None = None  # of a host of a cluster
        self._masters: MasterChanges | None = None  # of such a host too
        self.elections: ElectionDesk | None = None  # of one whose leaders are elected

    async def __aenter__(self) -> Self:
        check_in_trio("cqrepl.Host")
        if self._block is not None:
            raise RuntimeError("a host runs once: make another one")
        self._block = self._running()
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._block is not None
        return await self._block.__aexit__(kind, error, trace)

    @property
    def has_ended(self) -> bool:
        """True once it has ended, or is about to."""
        return self._writers.have_ended

    @property
    def port(self) -> int | None:
        """The port listened on; None for a host that only dials."""
        self._check_has_begun()
        return self.endpoint.port

    @property
    def stops(self) -> list[Stop]:
        """The queues that have stopped, whichever way they go."""
        self._check_has_begun()
        return [*self.source.stops, *self.sink.stops]

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped, as `wait_stopped` of the two halves has it."""
        self._check_has_begun()
        while True:
            if self.direction.is_changing:  # it may have no queue for a moment
                await self.sink.changed.wait()
            elif self.source.names and not self.source.has_stopped:
                await self.source.changed.wait()
            elif self.sink.queues and not self.sink.has_stopped:
                await self.sink.changed.wait()
            else:
                return

    @property
    def leaders(self) -> Promoter:
        """Makes this host the leader of a queue, and tells what that would take.

        Raises:
            Refused: it is none of a cluster, whose hosts are known.
        """
        self._check_is_of_cluster()
        assert self._promoter is not None
        return self._promoter

    async def promote(self, name: str, *, accept_loss: bool = False) -> Promotion:
        """Makes this host the leader of a queue; what has come of it. `leaders.plan` tells that
        beforehand.

        Args:
            accept_loss: also where too few copies answer, for all that was safe, or to be the only
                one.

        Raises:
            ValueError: there is no such queue.
            Refused: it cannot be done, and why; or this host is none of a cluster.
            QueueError, OSError: the copy cannot be written, or the promise not be kept.
        """
        return await self.leaders.promote(name, accept_loss=accept_loss)

    def _check_has_begun(self) -> None:
        if self._block is None:
            raise RuntimeError("this host does not run yet: `async with` begins it")

    def _check_is_of_cluster(self) -> None:
        self._check_has_begun()
        if self._promoter is None:
            raise Refused(
                f"host {self.settings.protocol.host_id}: expected a host of a cluster, with the"
                " masters of its queues, got one whose settings name none"
            )

    async def pause(self, name: str) -> None:
        """Stops one queue by hand, until `resume` or the end: its peers are told.

        Raises:
            ValueError: there is no such queue.
            Refused: it has stopped.
        """
        self._known(name)
        async with self.direction.turn(name):
            self._check_name(name)
            own = (each for each in self.source.stops if each.host_id is None)
            stopped = [each for each in (*own, *self.sink.stops) if each.name == name]
            if stopped:
                raise Refused(str(stopped[0]))
            if name in self.sink.queues:
                await self.sink.pause(name)
            if name in self.source.queues:
                await self.source.pause(name)

    def position(self, name: str) -> QueuePosition:
        """The position of this host's copy of a queue, in every role: how far it is, and who leads
        the queue as far as this host knows. No other host is asked.

        Raises:
            ValueError: there is no such queue.
            QueueError, OSError: the epochs that it has promised cannot be read.
        """
        path = self.queue(name).path
        queue = self.sink.queues.get(name) or self.source.queues.get(name)
        epochs = self._kept_epochs(path) if queue is None else queue.epochs
        own, master = self.settings.protocol.host_id, self.settings.sink.masters.get(name)
        return position_of(name, path, epochs.now, own, queue, master)

    async def step_down(self, name: str, why: str) -> None:
        """Gives up the lead of a queue that this host leads, on its disk: appends and waits end as
        `SteppedDown`, and local writers are kept out. The queue becomes a copy, which follows the
        host that is promoted next. That may be this host: it leads again only by a promotion.

        Args:
            why: the reason, for people and for `SteppedDown`.

        Raises:
            ValueError: there is no such queue.
            TypeError: the reason is no text.
            Refused: this host does not lead it, or is none of a cluster.
            QueueError, OSError: writers cannot be kept out, or it may not be on the disk; this host
                leads as before.
        """
        self._check_is_of_cluster()
        self._known(name)
        if not isinstance(why, str):
            raise TypeError(f"queue {name!r}: expected a text that says why, got {why!r}")
        async with self.direction.turn(name):
            self._check_name(name)
            await self.direction.give_up(name, why)

    async def hand_over(self, name: str, to: int) -> None:
        """Has another host be promoted for a queue that this host leads.

        Raises:
            ValueError: there is no such queue, or no such host.
            Refused: that host does not lead it, and why; or this one does not, or is none of a
                cluster.
            Unreachable: it is not connected any more.
        """
        self._check_is_of_cluster()
        self._known(name)
        others = sorted(self.settings.protocol.remote_ids)
        if to not in others:
            ids = ", ".join(map(str, others))
            raise ValueError(f"expected the id of another host ({ids}), got {to}")
        position = self.position(name)
        if position.role is not Role.LEADING:
            leads = "" if position.leader is None else f": host {position.leader} leads it"
            raise Refused(f"queue {name!r}: this host does not lead it{leads}")
        assert self._masters is not None
        await self._masters.hand_over(name, to)

    async def resume(self, name: str) -> None:
        """Has a queue go on that was paused by hand, or has stopped: then all that both sides hold
        is compared again, as after a restart. A stop of the other side's is ended there.

        Raises:
            ValueError: there is no such queue.
            QueueError, OSError: it cannot be opened; it stays stopped.
        """
        self._known(name)
        async with self.direction.turn(name):
            if self.source.can_open(name):
                self.source.open_again(name)
                return
            self._check_name(name)
            if name in self.sink.queues:
                await self.sink.resume(name)
            if name in self.source.queues:
                if self.source.has_its_files(name):
                    self.source.resume(name)
                else:
                    path = self.source.queues[name].path
                    await self.direction.stream_anew(name, self._kept_epochs(path))

    def forget(self, host_id: int) -> list[str]:
        """A sink that is not to come again holds no store files any more; names of the queues that
        it was known for.

        Raises:
            ValueError: none of them knows it.
            Refused: it is connected.
            OSError, QueueError: it cannot be written that it is forgotten.
        """
        self._check_has_begun()
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
        stop = self.sink.queues[name].life.stop
        if stop is None or stop.differs_at is None:
            raise Refused(f"queue {name!r} has not stopped as diverged at an index that is known")
        return stop.differs_at

    async def quarantine(self, name: str) -> Quarantine:
        """Moves to quarantine what a queue that is taken in holds otherwise than its source, from
        where it comes again. The result tells what has gone.

        Raises:
            ValueError, Refused: as `differs_at`.
            QueueError, OSError: that cannot be done; the queue stays stopped.
        """
        self._known(name)
        async with self.direction.turn(name):
            return await self.sink.quarantine(name, self.differs_at(name))

    async def change(self, settings: HostSettings) -> None:
        """Takes on other settings while it runs: streams and takes in queues that are new, and
        removes those that are there no more: in order, each peer is told, files are closed and
        locks given back. What is taken in may be so from another host, and be passed on or no
        more. All others go on; one that is to go the other way is no new one.

        Of the rest these count: for connections that come from now on the limits of guests, of
        excerpts and of back copies; at once what peers are sent a second, and the pace of
        scrubbing; for sinks `any_cycle`, `puts_aside`; and what new queues are opened with. The
        files of TLS are read again: connections end whose peers they do not take any more.

        Raises:
            QueueError, OSError: a queue cannot be opened; nothing was changed.
            Refused: as at the start, a log would have another place, or a file of TLS cannot be
                used; nothing was changed.
            ValueError: a name that cannot be used; nothing was changed.
        """
        given: dict[str, Path | str] = {**settings.sources, **settings.sinks}
        paths = named(given)
        sources = {name: paths[name] for name in settings.sources if name not in self._paths}
        sinks = {name: paths[name] for name in settings.sinks if name not in self._paths}
        removed = self._paths.keys() - paths.keys()
        passed_on = relays_of(settings)
        sources = {name: path for name, path in sources.items() if name not in passed_on}
        epochs = {name: self._kept_epochs(path) for name, path in {**sources, **sinks}.items()}
        sources, sinks = by_epochs(sources, sinks, epochs, settings)
        stay = {name: path for name, path in self._paths.items() if name not in removed}
        place_queues(self.source, self.sink, settings, stay, sources, sinks)
        await self._claim.take([*self._paths.values(), *sources.values(), *sinks.values()])
        fresh = await self.endpoint.gate.read_again(settings.net.tls)
        self._set(old := self.settings, settings)
        streamed: list[SourceQueue] = []
        taken: list[SinkQueue] = []
        try:
            for name, path in sources.items():
                streamed.append(self.source.open(name, path, epochs[name]))
            for name, path in sinks.items():
                taken.append(self.sink.open(name, path, epochs[name]))
        except BaseException:
            self._set(settings, old)
            with trio.CancelScope(shield=True):
                for each in streamed:
                    await self.source.drop(each)
                for one in taken:
                    await self.sink.drop(one)
                await self._claim.take(self._paths.values())
            raise
        with self.direction.changing():
            for each in streamed:
                self._paths[each.name] = each.path
                self.source.add(each)
            for one in taken:
                self._paths[one.name] = one.path
                self.sink.add(one)
            for name in sorted(set(self._relays.names) - passed_on):
                await self._relays.drop(name)
            for name in sorted(removed):
                async with self.direction.turn(name):
                    await self._remove(name)
            for name, queue in list(self.sink.queues.items()):
                # after a promotion, it is taken from the host that this has made the leader
                giver = settings.sink.masters.get(name)
                if queue.epochs.are_known and queue.epochs.now.promised:
                    giver = queue.epochs.now.promised_to
                is_kept = self._masters is not None and self._masters.keeps(name, giver)
                if queue.master_id != giver and not is_kept:
                    await self.sink.follow(name, giver)
            added = passed_on - set(self._relays.names)
            self._relays.add({name: self._paths[name] for name in sorted(added)})
        await self._claim.take(self._paths.values())
        self.endpoint.gate.take(fresh)
        self.sink.changed.set()

    def _set(self, old: HostSettings, new: HostSettings) -> None:
        self.settings = new
        self.endpoint.change(new.net, new.protocol)
        self.source.change(new.source)
        self.sink.change(new.sink)
        if old.scrub_bytes_per_s != new.scrub_bytes_per_s:
            self._syncer.scrub(new.scrub_bytes_per_s)

    async def _remove(self, name: str) -> None:
        await self._relays.drop(name)
        if name in self.sink.queues:
            await self.sink.remove(name)
        else:
            await self.source.remove(name)
        self._paths.pop(name, None)
        await self.direction.close_writer(name, "it was removed from this host")
        if self._roles is not None:
            self._roles.removed(name)
        if self._lost is not None:
            self._lost.forget(name)

    async def change_master(self, name: str, settings: HostSettings) -> str:
        """Takes on settings by which another host streams a queue, in the same directory: a request
        to hand it over, see `MasterChanges`. Returns a line for people where that is to come from
        another host yet; else an empty text.

        To or from a host that cannot be asked for a promotion, as Java's, it is handed over without
        an epoch. A master gives it back once the new one is connected and has all of it, and no
        writer of this machine gets in any more. This host becomes the master once the old one is
        connected and takes it in. A host that takes it in takes it from the new one.

        Raises:
            Refused: that is not so, not within `HAND_OVER_SECONDS` either; the settings stay.
            QueueError, OSError: it cannot be opened the other way; the settings stay.
        """
        self._check_name(name)
        if name in self._relays.names:
            raise Refused(f"queue {name!r} is passed on from here: it gets no other master so")
        assert self._masters is not None
        was, now = self.settings.sink.masters[name], settings.sink.masters[name]
        note = await self._masters.change(name, was, now)
        if note is None:
            async with self.direction.turn(name):
                await self._change_by_file(name, settings)
            return ""
        self._set(self.settings, settings)
        return note

    async def change_members(self, name: str, settings: HostSettings) -> str:
        """Takes on settings by which a queue has other members. Where this host leads it, it begins
        an epoch with these (`Promoter.change_members`). Returns a line for people where another
        host does that, else an empty text.

        Raises:
            Refused: that cannot be, and why; the settings stay.
            QueueError, OSError: as a promotion; the settings stay.
        """
        leaders, old = self.leaders, self.settings
        self._check_name(name)
        self._set(old, settings)
        queue = self.source.queues.get(name)
        if queue is None or not queue.leads(old.protocol.host_id):
            return f"queue {name!r}: the host that leads it begins an epoch with other members"
        try:
            await leaders.change_members(name, NewMembers.between(old, settings, name))
        except BaseException:
            self._set(settings, old)
            raise
        return ""

    async def _change_by_file(self, name: str, settings: HostSettings) -> None:
        self._check_name(name)
        queue = self.source.queues.get(name) or self.sink.queues[name]
        old, own = self.settings, self.settings.protocol.host_id
        was, now = old.sink.masters[name], settings.sink.masters[name]
        check_no_epoch(name, queue.epochs)
        self._set(old, settings)
        try:
            if was == own:
                await self.direction.hand_over(name, now)
            elif now == own:
                await self.direction.take_over(name, was)
            else:
                await self.sink.follow(name, now)
        except BaseException:
            self._set(settings, old)
            raise

    def tell_other_leaders(self) -> None:
        """Logs the queues that the file gives another master than leads them by their epochs: the
        epoch counts."""
        known = {name: each.epochs for name, each in self.source.queues.items()}
        known |= {name: each.epochs for name, each in self.sink.queues.items()}
        log_other_leaders(self.settings.sink, known)

    def _check_name(self, name: str) -> None:
        self._check_has_begun()
        if name in self.source.late and name not in self.sink.queues:
            raise Refused(f"queue {name!r} is not open yet: {self.source.late[name].message}")
        check_known(name, self.source.queues.keys() | self.sink.queues.keys())

    def queue(self, name: str | None = None) -> HostQueue:
        """One of its queues, to append to and to wait for.

        Args:
            name: may be left out when there is one.

        Raises:
            ValueError: no queue of this name.
        """
        if name is None and len(self._paths) == 1:
            (name,) = self._paths
        return HostQueue(self, self._known(name))

    def path_of(self, name: str) -> Path:
        """The directory of a queue, whichever way it goes, also on its way to another.

        Raises:
            ValueError: no queue of this name.
        """
        return self._paths[self._known(name)]

    def _known(self, name: str | None) -> str:
        self._check_has_begun()
        return check_known(name, self._paths.keys())

    def has_queue(self, name: str) -> bool:
        """True for a queue of this host, whichever way it goes, also on its way to another."""
        return name in self._paths

    def writer(self, name: str, check: Callable[[], object]) -> OwnWriter:
        """The writer that appends to a queue that is streamed, for the program."""
        return self._writers.of(name, self.path_of, check)

    def _make_session(self, connection: Connection, pump: Pump) -> Session:
        return DuplexSession(
            self.source.make_session(connection, pump), self.sink.make_session(connection, pump)
        )

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        from_here, to_here = directions(self.settings, self._programs)
        settings = self.settings
        programs = list(self._programs)
        epochs = {each: self._kept_epochs(path) for each, path in {**from_here, **to_here}.items()}
        if settings.sink.masters:  # a host of a cluster: others may lead than its file says
            from_here, to_here = by_epochs(from_here, to_here, epochs, settings)
            desk = FenceDesk(self)
            self._promoter = Promoter(self, desk)
            programs.insert(0, desk)
            self._masters = MasterChanges(self, desk, self._promoter)
            if settings.election is not None:
                self.elections = ElectionDesk(
                    self, desk, self._promoter, self._masters.hand_over, settings.election
                )
                programs.insert(1, self.elections)
            log_other_leaders(settings.sink, epochs)
        names = from_here | to_here
        relayed = sorted(relays_of(settings) & to_here.keys())
        passed_on = {name: to_here[name] for name in relayed}
        self._paths = names
        with ExitStack() as stack:
            stack.callback(self._claim.end)
            await self._claim.take(names.values())
            self._syncer = syncer = Syncer(settings.scrub_bytes_per_s)
            own, sinks = settings.source, settings.sink
            self.source, unstreamed = open_source(from_here, own, syncer, stack, epochs)
            self.sink, untaken = open_sinks(to_here, sinks, syncer, stack, epochs)
            source, sink = self.source, self.sink
            self.direction = Direction(source, sink, self._writers)
            check_any_is_left([*unstreamed, *untaken], len(names))
            sink.start_without(untaken)
            self._relays = RelayDesk(settings.protocol.host_id, source, sink)
            self._relays.add(passed_on)
            stack.callback(self._writers.close_all)
            if not names:  # a guest has nothing to give, or to lose
                self._begin(programs)
                async with self.endpoint.running(), self.control.asked():
                    yield
                return
            self._lost = lost = LostFiles(names, self._restored, self._look)
            source.watch_over(lost)
            sink.watch_over(lost)
            self._begin([lost, *programs])
            self._roles = RoleLog(source, sink)
            source.start_without(unstreamed)
            async with (
                telling([*self._events, *self._role_commands], source, sink, self._roles),
                syncer.running(),
                lost.running(),
                self.endpoint.running(),
                source.running(None if self._promoter is None else self._promoter.announce),
                self._relays.running(),
                nullcontext() if self._masters is None else self._masters.running(),
                nullcontext() if self.elections is None else self.elections.running(),
                self.control.asked(),
            ):
                yield

    @property
    def _role_commands(self) -> tuple[HostEvents, ...]:
        """The events by which commands are run."""
        commands = None if self.elections is None else self.elections.commands
        return () if commands is None else (commands.events,)

    def _kept_epochs(self, path: Path) -> KeptEpochs:
        """Those of a queue in a directory; in a cluster with who streams it."""
        own = self.settings.protocol.host_id if self.settings.sink.masters else 0
        return KeptEpochs(path, own)

    def _begin(self, programs: Sequence[Program]) -> None:
        """Makes what runs the connections."""
        settings = self.settings
        self.endpoint = Endpoint(
            settings.net,
            settings.protocol,
            self.sink.takes,
            self._make_session,
            programs,
        )
        self.source.endpoint = self.sink.endpoint = self.endpoint

    def _restored(self, name: str) -> None:
        self.source.restored(name)
        self.sink.restored(name)

    def _look(self) -> None:
        self.source.look()
        self.sink.changed.set()


def serve_host(
    settings: HostSettings,
    *,
    sources: Mapping[str, Path | str],
    sinks: Mapping[str, Path | str],
    program: Program | None = None,
    programs: Iterable[Program] = (),
) -> Host:
    """A `Host` of these settings with other queues: name on the wire and directory of each that is
    streamed, and of each that is taken in."""
    new = replace(settings, sources=sources, sinks=sinks)
    return Host(new, program=program, programs=programs)
