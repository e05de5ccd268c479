"""The live pump of one connection: a native thread that passes excerpts on as they appear.

Theory of operation. Where nothing is left to catch up with, a batch is one excerpt, and an event
loop between the mapped file and the socket costs more time than all the rest. So the connection's
tasks lend the socket to a native pump, which runs in a thread without the GIL and comes back when
something is there that it cannot do, or when it is called.

While it runs the pump is the only one that receives, and the only one that sends: frames of the
queues that go out, acknowledgements of those that come in, and between them what the tasks have to
say. What comes besides excerpts and acknowledgements it hands over to the tasks, and rings. What it
could not send is the first that is sent after it, what it received and did not take the first that
is taken.

What a pump hands back unread goes round again with the next slice, for as long as the peer leaves a
frame unfinished. So a pump says when it last received, and when what it leaves began to come: the
watch on silence and the time limit of a document go by that, not by when the pump comes back.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from cqrepl.kernel import live
from cqrepl.kernel.live import Ended, Pausing
from cqrepl.net.scheduler import wake_soon
from cqrepl.net.socketturn import SocketTurn
from cqrepl.net.threads import in_thread
from cqrepl.net.tokenbucket import TokenBucket
from cqrepl.protocol.states import SocketMove
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane
    from cqrepl.kernel.memory import WatchedWord

_NS_PER_S: Final = 1_000_000_000
SLICE_MS: Final = 60_000  # it is called back long before, if there is any need
SLICE_MIXED_MS: Final = 10  # while a queue has to be looked at otherwise
SLICE_WAITED_MS: Final = 10_000  # then one that waits for its next file is looked at all the same


class Heard(NamedTuple):
    """The ages, in nanoseconds, of what the pump received last, and of the first byte of what it
    leaves. `last_ns` is None when it has received nothing; `began_ns` is None when that byte came
    before the hand-over."""

    last_ns: int | None
    began_ns: int | None

    def times(self, now: float) -> tuple[float | None, float | None]:
        """Both times in seconds, by the clock that says `now`."""
        last, began = (None if ago is None else now - ago / _NS_PER_S for ago in self)
        return last, began


class Came(NamedTuple):
    """The result of a pump that came back; `data` is what it left of what it received."""

    ended: Ended
    unsent: bytes
    data: bytes
    heard: Heard


class LivePump:
    """Runs the native pump of one connection, when it is lent the socket.

    Args:
        turn: whose turn it is at the socket.
    """

    def __init__(self, socket: int, turn: SocketTurn) -> None:
        self.steps = not surroundings().has_threads  # it does what is there, and never waits
        self._socket = socket
        self._turn = turn
        self._control = live.LiveControl()
        self._limiter = trio.CapacityLimiter(1)  # never waits for the threads of other connections

    async def run(
        self,
        sources: "Sequence[SourceLane]",
        sinks: "Sequence[SinkLane]",
        *,
        pausing: Pausing,
        is_idle: bool,
        slice_ms: int,
        data: bytes,
        said: bytes,
        bucket: TokenBucket,
        waited: "Sequence[WatchedWord]" = (),
    ) -> Came:
        """Sends what appears in the queues that go out, stores what comes for those that come in.

        Args:
            pausing: how it waits for what goes out.
            is_idle: nothing has appeared for some time.
            data: received before, and not taken.
            said: goes out before anything that the pump says, which may be newer.
            bucket: how much of queues that go out may be sent.
            waited: when one of these words changes, a tailer has to look.

        Raises:
            OSError: the connection is broken.
        """
        if self.steps:
            pausing, slice_ms = Pausing.STEP, 0
        looks = live.looks_of(waited)

        def work() -> tuple[int, bytes, bytes, tuple[int | None, int | None]]:
            if sinks:
                wake_soon()
            return live.run_live(
                self._socket,
                self._control,
                sources,
                sinks,
                pausing,
                is_idle,
                slice_ms,
                data,
                looks,
            )

        self._control.send(said)
        self._control.reset()
        if sources and bucket.bytes_per_s:
            tokens = bucket.lend(trio.current_time())
            self._control.put_tokens(bucket.bytes_per_s, tokens, not self.steps)
        if self.steps and surroundings().rarely("pump", False, True):
            self._control.interrupt()  # it comes back early
        self._turn.move(SocketMove.START)
        try:
            ended, unsent, left, heard = await in_thread(work, limiter=self._limiter)
        finally:
            self._turn.move(SocketMove.COME_BACK)
            left_tokens = self._control.take_tokens()
            if left_tokens is not None:
                bucket.take_back(left_tokens, trio.current_time())
        # what was to go through the pump after its last look; what it has handed over came first
        unsent += self._control.take()
        data = self._control.take_handed() + left
        return Came(Ended(ended), unsent, data, self._heard(*heard))

    async def rings(self) -> None:
        """Waits until the running pump rings: it has handed over documents, or there is something
        to look at in the lanes."""
        await trio.lowlevel.wait_readable(self._control.bell)

    def handed_over(self) -> bytes:
        """Whole documents that it has handed over, if there are any; it has rung for nothing
        then."""
        return self._control.take_handed()

    def interrupt(self) -> None:
        """Calls the pump back; nothing when it does not run."""
        self._control.interrupt()

    def send(self, data: bytes) -> None:
        """Lets the pump send whole documents."""
        assert self._turn.is_working
        self._control.send(data)

    def nudge(self) -> None:
        """Lets the pump look at its lanes; nothing when it does not run. In any thread."""
        self._control.send(b"")

    async def guard(self) -> None:
        """Calls the pump back when this task is cancelled: a thread cannot be."""
        try:
            await trio.sleep_forever()
        finally:
            self._control.interrupt()

    def _heard(self, last_ns: int | None, began_ns: int | None) -> Heard:
        if not self.steps:
            return Heard(last_ns, began_ns)
        # a step takes no time
        return Heard(None if last_ns is None else 0, None if began_ns is None else 0)


def pump_for(stream: trio.SocketStream, turn: SocketTurn) -> LivePump | None:
    """The live pump of a connection; None with the plain kernel, and where bytes do not go straight
    to a socket.

    Args:
        turn: whose turn it is at that.
    """
    if not live.AVAILABLE or not isinstance(stream, trio.SocketStream):
        return None
    return LivePump(stream.socket.fileno(), turn)
