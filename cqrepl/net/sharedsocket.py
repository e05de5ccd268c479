"""The socket of a connection, and the one that has it: the connection's tasks, or its live pump.

Theory of operation. A live pump (`livepump`) does in microseconds what the tasks do in hundreds of
them, but only the usual case. So the reader lends it the socket, with all that was received and not
taken, whenever there are queues for it. Those that come in always are; those that go out are when
the writer has left them to it, after it has found nothing itself that it must look at. While the
socket is lent the tasks neither receive nor send: what is to be said is handed to the pump, and the
reader acts on what the pump hands over. They call it back for all else, and go on from where it
stopped.

Whose turn it is stands in `socketturn`, by the moves of `protocol.states`.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from cqrepl.kernel.live import Ended, Pausing
from cqrepl.net.link import Session
from cqrepl.net.livepump import (
    SLICE_MIXED_MS,
    SLICE_MS,
    SLICE_WAITED_MS,
    Came,
    LivePump,
    pump_for,
)
from cqrepl.net.reception import Reception
from cqrepl.net.socketturn import OutgoingTurn, SocketTurn
from cqrepl.net.ticks import next_tick
from cqrepl.net.tokenbucket import TokenBucket
from cqrepl.net.writerpauser import WriterPauser
from cqrepl.protocol import Connection
from cqrepl.protocol.states import OutgoingMove, SocketMove

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane
    from cqrepl.kernel.memory import WatchedWord

# a live pump may meet so often in a row what it does not know; then it rests for some turns
FRUITLESS_MAX: Final = 2
FRUITLESS_PAUSE: Final = 64
PATIENCE_SECONDS: Final = 0.05  # of the writer, with a reader that has other things to do
LOOK_SECONDS: Final = 1.0  # counters, marks and logs are brought up to date so often

Act = Callable[[], Awaitable[bool]]


class SharedSocket:
    """One connection's.

    Args:
        pausing: how a source waits for the next excerpt.
        bucket: how much of queues that go out may be sent.
        wake: has the writer look at what there is to do.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        connection: Connection,
        pausing: Pausing,
        bucket: TokenBucket,
        wake: Callable[[], None],
    ) -> None:
        self.turn = SocketTurn()
        self.live = pump_for(stream, self.turn)
        # what is no socket goes with a clock that is not the machine's
        self.pauser = WriterPauser(pausing, may_rest=isinstance(stream, trio.SocketStream))
        self._outgoing = OutgoingTurn()
        self.is_mute = False  # the writer has met the end of the connection
        self._stream = stream
        self._connection = connection
        self._pausing = pausing
        self._bucket = bucket
        self._wake = wake
        self._reception = Reception()
        self._unsent = b""  # left over by a live pump: goes before anything else
        self._kept_by = 0  # tasks that nothing is lent to a live pump meanwhile
        self._sent_live = 0  # excerpts that live pumps have sent, when that was looked at last
        self._sent_at = -math.inf  # when anything was known to be sent last
        self._fruitless = 0  # times that the live pump came back from what it does not know

    @property
    def is_idle(self) -> bool:
        """True when no live pump runs, and none has left anything."""
        return not self._unsent and not self.turn.is_working

    @property
    def leaves_queues(self) -> bool:
        """True while the queues that go out are for the live pump: the writer looks at none."""
        return not self._outgoing.is_writers

    # any task

    def look_again(self) -> None:
        """The reader has something to do that does not come from the peer."""
        self._reception.interrupt()
        self.call_back()

    def call_back(self) -> None:
        """A live pump stops as soon as it can: its work is no longer what it was."""
        if self.live is not None:
            self.live.interrupt()

    def nudge(self) -> None:
        """A live pump looks whether its lanes have something to say. From any thread."""
        live = self.live
        if live is not None and self.turn.is_working:
            live.nudge()

    async def have_back(self) -> None:
        """Ends when no live pump runs, and all that one has heard counts. None runs before the
        caller's next wait: the reader would lend the next one the socket at once."""
        if not self.turn.is_back:
            with self._kept():
                self.call_back()
                await self.turn.back()

    def close(self) -> None:
        """The connection is over. No circle of references keeps its buffers, and no task waits for
        a live pump that went wrong on its way back."""
        self._wake = lambda: None
        self.turn.move(SocketMove.END)

    # the reader

    async def receive(self, receive: Callable[[], Awaitable[int]]) -> int | None:
        """The result of `receive`; None when there is something else to do."""
        return await self._reception.read(receive)

    async def lend(self, session: Session, act: Act) -> bool:
        """Lends the live pump the socket until it comes back; false when there is nothing for it,
        or when the writer sends.

        Args:
            act: acts on what the pump has handed over; false when the pump has to come back for it.
        """
        pump = self.live
        if pump is None:
            return False
        is_step = pump.steps and not self.leaves_queues
        if is_step and await self._reception.read(self._readable) is None:
            return True
        if not self._may_lend or self._is_fruitless():
            return False
        sinks = session.lanes_in()
        # one that goes out is not lent where what comes in would call the pump back all the time
        leaves = self.leaves_queues and (bool(sinks) or not self._connection.receiving())
        sources = session.lanes_out() if leaves else []
        if not sources and self.leaves_queues:
            self.pauser.leave_live()
            self._take_queues_back()
        if not sources and not sinks:
            return False
        sent, stored = session.sent_live, session.stored_live
        came = await self._run_live(pump, session, sources, sinks, act)
        has_sent, has_stored = session.sent_live > sent, session.stored_live > stored
        now = trio.current_time()
        heard, began = came.heard.times(now)
        self._connection.hand_back(came.data, now, heard=heard, began=began)
        if came.ended is Ended.END_OF_STREAM:
            self._connection.receive_end(now)
        self.turn.move(SocketMove.TAKE)
        is_fruitless = bool(sinks) and came.ended is Ended.UNUSUAL
        is_fruitless = is_fruitless and not (has_sent or has_stored)
        self._fruitless = self._fruitless + 1 if is_fruitless else 0
        if sources and not self._goes_on_live(pump, session, came.ended, has_sent=has_sent):
            self._take_queues_back()
        return True

    @property
    def _may_lend(self) -> bool:
        return self._connection.suits_pump() and not self._kept_by and not self.is_mute

    def _is_fruitless(self) -> bool:
        """True while it is not worth a try: the live pump does not know what comes here."""
        if self._fruitless >= FRUITLESS_MAX:
            self._fruitless = 0 if self._fruitless >= FRUITLESS_PAUSE else self._fruitless + 1
        return self._fruitless >= FRUITLESS_MAX

    async def _run_live(
        self,
        pump: LivePump,
        session: Session,
        sources: "Sequence[SourceLane]",
        sinks: "Sequence[SinkLane]",
        act: Act,
    ) -> Came:
        """Runs the live pump; what it has not sent is kept for what is sent next."""
        waited = session.waited if sources else ()
        self.turn.move(SocketMove.LEND)
        if sources:
            self._outgoing.move(OutgoingMove.LEND)
        data = self._connection.hand_over()
        run = partial(
            pump.run,
            sources,
            sinks,
            pausing=self._pausing,
            is_idle=self._is_quiet,
            slice_ms=_slice_ms(waited),
            data=data,
            waited=waited or (),
            said=self._take_unsent() + self._connection.data_to_send(),
            bucket=self._bucket,
        )
        try:
            came = await run() if pump.steps else await self._run_beside(run, pump, session, act)
        except BaseException:
            self.turn.move(SocketMove.END)  # whatever it held is lost, and the connection with it
            raise
        finally:
            if self._outgoing.is_lent:
                self._outgoing.move(OutgoingMove.COME_BACK)
            session.leave_lanes()
        self._unsent = came.unsent
        self._note_sent(session)
        return came

    async def _run_beside(
        self, run: Callable[[], Awaitable[Came]], pump: LivePump, session: Session, act: Act
    ) -> Came:
        """Runs the live pump, and acts on what it hands over meanwhile."""
        came: Came | OSError
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, pump, session, act)
            try:
                came = await run()
            except OSError as error:
                came = error  # not through the nursery, which would make a group of it
            nursery.cancel_scope.cancel()
        if isinstance(came, OSError):
            raise came
        return came

    async def _listen(self, pump: LivePump, session: Session, act: Act) -> None:
        """Acts on what a running pump hands over, and takes account of what it has done."""
        goes_on = True
        while goes_on:
            with trio.move_on_at(next_tick(LOOK_SECONDS)):
                await pump.rings()
            await session.catch_up_in_turns()
            documents = pump.handed_over()  # behind the last wait: a pump that is back has the rest
            if documents:
                session.catch_up()  # what it has done before is known before what came behind
            self._note_sent(session)
            if documents:
                self._connection.receive_data(documents, trio.current_time())
                goes_on = await act()
            goes_on = goes_on and not (self._outgoing.is_lent and self._is_quiet)
        self.call_back()

    def _note_sent(self, session: Session) -> None:
        if session.sent_live != self._sent_live:
            self._sent_live = session.sent_live
            self.found_frames()

    @property
    def _is_quiet(self) -> bool:
        """True when nothing was there to send for some time."""
        return trio.current_time() >= self._sent_at + LOOK_SECONDS

    def _goes_on_live(
        self, pump: LivePump, session: Session, ended: Ended, *, has_sent: bool
    ) -> bool:
        """True while the queues that go out are still for the live pump."""
        if pump.steps and self._unsent:
            return False  # it does not wait for a full socket: the writer does
        if not has_sent and (ended is Ended.TAILER or pump.steps):
            # it does not wait for what comes next, or does not know it
            self.pauser.leave_live()
            return False
        has_lanes_only = session.waited is not None and not session.waited
        is_over = ended is Ended.TAILER or session.waited is None
        is_over = is_over or (ended is Ended.SLICE and not has_lanes_only)
        return not is_over and not self._is_quiet

    def _take_queues_back(self) -> None:
        """The writer looks at the queues that go out."""
        self._outgoing.move(OutgoingMove.TAKE_BACK)
        self._wake()

    async def _readable(self) -> int:
        await trio.lowlevel.wait_readable(self._stream.socket.fileno())
        return 1

    # the writer

    def leave_queues(self) -> bool:
        """Leaves the queues that go out to the live pump; false when there is nothing for it."""
        if self.live is None or self._fruitless >= FRUITLESS_MAX:
            return False
        if self.pauser.is_waiting or self.pauser.wants_rest:
            return False
        if not self.leaves_queues:
            self._outgoing.move(OutgoingMove.LEAVE)
        return True

    async def wait(self, wake: trio.Event) -> None:
        """While the queues are left to the live pump: waits for something to say, or until they are
        to be looked at. Has the reader lend them first."""
        if self._outgoing.is_lent:
            await wake.wait()
            return
        self.look_again()
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            await wake.wait()
        is_in_vain = patience.cancelled_caught and self.leaves_queues
        if is_in_vain and not self._outgoing.is_lent:
            self._outgoing.move(OutgoingMove.TAKE_BACK)  # the reader has too much to do

    def found_frames(self) -> None:
        """There was something to send."""
        self.pauser.reset()
        self._sent_at = trio.current_time()

    async def say(self) -> bool:
        """Sends what the core has to say; false when it has nothing.

        From taking it to sending it nothing is waited for: it would go out behind what is said
        later. What a pump that has just ended left unsent goes first, and the reader may have lent
        the socket to the next one by then.
        """
        while not self.turn.is_back:
            if self.live is not None and self.turn.is_working:
                data = self._connection.data_to_send()
                if data:
                    self.live.send(data)
                return bool(data)
            await self.turn.back()
        data = self._take_unsent() + self._connection.data_to_send()
        if data:
            with self._kept():
                await self._stream.send_all(data)
        return bool(data)

    async def send_frames(self, frames: memoryview) -> None:
        """Sends what the writer has found in queues. A live pump gives the socket back first."""
        with self._kept():
            await self.have_back()
            unsent = self._take_unsent()
            if unsent:
                await self._stream.send_all(unsent)
            await self._stream.send_all(frames)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Nothing is lent for the length of a block."""
        self._kept_by += 1
        try:
            yield
        finally:
            self._kept_by -= 1

    def _take_unsent(self) -> bytes:
        unsent, self._unsent = self._unsent, b""
        return unsent


def _slice_ms(waited: "Sequence[WatchedWord] | None") -> int:
    """The longest run of a live pump in ms, with queues that have no lane and wait for these words.
    `waited` is None while a queue has to be looked at otherwise."""
    if waited is None:
        return SLICE_MIXED_MS
    return SLICE_WAITED_MS if waited else SLICE_MS
