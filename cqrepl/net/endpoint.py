"""What a source and a sink have in common: connections, from the first dial to the orderly end."""

import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio

from cqrepl.kernel.live import Pausing
from cqrepl.net import dialer, listener
from cqrepl.net.address import Address
from cqrepl.net.errors import Refused
from cqrepl.net.link import Session
from cqrepl.net.pump import Pump
from cqrepl.net.roster import Roster
from cqrepl.protocol import PAYLOAD_MAX, Connection, ConnectionConfig, Role, WireShape
from cqrepl.protocol.connection import FRAME_OVERHEAD_MAX
from cqrepl.protocol.heartbeat import numbers_problem

HOST_IDS: Final = range(1, 128)  # one signed byte on Java's side; 0 switches its check off
EXCERPT_MAX: Final = (1 << 30) - 4 - FRAME_OVERHEAD_MAX  # a frame's length has 30 bits
CORES_BUSY: Final = 2  # one that spins, and one for all other threads
END_SECONDS: Final = 1.2  # longest time for all connections to end in order; a command has 2
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this host takes part. Exactly one of `listen` and `connect` is given.

    Args:
        remote_ids: accepted host ids; empty for any but our own. A dialler names exactly one.
        gives_up: a dialler stops after 30 s without success.
        pausing: how a source waits for the next excerpt.
    """

    role: Role
    host_id: int
    listen: Address | None = None
    connect: Address | None = None
    remote_ids: frozenset[int] = frozenset()
    heartbeat_interval_ms: int = 20_000
    heartbeat_timeout_ms: int = 40_000
    payload_max: int = PAYLOAD_MAX
    shape: WireShape = WireShape.NETWORK
    gives_up: bool = False
    pausing: Pausing = Pausing.BALANCED

    @classmethod
    def checked(
        cls,
        role: Role,
        *,
        listen: str | None,
        connect: str | None,
        host_id: int,
        remote_ids: Iterable[int],
        remote_id_default: int,
        heartbeat_interval_ms: int,
        heartbeat_timeout_ms: int,
        payload_max: int,
        shape: WireShape,
        gives_up: bool,
        pauser: str = "balanced",
    ) -> "Settings":
        """Settings as a user gives them.

        Raises:
            ValueError: they do not fit together; one sentence says how.
            Refused: a host id that both sides would have.
        """
        if (listen is None) == (connect is None):
            raise ValueError("either an address to listen on or one to connect to is needed")
        problem = numbers_problem(heartbeat_timeout_ms, heartbeat_interval_ms)
        if problem is not None:
            raise ValueError(problem)
        if not 0 < payload_max <= EXCERPT_MAX:
            raise ValueError(
                f"a longest excerpt of 1 to {EXCERPT_MAX} bytes expected, {payload_max} came"
            )
        ids = frozenset(remote_ids)
        if connect is not None:
            ids = ids or frozenset({remote_id_default})
            if len(ids) > 1:
                raise ValueError("a side that connects expects one remote id")
        for each in (host_id, *ids):
            if each not in HOST_IDS:
                raise ValueError(f"a host id from 1 to 127 expected, {each} came")
        if host_id in ids:
            raise Refused(
                f"host id {host_id} is this side's own and the remote id: they must differ"
            )
        return cls(
            role=role,
            host_id=host_id,
            listen=None if listen is None else Address.parse(listen),
            connect=None if connect is None else Address.parse(connect),
            remote_ids=ids,
            heartbeat_interval_ms=heartbeat_interval_ms,
            heartbeat_timeout_ms=heartbeat_timeout_ms,
            payload_max=payload_max,
            shape=shape,
            gives_up=gives_up,
            pausing=_pausing(pauser),
        )


def _pausing(pauser: str) -> Pausing:
    words = [each.name.lower() for each in Pausing]
    if pauser not in words:
        raise ValueError(f"a pauser out of {', '.join(words)} expected, {pauser!r} came")
    pausing = Pausing[pauser.upper()]
    if pausing is Pausing.BUSY and len(os.sched_getaffinity(0)) < CORES_BUSY:
        raise ValueError("the pauser 'busy' keeps one core: at least two expected, there is one")
    return pausing


MakeSession = Callable[[Connection, Pump], Session]


class Endpoint:
    """Runs the connections of one source or sink."""

    def __init__(
        self, settings: Settings, queue_names: frozenset[str], make_session: MakeSession
    ) -> None:
        self.settings = settings
        self.port: int | None = None
        self.ended_orderly = trio.Event()  # some peer has ended in order
        self._queue_names = queue_names
        self._make_session = make_session
        self._roster = Roster()
        self._live: dict[Pump, Session] = {}
        self._is_ending = False

    @property
    def sessions(self) -> list[Session]:
        """The sessions of the connections there are."""
        return list(self._live.values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listens or dials for the length of a block, then ends all connections in order.

        Raises:
            Unreachable: the port cannot be listened on. In an exception group: a dialler that
                gives up did.
        """
        settings = self.settings
        socket: trio.SocketListener | None = None
        if settings.listen is not None:
            socket = await listener.open_listener(settings.listen)
            self.port = listener.listening_port(socket)
        async with trio.open_nursery() as nursery:
            if socket is not None:
                nursery.start_soon(listener.serve, socket, self._accepted)
            else:
                assert settings.connect is not None
                nursery.start_soon(self._dial, settings.connect)
            yield
            await self._end()
            nursery.cancel_scope.cancel()

    async def _end(self) -> None:
        self._is_ending = True
        with trio.move_on_after(END_SECONDS):
            async with trio.open_nursery() as nursery:
                for pump, session in self._live.items():
                    nursery.start_soon(pump.end, session)

    async def _dial(self, address: Address) -> None:
        await dialer.dial(address, self._dialled, gives_up=self.settings.gives_up)

    async def _accepted(self, stream: trio.SocketStream) -> None:
        await self._serve(stream, is_dialler=False)

    async def _dialled(self, stream: trio.SocketStream) -> dialer.Dialled:
        return await self._serve(stream, is_dialler=True)

    async def _serve(self, stream: trio.SocketStream, *, is_dialler: bool) -> dialer.Dialled:
        """Runs one connection to its end."""
        if self._is_ending:  # what was ended in order must not begin again
            await trio.aclose_forcefully(stream)
            await trio.sleep_forever()
        label = listener.peer_name(stream)
        connection = Connection(self._config(is_dialler=is_dialler), trio.current_time())
        pump = Pump(stream, connection, label, self._roster.enter, self.settings.pausing)
        session = self._make_session(connection, pump)
        started = trio.current_time()
        self._live[pump] = session
        try:
            await pump.run(session)
        finally:
            del self._live[pump]
            self._roster.leave(pump)
        if pump.ended_orderly:
            self.ended_orderly.set()
        if connection.remote_id is not None:
            _logger.info("%s: disconnected: %s", pump.label, pump.ended_why)
        elif not pump.heard and not is_dialler:
            _logger.info("%s: closed without having sent a byte", label)
        if pump.has_failed or pump.was_refused:
            return dialer.Dialled(pump.ended_why)
        if connection.remote_id is None:
            return dialer.Dialled("the peer closed the connection before its UberHandler")
        lasted = trio.current_time() - started >= dialer.PAUSE_MAX_SECONDS
        return dialer.Dialled(None, session.has_progressed or lasted)

    def _config(self, *, is_dialler: bool) -> ConnectionConfig:
        settings = self.settings
        return ConnectionConfig(
            role=settings.role,
            is_dialler=is_dialler,
            host_id=settings.host_id,
            remote_ids=settings.remote_ids,
            queue_names=self._queue_names,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            heartbeat_timeout_ms=settings.heartbeat_timeout_ms,
            payload_max=settings.payload_max,
            shape=settings.shape,
            cid_first=time.time_ns() // 1000,  # unlike any that the peer has chosen
        )
