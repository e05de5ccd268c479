"""The connections of a host, from the first dial to the orderly end."""

import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

import trio

from cqrepl.net import dialer, listener
from cqrepl.net.address import Address
from cqrepl.net.doorstep import Doorstep
from cqrepl.net.errors import Refused, Unreachable
from cqrepl.net.link import Session
from cqrepl.net.peerlog import PeerLog
from cqrepl.net.program import Program, check_kinds
from cqrepl.net.pump import Pump
from cqrepl.net.roster import Roster
from cqrepl.net.settings import NetSettings
from cqrepl.protocol import Connection, ConnectionConfig, ProtocolSettings
from cqrepl.protocol.capabilities import ENDED_CAPABILITY, QUEUES_CAPABILITY
from cqrepl.protocol.greeting import ANY_HOST
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.sendwindow import EXCERPTS_MAX
from cqrepl.surroundings import surroundings

LOOK_SECONDS: Final = 0.5  # between two looks for peers, of one that gives up
END_SECONDS: Final = 1.2  # longest time for all connections to end in order; a command has 2

# of peers that let go of a queue, and take or offer it anew, on one connection
_TURNING: Final = frozenset({ENDED_CAPABILITY, QUEUES_CAPABILITY})

MakeSession = Callable[[Connection, Pump], Session]


