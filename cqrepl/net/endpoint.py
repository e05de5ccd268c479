"""The connections of a host, from the first dial to the orderly end."""

import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from cqrepl.net import dialer, listener
from cqrepl.net.address import Address
from cqrepl.net.doorstep import Doorstep
from cqrepl.net.errors import Refused, Unreachable
from cqrepl.net.limits import GuestPace
from cqrepl.net.link import Session
from cqrepl.net.peerlog import PeerLog
from cqrepl.net.program import Program, check_kinds
from cqrepl.net.pump import Pump
from cqrepl.net.rights import Right, Subject
from cqrepl.net.roster import Roster
from cqrepl.net.settings import NetSettings
from cqrepl.net.tlsgate import EXPECTED, TlsGate, warn_of_plain
from cqrepl.net.tlsline import TlsLine
from cqrepl.net.tlssettings import is_local_name
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
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The way that a connection has come about.

    Args:
        host_id: of the host that was dialled; None for a connection that was accepted.
        line: its TLS; None where it has none.
        refused: why its peer is not let in, once it has said who it is; or empty.
        hosts: ids that a peer may have, which are no guests; None: as the settings say.
        is_local: the peer is on this machine.
    """

    host_id: int | None = None
    line: TlsLine | None = None
    refused: str = ""
    hosts: frozenset[int] | None = None
    is_local: bool = False


class Endpoint:
    """Runs the connections of one host.

    Args:
        takes: names of the queues that may be offered to this side; there may come more.
        make_session: makes what works on a new connection.
        programs: add handlers of their own.

    Raises:
        ValueError: two programs add a kind of the same name.
        BadCredentials: a file of certificates or keys cannot be used.
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
        self._doorstep = Doorstep(net.cost.per_address, net.cost.unauthenticated)
        self._guest_pace = GuestPace(net.cost.guest_requests_per_s)
        self._log = PeerLog()
        own_id = None if protocol.guest else protocol.host_id
        self.gate = TlsGate(net, own_id, self._doorstep, self._log)
        self._carriers: trio.Nursery | None = None  # while it runs
        self._live: dict[Pump, Session] = {}
        self._unwanted: dict[Pump, str] = {}  # who is told why it is not let in
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
        rights, self.settings, self.protocol = self.settings.rights, net, protocol
        if net.rights != rights:
            self.renew("the rights of peers have changed")
        self._roster.guests_max = net.guests_max
        self._doorstep.each_max = net.cost.per_address
        self._doorstep.all_max = net.cost.unauthenticated
        self._guest_pace.per_s = net.cost.guest_requests_per_s
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
            self._carriers = nursery
            nursery.start_soon(self._log.run)
            nursery.start_soon(self.gate.run)
            make_room = self._doorstep.make_room
            for nth, socket in enumerate(sockets):
                take = self._accepted if nth < len(settings.listens) else self._accepted_plain
                most = self._connections_max
                nursery.start_soon(listener.serve, socket, take, self._log, make_room, most)
            if sockets and settings.gives_up:
                nursery.start_soon(self._give_up)
            if settings.connect is not None:
                host_id = next(iter(self.protocol.remote_ids), ANY_HOST)
                nursery.start_soon(self._dial, settings.connect, host_id)
                warn_of_plain(settings, {host_id: settings.connect}, _logger.warning)
            else:
                warn_of_plain(settings, settings.peers, _logger.warning)
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
            plain = self.settings.tls.plain
            also = () if plain is None or plain.listen is None else (plain.listen,)
            for address in (*self.settings.listens, *also):
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
            if self.settings.tls.meets_plain(host_id) or self._is_ending:
                return await self._serve(stream, _Way(host_id=host_id))
            entry = await self.gate.dial(stream, host_id, self._handshake_s)
            if entry.line is None:
                await trio.aclose_forcefully(stream)
                return dialer.Dialled(entry.problem, is_refused=entry.is_final)
            return await self._serve(stream, _Way(host_id=host_id, line=entry.line))

        await dialer.dial(address, dialled, gives_up=self.settings.gives_up)

    async def _accepted(self, stream: trio.SocketStream) -> None:
        if not self.settings.tls.is_on or self._is_ending:
            await self._serve(stream, _Way())
            return
        label, machine = listener.peer_name(stream), listener.machine_of(stream)
        entry = await self.gate.accept(stream, label, machine, self._handshake_s)
        if entry.line is not None:
            await self._serve(stream, _Way(line=entry.line))
        elif entry.problem == EXPECTED:
            await self._serve(stream, _Way(refused=EXPECTED))

    async def _accepted_plain(self, stream: trio.SocketStream) -> None:
        """One that has come where hosts without TLS are waited for."""
        plain = self.settings.tls.plain
        assert plain is not None
        machine = listener.machine_of(stream)
        if plain.takes(machine):
            await self._serve(stream, _Way(hosts=plain.hosts))
        else:
            wanted = ", ".join(plain.networks)
            why = f"refused: expected an address of {wanted} without TLS"
            self._log.tell(logging.WARNING, listener.peer_name(stream), why)

    async def _serve(self, stream: trio.SocketStream, way: _Way) -> dialer.Dialled:
        """Runs one connection to its end."""
        line, host_id = way.line, way.host_id
        if line is None:
            return await self._run(stream, stream, way)
        assert self._carriers is not None
        self._carriers.start_soon(line.carry)
        try:
            dialled = await self._run(line.stream, stream, way)
        finally:
            await line.close()
        if line.problem and host_id is not None and (dialled.problem or not dialled.was_useful):
            return dialer.Dialled(line.problem, is_refused=True)
        return dialled

    async def _run(
        self, stream: trio.SocketStream, wire: trio.SocketStream, way: _Way
    ) -> dialer.Dialled:
        """The same.

        Args:
            stream: plain bytes to the peer and from it.
            wire: at which the peer is.
        """
        line, host_id = way.line, way.host_id
        is_dialler = host_id is not None
        if self._is_ending:  # what was ended in order must not begin again
            await trio.aclose_forcefully(wire)
            await trio.sleep_forever()
        label = listener.peer_name(wire)
        way = replace(way, is_local=is_local_name(label))
        connection = Connection(self._config(way), trio.current_time())
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
                guest_pace=self._guest_pace,
                limit_of=self._limit_of,
                programs=self._programs,
                log=self._log,
                wire=wire,
            )
        except OSError as error:  # too few descriptors; later there may be some
            await trio.aclose_forcefully(stream)
            if not is_dialler:  # a dialler says so itself, now and then
                self._log.tell(logging.WARNING, label, f"closed: {error}")
            return dialer.Dialled(str(error))
        session = self._make_session(connection, pump)
        started = trio.current_time()
        self._live[pump] = session
        if line is not None:
            self.gate.entered(pump, line)
        if way.refused:
            self._unwanted[pump] = way.refused
        if not is_dialler:
            self._doorstep.enter(listener.machine_of(wire), pump)
        try:
            await pump.run(session)
        finally:
            del self._live[pump]
            self._unwanted.pop(pump, None)
            self.gate.left(pump)
            self._roster.leave(pump)
            self._doorstep.leave(pump)
        lasted = trio.current_time() - started >= dialer.PAUSE_MAX_SECONDS
        self._note_end(pump, way, label)
        if pump.has_failed or pump.was_refused:
            return dialer.Dialled(pump.ended_why, is_refused=connection.was_refused)
        if connection.remote_id is None:
            return dialer.Dialled("the peer closed the connection before its UberHandler")
        return dialer.Dialled(None, session.has_progressed or lasted)

    def _note_end(self, pump: Pump, way: _Way, label: str) -> None:
        """Keeps, and says, how a connection has ended."""
        connection, is_dialler = pump.connection, way.host_id is not None
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
            self._log.tell(logging.INFO, label, _silent(way.line))

    @property
    def _handshake_s(self) -> float:
        return self.settings.cost.handshake_seconds

    def _connections_max(self) -> int:
        return self.settings.cost.connections

    def _limit_of(self, host_id: int) -> int:
        return self.settings.limit_of(host_id)

    async def _admit(self, host_id: int, pump: Pump) -> str | None:
        """The reason that a peer which has said who it is may not stay; None when it may."""
        self._doorstep.leave(pump)
        problem = self._unwanted.get(pump) or self.gate.problem(pump, host_id)
        return problem or await self._roster.enter(host_id, pump)

    def _config(self, way: _Way) -> ConnectionConfig:
        settings, host_id = self.protocol, way.host_id
        if way.hosts is not None:
            known = way.hosts & settings.remote_ids if settings.remote_ids else way.hosts
            settings = replace(settings, remote_ids=known)
        if host_id is not None:
            expected = frozenset() if host_id == ANY_HOST else frozenset({host_id})
            settings = replace(settings, remote_ids=expected)
        return ConnectionConfig(
            settings=settings,
            is_dialler=host_id is not None,
            takes=self._takes,
            programs=self._kinds,
            takes_guests=self.settings.guests_max > 0 and way.hosts is None,
            refusal=partial(self._lacks, way),
        )

    def _lacks(self, way: _Way, host_id: int, guest: str, right: str, queue: str) -> str:
        """The reason that a peer may not do something with a queue; empty where it may."""
        peer = None if way.line is None else way.line.peer
        if peer is not None and not host_id:
            guest = next(iter(sorted(peer.guests)), guest)
        subject = Subject(
            host_id=host_id,
            guest=guest,
            is_local=way.is_local,
            is_plain=way.line is None and self.settings.tls.is_on,
            has_tls=peer is not None,
        )
        return self.settings.rights.refusal(subject, Right(right), queue)


def _silent(line: TlsLine | None) -> str:
    """The words for a connection that has ended before its first byte."""
    if line is None:
        return "closed without having sent a byte"
    why = line.problem or f"it may not take {line.credentials.settings.cert}"
    return f"{line.peer}: closed without having sent a byte: {why}"
