"""One connection, between its socket and the protocol core.

Three tasks in one nursery: the reader feeds the core and acts on its events one by one; the writer
is the only one that sends, control documents before frames; the clock calls `tick` when the core
says so. A full socket makes the writer wait in `send_all`, and while it waits no queue is read:
that is the push-back.

Where a native pump can do their work (`livepump`), the reader lends it the socket, and all that was
received and not taken. The queues that go out are lent with it when the writer leaves them to it,
which then only hands it what is to be said. They go on from where it stopped.
"""

import logging
import math
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from cqrepl.kernel.live import Pausing
from cqrepl.net.eventloop import read_by_none
from cqrepl.net.limits import REQUEST_BYTES, GuestPace
from cqrepl.net.link import Session
from cqrepl.net.peerlog import PeerLog
from cqrepl.net.program import Program, name_of
from cqrepl.net.sharedsocket import SharedSocket
from cqrepl.net.tokenbucket import Rooms, TokenBucket
from cqrepl.protocol import Connection, RemoteProtocolError
from cqrepl.protocol.events import (
    Acknowledged,
    CommitMoved,
    Connected,
    CopyAudited,
    Event,
    LevelReached,
    LevelWanted,
    OrderlyEnd,
    PeerLost,
    RegistrationRefused,
    TailerMoved,
    Told,
)
from cqrepl.protocol.programfault import Contained
from cqrepl.protocol.states import ConnectionState
from cqrepl.surroundings import surroundings

GUEST_PAUSE_MAX: Final = 0.1  # seconds between two receptions from a guest that sends much
REFUSAL_SECONDS: Final = 1.0  # longest wait for a peer to hear why it is not let in
_REST_BYTES: Final = 4096
CLOSE_SECONDS: Final = 1.0  # longest wait for the peer to close after our orderly end
_USER_TIMEOUT_MS: Final = 60_000
_OPTION_MAX: Final = (1 << 31) - 1
OF_NO_STREAM: Final = (
    Acknowledged | LevelReached | LevelWanted | CommitMoved | TailerMoved | CopyAudited
)
_logger = logging.getLogger(__name__)

Admit = Callable[[int, "Pump"], Awaitable[str | None]]
LimitOf = Callable[[int], int]


def _no_limit(host_id: int) -> int:
    return 0


