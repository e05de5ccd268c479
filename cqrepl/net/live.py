"""The live pump of one connection: a native thread that passes excerpts on as they appear.

Theory of operation. Where nothing is left to catch up with, a batch is one excerpt, and an event
loop between the mapped file and the socket costs more time than all the rest. So the task that
would wait there lends the socket to a native pump instead, which runs in a thread without the GIL
and comes back after a slice of time, when something unusual is there, or when it is called.

There is one writer of a socket at any time. A source's pump is the writer while it runs: whoever
has something else to send calls it back first. A sink's pump reads, and sends acknowledgements;
what the writer task has to send meanwhile goes through it. What a pump could not send is the first
that is sent after it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

from wire import live
from wire.live import Ended, Pausing

if TYPE_CHECKING:
    from wire.live import SinkLane, SourceLane

T = TypeVar("T")
SLICE_MS: Final = 250  # meters, marks and the watch on silence are brought up to date so often
SLICE_MIXED_MS: Final = 10  # while a queue has to be looked at otherwise


class Streamed(NamedTuple):
    """How a source's pump came back."""

    ended: Ended
    unsent: bytes


class Received(NamedTuple):
    """How a sink's pump came back; `data` is what it left of what it received."""

    ended: Ended
    data: bytes
    unsent: bytes
    has_heard: bool


class LivePump:
    """Runs the native pump of one connection; at most once at a time."""

    def __init__(self, socket: int) -> None:
        self.is_running = False
        self._socket = socket
        self._control = live.LiveControl()
        self._limiter = trio.CapacityLimiter(1)  # never waits for the threads of others

    async def stream(
        self, lanes: "Sequence[SourceLane]", pausing: Pausing, *, is_idle: bool, slice_ms: int
    ) -> Streamed:
        """Sends what appears in these queues.

        Args:
            is_idle: nothing has appeared for some time.

        Raises:
            OSError: the connection is broken.
        """
        ended, unsent = await self._run(
            lambda: live.stream_live(self._socket, self._control, lanes, pausing, is_idle, slice_ms)
        )
        return Streamed(Ended(ended), unsent)

    async def receive(self, lanes: "Sequence[SinkLane]", data: bytes) -> Received:
        """Stores what comes for these queues.

        Args:
            data: received before, and not taken.

        Raises:
            OSError: the connection is broken.
        """
        ended, data, unsent, has_heard = await self._run(
            lambda: live.receive_live(self._socket, self._control, lanes, data, SLICE_MS)
        )
        # what was to go through the pump after its last look
        return Received(Ended(ended), data, unsent + self._control.take(), has_heard)

    def interrupt(self) -> None:
        """Calls the pump back; nothing when it does not run."""
        self._control.interrupt()

    def send(self, data: bytes) -> None:
        """Lets the pump of a sink send whole documents."""
        assert self.is_running
        self._control.send(data)

    async def guard(self) -> None:
        """Calls the pump back when this task is cancelled: a thread cannot be."""
        try:
            await trio.sleep_forever()
        finally:
            self._control.interrupt()

    async def _run(self, work: Callable[[], T]) -> T:
        self._control.reset()
        self.is_running = True
        try:
            return await trio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self.is_running = False


def pump_for(stream: trio.SocketStream) -> LivePump | None:
    """The live pump of a connection; None with the plain kernel, and where bytes do not go straight
    to a socket."""
    if not live.AVAILABLE or not isinstance(stream, trio.SocketStream):
        return None
    return LivePump(stream.socket.fileno())
