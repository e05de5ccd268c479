"""Acts on what comes of the queues of one connection: of different ones at once, of each in order.

Theory of operation. The reader of a connection acts on one event after the other. Some take a
disk's time, or read store files in a thread: what a sink claims to hold, the lock that a proof
brings, an identity. A peer that begins with a thousand queues would wait for the sum of them. So
such an event begins a *turn* of its queue, a task of its own, and the reader goes on with other
queues. What comes of that queue meanwhile waits behind, in its order. With excerpts the reader
waits itself, until the turn is over: so what is kept here is small. A live pump may store beside a
turn of a queue that streams already, a proof or an identity: such a turn writes to no store file,
and has the pump back before it stops the queue. What changes no stream waits for nothing. Before
the end of a connection is acted on, all turns are over.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import trio

from cqrepl.net.pump import OF_NO_STREAM, Pump
from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.queue.format.identity import Identity
from cqrepl.replicator.queuestate.queues import Signal

# turns at a time, of each connection: one waits for its disk while others compute, and a disk takes
# in what some threads sync at once in about the time of one. As many as open queues at a time
TURNS_MAX: Final = 8
BEHIND_MAX: Final = 1024  # events that wait behind turns, of all queues: a peer may send many
T = TypeVar("T")
Long = ev.LineageClaimed | ev.ProofGiven | ev.LineageProved | ev.IdentityTold | ev.ProofAsked
_EXCERPTS: Final = ev.AppendExcerpts | ev.CompareExcerpts


async def few_at_a_time(
    due: "trio.MemoryReceiveChannel[T]", work: Callable[[T], Awaitable[None]]
) -> None:
    """Works on all that comes, on `TURNS_MAX` at a time; in a task for each, as most peers bring
    nothing."""
    places = trio.Semaphore(TURNS_MAX)

    async def work_on(one: T) -> None:
        await work(one)
        places.release()

    async with trio.open_nursery() as nursery:
        async for each in due:
            await places.acquire()
            nursery.start_soon(work_on, each)


class QueueTurn:
    """The work that is done for one queue: an event, and those that wait behind it.

    Args:
        event: the event that it begins with.
    """

    def __init__(self, event: Long) -> None:
        self.event = event
        self.behind: deque[ev.Event] = deque()


class QueueTurns:
    """The turns of one side of a connection.

    Args:
        ended: is told the name of a queue for which nothing is to be done any more.
    """

    def __init__(
        self, connection: Connection, pump: Pump, ended: Callable[[str], None] | None = None
    ) -> None:
        self._connection = connection
        self._pump = pump
        self._ended = ended
        self._turns: dict[str, QueueTurn] = {}  # by name; they run, or wait for it
        self._behind = 0  # events that wait behind turns
        self._queued, self._due = trio.open_memory_channel[QueueTurn](math.inf)  # one a queue
        self._moved = Signal()

    def has(self, name: str) -> bool:
        """True while something is done for a queue, or is to be done."""
        return name in self._turns

    @property
    def is_idle(self) -> bool:
        """True when all that came was acted on."""
        return not self._turns

    async def settle(self) -> None:
        """Waits until all that came was acted on."""
        while self._turns:
            await self._moved.wait()

    async def idle(self, name: str) -> None:
        """Waits until all that came of a queue was acted on."""
        while name in self._turns:
            await self._moved.wait()

    async def takes(self, event: ev.Event) -> bool:
        """True for an event that is acted on later; false for one whose time is now,
        which it may have waited for."""
        name = getattr(event, "name", None)
        if name is None or isinstance(event, OF_NO_STREAM):
            return False
        if isinstance(event, _EXCERPTS):
            await self.idle(name)
        while name in self._turns and self._behind >= BEHIND_MAX:
            await self._moved.wait()
        turn = self._turns.get(name)
        if turn is not None:
            turn.behind.append(event)
            self._behind += 1
        elif isinstance(event, Long):
            turn = self._turns[name] = QueueTurn(event)
            self._queued.send_nowait(turn)
        return turn is not None

    def take_identity(self, proved: ev.LineageProved) -> Identity | None:
        """The identity that the source has told behind its proof; None where none waits there. It
        is taken out of the events that wait, so that it is known before any excerpt is asked for,
        which the reader would wait with."""
        turn = self._turns.get(proved.name)
        told = turn.behind[0] if turn is not None and turn.behind else None
        if turn is None or not isinstance(told, ev.IdentityTold) or told.cid != proved.cid:
            return None
        self._behind -= 1
        turn.behind.popleft()
        return told.identity

    def drop(self, ended: ev.QueueWithdrawn) -> None:
        """A queue is on the connection no more: what came of it and still waits behind is not acted
        on."""
        turn = self._turns.get(ended.name)
        if turn is not None:
            kept = [each for each in turn.behind if getattr(each, "cid", None) != ended.cid]
            self._behind -= len(turn.behind) - len(kept)
            turn.behind = deque(kept)

    def close(self) -> None:
        """The connection is over, and with it the turns that were not: what waits for them goes
        on."""
        self._turns.clear()
        self._behind = 0
        self._ended = None
        self._moved.set()

    async def work(self, act: Callable[[ev.Event], Awaitable[None]]) -> None:
        """Takes turns, for as long as the connection is there.

        Args:
            act: acts on one event. It is not kept: a circle would keep the buffers of what is over.
        """
        await few_at_a_time(self._due, partial(self._take, act))

    async def _take(self, act: Callable[[ev.Event], Awaitable[None]], turn: QueueTurn) -> None:
        await act(turn.event)
        while turn.behind:
            self._behind -= 1
            await act(turn.behind.popleft())
            self._moved.set()
        del self._turns[turn.event.name]
        self._moved.set()
        if self._ended is not None:
            self._ended(turn.event.name)
        if self._connection.has_events:
            self._pump.look()  # it has brought something to act on
        else:
            self._pump.wake()
