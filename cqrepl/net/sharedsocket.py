"""The socket of a connection, and the one that has it: the connection's tasks, or its live pump.

Theory of operation. A live pump (`livepump`) does in microseconds what the tasks do in hundreds of
them, but only the usual case. So the reader lends it the socket, with all that was received and not
taken, whenever there are queues for it. Those that come in always are; those that go out are when
the writer has left them to it, after it has found nothing itself that it must look at. While the
socket is lent the tasks neither receive nor send: what is to be said is handed to the pump. They
call it back for all else, and go on from where it stopped.

A peer that acknowledges in a shape that the pump does not know would call it back each time. Then
the reader keeps what comes, and the writer lends only what goes out.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from cqrepl.kernel.live import Ended, Pausing
from cqrepl.net.link import Moved, Session
from cqrepl.net.livepump import (
    SLICE_MIXED_MS,
    SLICE_MS,
    SLICES_OF_SILENCE,
    Came,
    LivePump,
    pump_for,
)
from cqrepl.net.reception import Reception
from cqrepl.net.writerpauser import WriterPauser
from cqrepl.protocol import Connection
from cqrepl.protocol.states import ConnectionState

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane

# a live pump may meet so often in a row what it does not know; then it rests for some turns
FRUITLESS_MAX: Final = 2
FRUITLESS_PAUSE: Final = 64
PATIENCE_SECONDS: Final = 0.05  # of the writer, with a reader that has other things to do


class SharedSocket:
    """One connection's.

    Args:
        pausing: how a source waits for the next excerpt.
        wake: has the writer look at what there is to do.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        connection: Connection,
        pausing: Pausing,
        wake: Callable[[], None],
    ) -> None:
        self.live = pump_for(stream)
        # what is no socket goes with a clock that is not the machine's
        self.pauser = WriterPauser(pausing, may_rest=isinstance(stream, trio.SocketStream))
        self.leaves_queues = False  # to the live pump: the writer looks at none
        self.is_mute = False  # the writer has met the end of the connection
        self._stream = stream
        self._connection = connection
        self._pausing = pausing
        self._wake = wake
        self._reception = Reception()
        self._has_queues = False  # the live pump sends of them
        self._hears_live = True  # a live pump receives; false for acknowledgements it cannot read
        self._is_back = trio.Event()  # no live pump receives, and what one has left is taken
        self._is_back.set()
        self._unsent = b""  # left over by a live pump: goes before anything else
        self._is_sending = False  # the writer is
        self._is_quiet = False  # nothing was there to send the last time
        self._fruitless = 0  # times that the live pump came back from what it does not know

    @property
    def is_idle(self) -> bool:
        """True when no live pump runs, and none has left anything."""
        return not self._unsent and not (self.live is not None and self.live.is_running)

    # any task

    def look_again(self) -> None:
        """The reader has something to do that does not come from the peer."""
        self._reception.interrupt()
        self.call_back()

    def call_back(self) -> None:
        """A live pump stops as soon as it can: its work is no longer what it was."""
        if self.live is not None:
            self.live.interrupt()

    def note_said(self) -> None:
        """The core may have something to say. The writer can hand it to no pump that it runs."""
        is_run = self._has_queues and not self._hears_live
        if is_run and self._connection.has_data_to_send:
            self.call_back()

    async def have_back(self) -> None:
        """Ends when no live pump receives, and all that one has heard counts."""
        if not self._is_back.is_set():
            self.call_back()
            await self._is_back.wait()

    # the reader

    async def receive(self, receive: Callable[[], Awaitable[int]]) -> int | None:
        """What `receive` gives; None when there is something else to do."""
        return await self._reception.read(receive)

    async def lend(self, session: Session) -> bool:
        """Lends the live pump the socket for a slice of time; false when there is nothing for it,
        or when the writer sends."""
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
        came, moved = await self._run_live(pump, session, sources, sinks)
        now = trio.current_time()
        heard, began = came.heard.times(now)
        self._connection.hand_back(came.data, now, heard=heard, began=began)
        if came.ended is Ended.END_OF_STREAM:
            self._connection.receive_end(now)
        self._is_back.set()
        is_fruitless = bool(sinks) and came.ended is Ended.UNUSUAL and not any(moved)
        self._fruitless = self._fruitless + 1 if is_fruitless else 0
        if sources and not self._goes_on_live(pump, session, came, moved):
            self._take_queues_back()
        return True

    @property
    def _may_lend(self) -> bool:
        is_open = self._connection.state is ConnectionState.OPEN
        return is_open and self._hears_live and not self._is_sending and not self.is_mute

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
    ) -> tuple[Came, Moved]:
        """Runs the live pump; what it has not sent is kept for what is sent next."""
        is_mixed = bool(sources) and not session.has_lanes_only
        data = None
        if self._hears_live:
            self._is_back = trio.Event()
            data = self._connection.hand_over()
        self._has_queues = bool(sources)
        said = self._take_unsent() + self._connection.data_to_send()
        try:
            came = await pump.run(
                sources,
                sinks,
                pausing=self._pausing,
                is_idle=self._is_quiet,
                slice_ms=SLICE_MIXED_MS if is_mixed else self._slice_ms,
                data=data,
                said=said,
            )
        except BaseException:
            self._is_back.set()  # whatever it held is lost, and the connection with it
            raise
        finally:
            self._has_queues = False
            moved = session.leave_lanes()
        self._unsent = came.unsent
        return came, moved

    def _goes_on_live(self, pump: LivePump, session: Session, came: Came, moved: Moved) -> bool:
        """True while the queues that go out are still for the live pump."""
        self._is_quiet = not moved.has_sent
        if moved.has_sent:
            self.pauser.reset()
        if came.is_foreign:  # each would call the pump back
            self._hears_live = False
        is_waited_for = pump.steps and self._is_quiet and not self._unsent
        if (came.ended is Ended.TAILER and self._is_quiet) or is_waited_for:
            # it does not wait for what comes next, or does not know it
            self.pauser.leave_live()
            return False
        is_over = came.ended is Ended.TAILER or came.is_foreign or not session.has_lanes_only
        return not is_over and not self.pauser.wants_rest

    def _take_queues_back(self) -> None:
        """The writer looks at the queues that go out."""
        self.leaves_queues = False
        self._wake()

    async def _readable(self) -> int:
        await trio.lowlevel.wait_readable(self._stream.socket.fileno())
        return 1

    # the writer

    async def leave_queues(self, session: Session) -> bool:
        """Leaves the queues that go out to the live pump; false when there is nothing for it."""
        pump = self.live
        if pump is None or self.pauser.is_waiting or self.pauser.wants_rest:
            return False
        if self._fruitless >= FRUITLESS_MAX:
            return False
        if not self._hears_live:
            return await self._send_live(pump, session)
        self.leaves_queues = True
        return True

    async def _send_live(self, pump: LivePump, session: Session) -> bool:
        """Lets a live pump send that does not receive."""
        sources = session.lanes_out()
        if not sources or pump.is_running:
            return False
        try:
            came, moved = await self._run_live(pump, session, sources, [])
        except OSError as error:
            raise trio.BrokenResourceError from error
        return self._goes_on_live(pump, session, came, moved) or moved.has_sent

    async def wait(self, wake: trio.Event) -> None:
        """While the queues are left to the live pump: waits for something to say, or until they are
        to be looked at. Has the reader lend them first."""
        if self._has_queues:
            await wake.wait()
            return
        self.look_again()
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            await wake.wait()
        if patience.cancelled_caught and not self._has_queues:
            self.leaves_queues = False  # the reader has too much to do

    def found_frames(self) -> None:
        """The writer has found something itself."""
        self.pauser.reset()
        self._is_quiet = False

    async def say(self) -> bool:
        """Sends what the core has to say; false when it has nothing."""
        if self.live is not None and self.live.is_running:
            data = self._connection.data_to_send()
            if data:
                self.live.send(data)
        else:
            data = self._take_unsent() + self._connection.data_to_send()
            if data:
                with self._sending():
                    await self._stream.send_all(data)
        return bool(data)

    async def send_frames(self, frames: memoryview) -> None:
        """Sends what the writer has found in queues. A live pump gives the socket back first."""
        with self._sending():
            await self.have_back()
            unsent = self._take_unsent()
            if unsent:
                await self._stream.send_all(unsent)
            await self._stream.send_all(frames)

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Nothing is lent for the length of a block."""
        self._is_sending = True
        try:
            yield
        finally:
            self._is_sending = False

    def _take_unsent(self) -> bytes:
        unsent, self._unsent = self._unsent, b""
        return unsent

    @property
    def _slice_ms(self) -> int:
        return min(SLICE_MS, int(self._connection.silence_max * 1000 / SLICES_OF_SILENCE))