class Pump:
    """Runs one connection from the accepted or dialled stream to its end.

    Args:
        label: how log lines name the peer.
        admit: told when the peer has named itself; answers with what is wrong, or None.
        pausing: how a source waits for the next excerpt.
        guest_bytes_per_s: what a peer that is no member may send; None for any number.
        guest_pace: of the requests of all such peers.
        limit_of: how many bytes of excerpts a second a host is sent; 0 for any number.
        programs: have handlers of their own on the connection.
        log: of what peers bring about.
        wire: the socket that the peer is at, where `stream` only leads there.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        connection: Connection,
        label: str,
        admit: Admit,
        pausing: Pausing = Pausing.BALANCED,
        *,
        guest_bytes_per_s: int | None = None,
        guest_pace: GuestPace | None = None,
        limit_of: LimitOf = _no_limit,
        programs: Sequence[Program] = (),
        log: PeerLog | None = None,
        wire: trio.SocketStream | None = None,
    ) -> None:
        self.stream = stream
        self._wire = wire or stream
        self.connection = connection
        self.label = label
        self.log = log or PeerLog()
        self.heard = False
        self.ended_orderly = False
        self.has_failed = False  # ended for a reason of ours that a new connection would meet again
        self.was_refused = False  # ended by us before the peer's UberHandler was accepted
        self.ended_why = ""
        self.ended = trio.Event()
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._clock = trio.CancelScope()
        self._admit = admit
        self._guest_bytes_per_s = guest_bytes_per_s
        self._guest_pace = guest_pace
        self._requests = 0  # of a guest, that have been acted on since it was read from
        # bytes that are taken at a time, of a guest
        self._guest_room = surroundings().rarely("receive", None, 1, 13, 300)
        self._programs = programs
        self._limit_of = limit_of
        self._bucket = TokenBucket()
        self._shared = SharedSocket(stream, connection, pausing, self._bucket, self.wake)
        # what came while a live pump ran, and is acted on when that is back
        self._kept: Event | RemoteProtocolError | None = None

    async def run(self, session: Session) -> None:
        """Returns when the connection is over; `ended_orderly` and `ended_why` say how."""
        timeout_ms = self.connection.config.settings.heartbeat.timeout_ms
        _set_options(self._wire.socket, timeout_ms)
        self.connection.on_wake(self.wake)
        self.connection.on_fault(self._log_fault)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, session)
                    nursery.start_soon(self._tick)
                    nursery.start_soon(session.work)
                    if self._shared.live is not None:
                        nursery.start_soon(self._shared.live.guard)
                    await self._read(session)
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                try:
                    self.connection.close(self.ended_why or "the connection is over")
                finally:  # what a program raises keeps no queue
                    await session.close()
                    await trio.aclose_forcefully(self.stream)
                    self._shared.close()
                    self.ended.set()

    async def stop(self, why: str) -> None:
        """Ends the connection without a word to the peer, and waits until it has ended."""
        self._end(why)
        await self.ended.wait()

    def dismiss(self, why: str) -> None:
        """Ends the connection of a peer that has not said who it is."""
        self.log.tell(logging.INFO, self.label, f"closed: {why}")
        self.heard = True  # or it would be said that it sent nothing
        self._end(why)

    def fail(self, why: str) -> None:
        """Ends the connection for a reason of ours that is likely to be there again."""
        self.has_failed = True
        self._end(why)

    def renew(self, why: str) -> None:
        """Ends the connection, with which nothing is wrong, for a new one to begin otherwise."""
        self._end(why)

    async def end(self, session: Session) -> None:
        """Ends in order: drains, announces it, and lets the peer close first. Bounded by the
        caller."""
        session.drain()
        self.call_back()
        if self.connection.state is not ConnectionState.OPEN:
            self._end("ended")
            return
        while not (session.is_settled and self._shared.is_idle) and not self.ended.is_set():
            await trio.sleep(0.005)
        if self.connection.state is ConnectionState.OPEN:
            self.connection.end()
            self.wake()
            with trio.move_on_after(CLOSE_SECONDS):
                await self.ended.wait()
        self._end("ended")

    def wake(self) -> None:
        """Something may be there to send."""
        self._wake.set()

    def look(self) -> None:
        """There is something to act on that did not come from the peer."""
        self._shared.look_again()
        self.wake()

    def nudge(self) -> None:
        """A live pump looks whether its lanes have something to say."""
        self._shared.nudge()

    def call_back(self) -> None:
        """A live pump stops as soon as it can: its work is no longer what it was."""
        self._shared.call_back()

    def look_at_limit(self) -> None:
        """The limit of what the peer is sent may be another one."""
        host_id = self.connection.remote_id
        bytes_per_s = 0 if host_id is None else self._limit_of(host_id)
        if bytes_per_s != self._bucket.bytes_per_s:
            self._bucket.limit(bytes_per_s, trio.current_time())
            self.call_back()  # a live pump still has the old one
            self.wake()

    async def have_back(self) -> None:
        """The same; ends when it has, and all that it has done counts."""
        await self._shared.have_back()

    async def _read(self, session: Session) -> None:
        while self.connection.state is not ConnectionState.CLOSED:
            try:
                if not await self._shared.lend(session, partial(self._act_live, session)):
                    await self._receive()
            except OSError as error:
                self._end(f"connection broken: {error.strerror or error}")
                return
            session.catch_up()
            if not await self._act_on_events(session):
                return
            if self._requests and self._guest_pace is not None and self.connection.is_guest:
                await trio.sleep(self._guest_pace.wait(self._requests, trio.current_time()))
                self._requests = 0
            self._clock.deadline = self.connection.next_deadline()
            self.wake()

    async def _receive(self) -> None:
        into = self.stream.socket.recv_into
        count = await self._shared.receive(lambda: into(self._room()))
        if count is None:
            return  # there is something else to do
        now = trio.current_time()
        if count:
            self.heard = True
            self.connection.received(count, now)
            if self._guest_room is not None and self._guest_bytes_per_s is not None:
                await trio.sleep(count / self._guest_bytes_per_s)
        else:
            self.connection.receive_end(now)

    def _room(self) -> memoryview:
        return self.connection.receive_room()[: self._guest_room]

    async def _act_on_events(self, session: Session) -> bool:
        """Acts on all events there are; false when the connection is over."""
        try:
            while (event := self._next_event()) is not None:
                if isinstance(event, OrderlyEnd | PeerLost):
                    await session.settle()
                    self._note_end(event)
                    return False
                if isinstance(event, Connected) and not await self._is_admitted(event):
                    return False
                if isinstance(event, RegistrationRefused):
                    self._log_refusal(event)
                self._requests += isinstance(event, RegistrationRefused | Told)
                if isinstance(event, Connected):
                    self._name_queues(session)
                if self._programs and isinstance(event, Connected | Told):
                    await self._act_on_programs(event)
                await session.act(event)
        except RemoteProtocolError as error:
            if self.connection.remote_id is None and not self.connection.config.is_dialler:
                await self._tell_refused()
            self._close(error)
            return False
        return True

    async def _act_live(self, session: Session) -> bool:
        """Acts on what a live pump has handed over; false once the pump has to come back for it."""
        while self._kept is None:
            try:
                event = self.connection.next_event()
            except RemoteProtocolError as error:
                self._kept = error
                return False
            if event is None:
                self._clock.deadline = self.connection.next_deadline()
                self.wake()
                return True
            if isinstance(event, OF_NO_STREAM):  # they change no stream
                await session.act(event)
            else:
                self._kept = event
        return False

    def _next_event(self) -> Event | None:
        kept, self._kept = self._kept, None
        if isinstance(kept, RemoteProtocolError):
            raise kept
        return self.connection.next_event() if kept is None else kept

    async def _tell_refused(self) -> None:
        """Sends a peer that is not let in why that is, if the core says anything of it; for as long
        as that peer listens, but not for long."""
        why = self.connection.data_to_send()
        with trio.move_on_after(REFUSAL_SECONDS), suppress(trio.BrokenResourceError):
            if why:
                await self.stream.send_all(why)
                await self.stream.send_eof()
                # what is closed with bytes unread is reset, and the peer may lose what it was sent
                while await self.stream.receive_some(_REST_BYTES):
                    pass

    def _name_queues(self, session: Session) -> None:
        is_open = self.connection.state is ConnectionState.OPEN  # or ended while it was let in
        is_host = not (self.connection.is_guest or self.connection.config.settings.guest)
        if is_open and is_host and self.connection.names_queues:
            self.connection.name_queues(session.queue_names)

    async def _act_on_programs(self, event: Connected | Told) -> None:
        """Has each program hear of the peer, or one of them what its handler tells."""
        for number, program in enumerate(self._programs):
            if isinstance(event, Told) and event.program != number:
                continue
            link = self.connection.link_of(number)
            report = partial(self._fail_by_program, program)
            with Contained(report, RemoteProtocolError), read_by_none():
                if isinstance(event, Told):
                    await program.told(link, event.event)
                else:
                    await program.connected(link)
            if self.has_failed:  # the connection is over, for those behind this one, too
                return

    def _fail_by_program(self, program: Program, error: Exception) -> None:
        """Ends the connection: a program has not dealt with what it was told."""
        why = f"the program has failed: {name_of(program)}: {error!r}"
        _logger.error("%s: closed: %s", self.label, why, exc_info=error)
        self.fail(why)

    def _log_fault(self, where: str, error: Exception) -> None:
        what = "the program has failed; its handler ends"
        _logger.error("%s: %s: %s: %r", self.label, where, what, error, exc_info=error)

    async def _is_admitted(self, event: Connected) -> bool:
        problem = await self._admit(event.remote_id, self)
        if problem is not None:
            self.log.tell(logging.WARNING, self.label, f"refused: {problem}")
            if self.connection.refuse(problem):
                await self._tell_refused()
            self.fail(problem)
            return False
        self.look_at_limit()
        if self._guest_bytes_per_s is not None and self.connection.is_guest:
            most = max(1, int(self._guest_bytes_per_s * GUEST_PAUSE_MAX))
            self._guest_room = most if self._guest_pace is None else min(most, REQUEST_BYTES)
        who = "guest" if self.connection.is_guest else f"host {event.remote_id}"
        self.label = f"{who} at {self.label}"
        self.log.tell(logging.INFO, self.label, "connected")
        return True

    async def _write(self, session: Session) -> None:
        out = bytearray()
        shared = self._shared
        try:
            while True:
                self._wake = trio.Event()
                if await shared.say():
                    # looked at again before any frame: a registration goes before its queue's
                    # frames
                    continue
                if self.connection.state is ConnectionState.ENDING:
                    await self.stream.send_eof()
                    return
                if self.connection.state is ConnectionState.CLOSED:
                    return
                if shared.leaves_queues:
                    await shared.wait(self._wake)
                    continue
                now = trio.current_time()
                filled, rooms = 0, self._bucket.rooms(now)
                if not rooms.live:
                    with trio.move_on_after(self._bucket.pause(now)):
                        await self._wake.wait()
                    continue
                if self.connection.remote_id is not None:  # a silent peer costs no buffer
                    if len(out) != session.out_bytes:
                        out = bytearray(session.out_bytes)
                    filled = session.frame(out, rooms)
                if filled:
                    self._bucket.spend(filled)
                    shared.found_frames()
                    await shared.send_frames(memoryview(out)[:filled])
                    if session.polls(rooms):
                        shared.leave_queues()
                elif self.connection.has_data_to_send:
                    continue
                elif len(out) != session.out_bytes and self.connection.remote_id is not None:
                    continue  # what is next takes a larger buffer
                elif not session.polls(rooms):
                    with trio.move_on_after(self._tokens_in(rooms, now)):
                        await self._wake.wait()
                elif not shared.leave_queues():
                    watched = partial(session.watched, rooms)
                    limit_s = self._tokens_in(rooms, now)
                    await shared.pauser.pause(self._wake, watched, limit_s)
        except trio.BrokenResourceError as error:
            shared.is_mute = True
            # the reader still takes what the peer said before it went, and ends the pump
            _logger.debug("%s: cannot send: %s", self.label, error.__cause__ or error)

    def _tokens_in(self, rooms: Rooms, now: float) -> float:
        """In how many seconds queues are looked at again that have much, and have no room."""
        return math.inf if rooms.much else self._bucket.pause(now, of_much=True)

    async def _tick(self) -> None:
        while True:
            with trio.CancelScope(deadline=self.connection.next_deadline()) as self._clock:
                await trio.sleep_forever()
            if self.connection.judges_peer(trio.current_time()):
                await self._shared.have_back()  # what a live pump has heard counts
            try:
                self.connection.tick(trio.current_time())
            except RemoteProtocolError as error:
                self._close(error)
                return
            if self.connection.has_events:
                self.look()
            self.wake()

    def _note_end(self, event: Event) -> None:
        if isinstance(event, OrderlyEnd):
            self.ended_orderly = True
            self._end("ended in order by the peer")
        elif isinstance(event, PeerLost):
            is_nobody = self.connection.remote_id is None and self.heard
            if is_nobody and not self.connection.config.is_dialler:  # who says so for itself
                self.log.tell(logging.INFO, self.label, f"closed: {event.message}")
            self._end(event.message)

    def _close(self, error: RemoteProtocolError) -> None:
        self.was_refused = self.connection.remote_id is None
        # a dialler meets the same peer again and again, and tells of it once a minute
        is_repeated = self.was_refused and self.connection.config.is_dialler
        level = logging.DEBUG if is_repeated else logging.WARNING
        self.log.tell(level, self.label, f"closed: {error}")
        self._end(str(error))

    def _log_refusal(self, event: RegistrationRefused) -> None:
        # the core closes the connection after a hundred; the first few say what it is about
        if event.count <= 3:
            self.log.tell(logging.WARNING, self.label, f"refused: {event.message}")

    def _end(self, why: str) -> None:
        if not self.ended_why:
            self.ended_why = why
        self._scope.cancel()


def _set_options(peer: trio.socket.SocketType, silence_ms: int) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # data that is never acknowledged by the peer's machine ends the connection, heartbeat or
        # not (it also ends one whose window stays closed: not before the heartbeat would)
        timeout_ms = min(max(_USER_TIMEOUT_MS, silence_ms), _OPTION_MAX)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
