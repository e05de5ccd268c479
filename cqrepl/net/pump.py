"""One connection, between its socket and the protocol core.

Three tasks in one nursery: the reader feeds the core and acts on its events one by one; the writer
is the only one that sends, control documents before frames; the clock calls `tick` when the core
says so. A full socket makes the writer wait in `send_all`, and while it waits no queue is read:
that is the push-back.

Once nothing is left to catch up with, the writer of a source and the reader of a sink let a native
pump do their work (`live`), and take over again from where it stopped.
"""

import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Final

import trio

from cqrepl.kernel.live import Ended, Pausing
from cqrepl.net.link import Session
from cqrepl.net.livepump import (
    SLICE_MIXED_MS,
    SLICE_MS,
    SLICES_OF_SILENCE,
    LivePump,
    Received,
    Streamed,
    pump_for,
)
from cqrepl.net.peerlog import PeerLog
from cqrepl.net.program import Program
from cqrepl.net.readturn import ReadTurn
from cqrepl.net.writerpauser import WriterPauser
from cqrepl.protocol import Connection, RemoteProtocolError
from cqrepl.protocol.events import (
    Connected,
    Event,
    OrderlyEnd,
    PeerLost,
    RegistrationRefused,
    Told,
)
from cqrepl.protocol.states import ConnectionState

# a sink's live pump may meet so often in a row what it does not know; then it rests for some turns
FRUITLESS_MAX: Final = 2
FRUITLESS_PAUSE: Final = 64
GUEST_PAUSE_MAX: Final = 0.1  # seconds between two receptions from a guest that sends much
REFUSAL_SECONDS: Final = 1.0  # longest wait for a peer to hear why it is not let in
_REST_BYTES: Final = 4096
CLOSE_SECONDS: Final = 1.0  # longest wait for the peer to close after our orderly end
_USER_TIMEOUT_MS: Final = 60_000
_OPTION_MAX: Final = (1 << 31) - 1
_logger = logging.getLogger(__name__)

Admit = Callable[[int, "Pump"], Awaitable[str | None]]