class Endpoint:
    """Runs the connections of one host.

    Args:
        takes: names of the queues that may be offered to this side; there may come more.
        make_session: makes what works on a new connection.
        programs: add handlers of their own.

    Raises:
        ValueError: two programs add a kind of the same name.
    """

    def __init__(
        self,
        net: NetSettings,
        protocol: ProtocolSettings,
        takes: Set[str],
        make_session: MakeSession,
        programs: Sequence[Program] = (),
    ) -> None:
        self.settings = net
        self.protocol = protocol
        self.ports: tuple[int, ...] = ()  # of the addresses that are listened on, in their order
        self.ended_orderly = trio.Event()  # some peer has ended in order
        self._takes = takes
        self._make_session = make_session
        check_kinds(programs)
        self._programs = programs
        self._kinds = tuple(each.kinds for each in programs)
        self._roster = Roster(net.guests_max)
        self._doorstep = Doorstep()
        self._log = PeerLog()
        self._live: dict[Pump, Session] = {}
        self._is_ending = False
        self._began = -math.inf
        self._lost: dict[int, float] = {}  # when hosts did that had not said that they end
        self._left_at = math.inf  # when the last peer did, by trio's clock
        self._left_why: str | None = None
        self._refused_why: str | None = None  # the latest peer that was, while none had been let in

    @property
    def port(self) -> int | None:
        """The port of the first address that is listened on; None while none is."""
        return self.ports[0] if self.ports else None

    @property
    def listens(self) -> list[Address]:
        """The addresses that are listened on, each with the port that it has."""
        pairs = zip(self.settings.listens, self.ports, strict=False)  # none before it runs
        return [replace(address, port=port) for address, port in pairs]

    @property
    def sessions(self) -> list[Session]:
        """The sessions of the connections there are."""
        return list(self._live.values())

    @property
    def connections(self) -> dict[int, tuple[Pump, Session]]:
        """The connection that counts of each host that is there, by its id."""
        live = self._roster.hosts.items()
        return {host_id: (pump, self._live[pump]) for host_id, pump in live if pump in self._live}

    @property
    def _has_had_peer(self) -> bool:
        """True once a peer was let in."""
        live = any(pump.connection.remote_id is not None for pump in self._live)
        return live or bool(self._lost)

    def comes_within(self, host_id: int, seconds: float) -> bool:
        """True when a host that is not connected may be about to connect. Either it was connected
        less than `seconds` ago and has not ended in order, or this side began less than `seconds`
        ago, or a peer has not yet said who it is."""
        since = max(self._began, self._lost.get(host_id, -math.inf))
        is_new = any(pump.connection.remote_id is None for pump in self._live)
        return is_new or trio.current_time() < since + seconds

    def change(self, net: NetSettings, protocol: ProtocolSettings) -> None:
        """Other limits, for connections that come from now on; of what hosts are sent, at once."""
        self.settings, self.protocol = net, protocol
        self._roster.guests_max = net.guests_max
        for pump in self._live:
            pump.look_at_limit()

    def tell_queues(self, *, added: QueueNames, removed: QueueNames) -> None:
        """Tells all peers which queues there are from now on, and which are not."""
        for pump in self._live:
            pump.connection.change_queues(added=added, removed=removed)

    def renew(self, why: str) -> None:
        """Ends all connections, for the next ones to do better."""
        for pump in list(self._live):
            pump.renew(why)

    def renew_fixed(self, why: str) -> None:
        """The same, of those with peers that do not know how a queue turns round on a connection,
        as Java's."""
        for pump in list(self._live):
            is_open = pump.connection.remote_id is not None
            if is_open and not pump.connection.link.capabilities >= _TURNING:
                pump.renew(why)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listens or dials for the length of a block, then ends all connections in order.

        Raises:
            Unreachable: a port cannot be listened on. In an exception group: one that gives up
                did.
            Refused: in an exception group: one that gives up, and listens, and its first peer do
                not go together.
        """
        settings, self._began = self.settings, trio.current_time()
        async with self._opened() as sockets, trio.open_nursery() as nursery:
            nursery.start_soon(self._log.run)
            for socket in sockets:
                make_room = self._doorstep.make_room
                nursery.start_soon(listener.serve, socket, self._accepted, self._log, make_room)
            if sockets and settings.gives_up:
                nursery.start_soon(self._give_up)
            if settings.connect is not None:
                host_id = next(iter(self.protocol.remote_ids), ANY_HOST)
                nursery.start_soon(self._dial, settings.connect, host_id)
            for host_id, address in settings.peers.items():
                nursery.start_soon(self._dial, address, host_id)
            yield
            await self._end()
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[list[trio.SocketListener]]:
        """Listens on all addresses, or on none."""
        async with AsyncExitStack() as stack:
            found = []
            for address in self.settings.listens:
                socket = await listener.open_listener(address)
                found.append(await stack.enter_async_context(socket))
            self.ports = tuple(map(listener.listening_port, found))
            yield found

    async def _give_up(self) -> None:
        """Waits for a first peer for ever, and for the next one not so long; not where the first
        one and this side do not go together, as then it is to be said why."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            if self._refused_why is not None and not self._has_had_peer:
                raise Refused(self._refused_why)
            if any(pump.connection.remote_id is not None for pump in self._live):
                self._left_at = math.inf
            elif trio.current_time() >= self._left_at + dialer.GIVE_UP_SECONDS:
                raise Unreachable(
                    f"no peer within {dialer.GIVE_UP_SECONDS:g} s after the last one, which went:"
                    f" {self._left_why}"
                )

    async def _end(self) -> None:
        self._is_ending = True
        with trio.move_on_after(END_SECONDS):
            async with trio.open_nursery() as nursery:
                for pump, session in self._live.items():
                    nursery.start_soon(pump.end, session)

    async def _dial(self, address: Address, host_id: int) -> None:
        """Dials the host of this id, which is expected to answer there."""

        async def dialled(stream: trio.SocketStream) -> dialer.Dialled:
            return await self._serve(stream, host_id)

        await dialer.dial(address, dialled, gives_up=self.settings.gives_up)

    async def _accepted(self, stream: trio.SocketStream) -> None:
        await self._serve(stream, None)

    async def _serve(self, stream: trio.SocketStream, host_id: int | None) -> dialer.Dialled:
        """Runs one connection to its end.

        Args:
            host_id: of the host that was dialled; None for a connection that was accepted.
        """
        is_dialler = host_id is not None
        if self._is_ending:  # what was ended in order must not begin again
            await trio.aclose_forcefully(stream)
            await trio.sleep_forever()
        label = listener.peer_name(stream)
        connection = Connection(self._config(host_id), trio.current_time())
        window = surroundings().rarely("window", EXCERPTS_MAX, 1, 9, 40)
        if window < EXCERPTS_MAX:
            connection.hold_few(window)
        try:
            pump = Pump(
                stream,
                connection,
                label,
                self._admit,
                self.settings.pausing,
                guest_bytes_per_s=self.settings.guest_bytes_per_s,
                limit_of=self._limit_of,
                programs=self._programs,
                log=self._log,
            )
        except OSError as error:  # too few descriptors; later there may be some
            await trio.aclose_forcefully(stream)
            if not is_dialler:  # a dialler says so itself, now and then
                self._log.tell(logging.WARNING, label, f"closed: {error}")
            return dialer.Dialled(str(error))
        session = self._make_session(connection, pump)
        started = trio.current_time()
        self._live[pump] = session
        if not is_dialler:
            self._doorstep.enter(listener.machine_of(stream), pump)
        try:
            await pump.run(session)
        finally:
            del self._live[pump]
            self._roster.leave(pump)
            self._doorstep.leave(pump)
        if pump.ended_orderly:
            self.ended_orderly.set()
        if connection.remote_id is not None:
            self._lost[connection.remote_id] = (
                -math.inf if pump.ended_orderly else trio.current_time()
            )
            if not pump.has_failed:  # a peer that was refused does not count
                self._left_at, self._left_why = trio.current_time(), pump.ended_why
            self._log.tell(logging.INFO, pump.label, f"disconnected: {pump.ended_why}")
        elif connection.was_refused and not is_dialler:
            self._refused_why = f"{label}: {pump.ended_why}"
        elif not pump.heard and not is_dialler:
            self._log.tell(logging.INFO, label, "closed without having sent a byte")
        if pump.has_failed or pump.was_refused:
            return dialer.Dialled(pump.ended_why, is_refused=connection.was_refused)
        if connection.remote_id is None:
            return dialer.Dialled("the peer closed the connection before its UberHandler")
        lasted = trio.current_time() - started >= dialer.PAUSE_MAX_SECONDS
        return dialer.Dialled(None, session.has_progressed or lasted)

    def _limit_of(self, host_id: int) -> int:
        return self.settings.limit_of(host_id)

    async def _admit(self, host_id: int, pump: Pump) -> str | None:
        """The reason that a peer which has said who it is may not stay; None when it may."""
        self._doorstep.leave(pump)
        return await self._roster.enter(host_id, pump)

    def _config(self, host_id: int | None) -> ConnectionConfig:
        settings = self.protocol
        if host_id is not None:
            expected = frozenset() if host_id == ANY_HOST else frozenset({host_id})
            settings = replace(settings, remote_ids=expected)
        return ConnectionConfig(
            settings=settings,
            is_dialler=host_id is not None,
            takes=self._takes,
            programs=self._kinds,
            takes_guests=self.settings.guests_max > 0,
        )