class Pump:
    """Runs one connection from the accepted or dialled stream to its end.

    Args:
        label: how log lines name the peer.
        admit: told when the peer has named itself; answers with what is wrong, or None.
        pausing: how a source waits for the next excerpt.
        guest_bytes_per_s: what a peer that is no member may send; None for any number.
        program: has handlers of its own on the connection.
        log: of what peers bring about.
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
        program: Program | None = None,
        log: PeerLog | None = None,
    ) -> None:
        self.stream = stream
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
        self._pausing = pausing
        self._guest_bytes_per_s = guest_bytes_per_s
        self._program = program
        self._live = pump_for(stream)
        self._turn = ReadTurn()
        self._hears_live = True  # the live pump of a source takes acknowledgements
        self._heard_live: Streamed | None = None  # what it has left for the reader
        self._is_back = trio.Event()  # no live pump receives, and what one has left is taken
        self._is_back.set()
        self._unsent = b""  # left over by a live pump: goes before anything else
        self._is_sending = False
        self._is_streaming = False  # the live pump is the writer
        self._is_quiet = False  # it had nothing to send the last time
        self._fruitless = 0  # times that the live pump of a sink came back with nothing done

    async def run(self, session: Session) -> None:
        """Returns when the connection is over; `ended_orderly` and `ended_why` say how."""
        timeout_ms = self.connection.config.settings.heartbeat.timeout_ms
        _set_options(self.stream.socket, timeout_ms)
        self.connection.on_wake(self.wake)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, session)
                    nursery.start_soon(self._tick)
                    nursery.start_soon(session.work)
                    if self._live is not None:
                        nursery.start_soon(self._live.guard)
                    await self._read(session)
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                try:
                    self.connection.close(self.ended_why or "the connection is over")
                finally:  # what a program raises keeps no queue
                    await session.close()
                    await trio.aclose_forcefully(self.stream)
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

    async def end(self, session: Session) -> None:
        """Ends in order: drains, announces it, and lets the peer close first. Bounded by the
        caller."""
        session.drain()
        self.call_back()
        if self.connection.state is not ConnectionState.OPEN:
            self._end("ended")
            return
        while not (session.is_settled and self._is_idle) and not self.ended.is_set():
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
        if self._is_streaming and self.connection.has_data_to_send:
            self.call_back()

    def look(self) -> None:
        """There is something to act on that did not come from the peer."""
        self._turn.interrupt()
        self.call_back()
        self.wake()

    def call_back(self) -> None:
        """A live pump stops as soon as it can: its work is no longer what it was."""
        if self._live is not None:
            self._live.interrupt()

    async def _read(self, session: Session) -> None:
        while self.connection.state is not ConnectionState.CLOSED:
            try:
                is_live = await self._receive_live(session)
                if not is_live:
                    await self._receive()
            except OSError as error:
                self._end(f"connection broken: {error.strerror or error}")
                return
            session.catch_up()
            if not await self._act_on_events(session):
                return
            self._clock.deadline = self.connection.next_deadline()
            self.wake()

    async def _receive(self) -> None:
        count = await self._turn.read(lambda: self.stream.socket.recv_into(self._room()))
        if count is None:
            self._take_left()  # the live pump has received
            return
        now = trio.current_time()
        if count:
            self.heard = True
            self.connection.received(count, now)
            if self._guest_bytes_per_s is not None and self.connection.is_guest:
                await trio.sleep(count / self._guest_bytes_per_s)
        else:
            self.connection.receive_end(now)

    def _room(self) -> memoryview:
        room = self.connection.receive_room()
        if self._guest_bytes_per_s is None or not self.connection.is_guest:
            return room
        return room[: max(1, int(self._guest_bytes_per_s * GUEST_PAUSE_MAX))]

    async def _receive_live(self, session: Session) -> bool:
        """Lets the live pump receive for a slice of time; false when that is not for it."""
        if self._live is None or self._is_sending or self._unsent:
            return False
        if self._fruitless >= FRUITLESS_MAX:  # it does not know what comes here
            self._fruitless = 0 if self._fruitless >= FRUITLESS_PAUSE else self._fruitless + 1
            return False
        if self._live.steps and await self._turn.read(self._readable) is None:
            self._take_left()
            return True
        lanes = session.lanes_in()
        if not lanes:
            return False
        data = self._hand_over()
        try:
            said = self.connection.data_to_send()
            came = await self._live.receive(lanes, data, said, slice_ms=self._slice_ms)
        finally:
            has_stored = session.leave_lanes()
            self._is_back.set()
        self._unsent = came.unsent
        self._hand_back(came)
        is_fruitless = came.ended is Ended.UNUSUAL and not has_stored
        self._fruitless = self._fruitless + 1 if is_fruitless else 0
        return True

    async def _readable(self) -> int:
        await trio.lowlevel.wait_readable(self.stream.socket.fileno())
        return 1

    async def _act_on_events(self, session: Session) -> bool:
        """Acts on all events there are; false when the connection is over."""
        try:
            while (event := self.connection.next_event()) is not None:
                if isinstance(event, OrderlyEnd | PeerLost):
                    self._note_end(event)
                    return False
                if isinstance(event, Connected) and not await self._is_admitted(event):
                    return False
                if isinstance(event, RegistrationRefused):
                    self._log_refusal(event)
                if isinstance(event, Connected):
                    self._name_queues(session)
                if self._program is not None:
                    await self._act_on_program(self._program, event)
                await session.act(event)
        except RemoteProtocolError as error:
            if self.connection.remote_id is None and not self.connection.config.is_dialler:
                await self._tell_refused()
            self._close(error)
            return False
        return True

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

    async def _act_on_program(self, program: Program, event: Event) -> None:
        if isinstance(event, Connected):
            await program.connected(self.connection.link)
        elif isinstance(event, Told):
            await program.told(self.connection.link, event.event)

    async def _is_admitted(self, event: Connected) -> bool:
        problem = await self._admit(event.remote_id, self)
        if problem is not None:
            self.log.tell(logging.WARNING, self.label, f"refused: {problem}")
            if self.connection.refuse(problem):
                await self._tell_refused()
            self.fail(problem)
            return False
        who = "guest" if self.connection.is_guest else f"host {event.remote_id}"
        self.label = f"{who} at {self.label}"
        self.log.tell(logging.INFO, self.label, "connected")
        return True

    async def _write(self, session: Session) -> None:
        out = bytearray()
        # what is no socket goes with a clock that is not the machine's
        may_rest = isinstance(self.stream, trio.SocketStream)
        pauser = WriterPauser(self._pausing, may_rest=may_rest)
        try:
            while True:
                self._wake = trio.Event()
                if await self._send_said():
                    # looked at again before any frame: a registration goes before its queue's
                    # frames
                    continue
                if self.connection.state is ConnectionState.ENDING:
                    await self.stream.send_eof()
                    return
                if self.connection.state is ConnectionState.CLOSED:
                    return
                is_live = session.polls and await self._stream_live(session, pauser)
                if self._has_ended():
                    continue  # while the live pump had it
                if is_live and (self._unsent or session.has_lanes_only):
                    continue  # what is left of a frame goes before any other
                filled = 0
                if self.connection.remote_id is not None:  # a silent peer costs no buffer
                    if len(out) != session.out_bytes:
                        out = bytearray(session.out_bytes)
                    filled = session.frame(out)
                if filled:
                    pauser.reset()
                    self._is_quiet = False
                    await self._send(memoryview(out)[:filled])
                elif self.connection.has_data_to_send or is_live:
                    continue
                elif len(out) != session.out_bytes and self.connection.remote_id is not None:
                    continue  # what is next takes a larger buffer
                elif session.polls:
                    await pauser.pause(self._wake, session.watched)
                else:
                    await self._wake.wait()
        except trio.BrokenResourceError as error:
            # the reader still takes what the peer said before it went, and ends the pump
            _logger.debug("%s: cannot send: %s", self.label, error.__cause__ or error)

    def _has_ended(self) -> bool:
        return self.connection.state in (ConnectionState.ENDING, ConnectionState.CLOSED)

    async def _stream_live(self, session: Session, pauser: WriterPauser) -> bool:
        """Lets the live pump send for a slice of time; false when there is nothing for it."""
        if self._live is None or pauser.is_waiting or pauser.wants_rest:
            return False
        async with self._turn.taken() if self._hears_live else nullcontext(False) as hears:
            is_live = await self._lend(self._live, session, hears=hears)
        if is_live and not self._is_quiet:
            pauser.reset()
        # a pump that does not wait leaves that to the pauser
        return is_live and not (self._live.steps and self._is_quiet and not self._unsent)

    async def _lend(self, pump: LivePump, session: Session, *, hears: bool) -> bool:
        lanes = session.lanes_out()
        if not lanes or self._wake.is_set():
            return False
        slice_ms = self._slice_ms if session.has_lanes_only else SLICE_MIXED_MS
        data = self._hand_over() if hears else None
        self._is_streaming = True
        try:
            came = await pump.stream(
                lanes, self._pausing, is_idle=self._is_quiet, slice_ms=slice_ms, data=data
            )
        except OSError as error:
            self._is_back.set()  # whatever it held is lost, and the connection with it
            raise trio.BrokenResourceError from error
        finally:
            self._is_streaming = False
            has_sent = session.leave_lanes()
            self._is_quiet = not has_sent
        self._unsent = came.unsent
        if hears:
            self._heard_live = came
        if came.is_foreign:  # each would call the pump back
            self._hears_live = False
        # what it does not know is looked at from here, until something has come of it
        return came.ended is not Ended.UNUSUAL or has_sent or bool(came.data)

    def _take_left(self) -> None:
        """The reader, who has its turn again, takes what a source's live pump has received."""
        came, self._heard_live = self._heard_live, None
        if came is not None:
            self._hand_back(came)
            self._is_back.set()

    def _hand_over(self) -> bytes:
        """What was received and not taken, for a live pump that receives from now on."""
        self._is_back = trio.Event()
        return self.connection.hand_over()

    def _hand_back(self, came: Streamed | Received) -> None:
        """Takes what a live pump has left. Only what it has received itself is news."""
        now = trio.current_time()
        heard, began = came.heard.times(now)
        self.connection.hand_back(came.data, now, heard=heard, began=began)
        if came.ended is Ended.END_OF_STREAM:
            self.connection.receive_end(now)

    @property
    def _slice_ms(self) -> int:
        return min(SLICE_MS, int(self.connection.silence_max * 1000 / SLICES_OF_SILENCE))

    @property
    def _is_receiving_live(self) -> bool:
        return self._live is not None and self._live.is_running and not self._is_streaming

    @property
    def _is_idle(self) -> bool:
        """True when no live pump runs, and none has left anything."""
        return not self._unsent and not (self._live is not None and self._live.is_running)

    async def _send_said(self) -> bool:
        """Sends what the core has to say; false when it has nothing."""
        if self._is_receiving_live:
            data = self.connection.data_to_send()
            if data:
                assert self._live is not None
                self._live.send(data)
            return bool(data)
        unsent, self._unsent = self._unsent, b""
        data = unsent + self.connection.data_to_send()
        if data:
            await self._send(data)
        return bool(data)

    async def _send(self, data: bytes | memoryview) -> None:
        self._is_sending = True
        try:
            await self.stream.send_all(data)
        finally:
            self._is_sending = False

    async def _tick(self) -> None:
        while True:
            with trio.CancelScope(deadline=self.connection.next_deadline()) as self._clock:
                await trio.sleep_forever()
            if not self._is_back.is_set():  # what the live pump has heard counts
                self.call_back()
                await self._is_back.wait()
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
