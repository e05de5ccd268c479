"""Tells sinks up to where their queues are safe, as soon as more of a queue is.

Theory of operation. What is safe follows from the marks on a queue's board, which rise in native
threads: nothing in Python sees each of them. So the board is asked to ring the bell once, when the
next index beyond what is safe now has reached what the policy asks. Then the event loop counts what
the lanes of that queue hold, raises the acknowledged mark of the queue, and has each sink hear of
it. It looks once more after a pause, and as long as it finds more each time, the bell rests: each
ring would wake the event loop, which costs more than the look. Else it asks the board for what is
next. How many excerpts have come meanwhile makes no difference: in a full stream there is a word
for many of them, and others have most of the time.

Beside that there is a look at what was touched, soon after, and at some of all queues. It tells
sinks that were sent less than was safe, and it asks boards that were not asked, as they have ended,
or a claim has rung them, which moves no mark. With the plain kernel there is the look alone: each
acknowledgement comes through the event loop, and touches its queue.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import trio

from cqrepl.kernel import live
from cqrepl.replicator.marks.ackboard import AckBell
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.outgoing.worddesk import TURN_QUEUES
from cqrepl.replicator.queuestate.queues import until
from cqrepl.surroundings import surroundings

COMMIT_SECONDS: Final = 1.0  # to the next look at marks that native lanes may have raised
COMMIT_PAUSE_SECONDS: Final = 0.05  # between two looks at least
COMMIT_REST_SECONDS: Final = 0.025  # of which at least
PAUSE_SECONDS: Final = 0.003  # between two words of it at least
PAUSE_SHARE: Final = 15  # and so many times the processor time that the last one took


class CommitWatch:
    """Has the sinks of all queues of a source hear at once up to where they are safe.

    Args:
        queues: of the source, as they come and go.
        sessions: its connections now.
    """

    def __init__(
        self,
        queues: Mapping[str, SourceQueue],
        sessions: Callable[[], Iterable[SourceSession]],
        bell: AckBell,
    ) -> None:
        self._queues = queues
        self._sessions = sessions
        self._bell = bell

    async def look(self, take_wanted: Callable[[], None]) -> None:
        """Tells what is safe where that has moved, soon after it is known here, and at the latest
        after a second.

        Args:
            take_wanted: has sinks hear of levels that are waited for.
        """
        while True:
            began = trio.current_time()
            take_wanted()
            self._arm_all()
            seconds = await self._tell_all()
            took = trio.current_time() - began
            with trio.move_on_after(seconds):
                await self._bell.changed.wait()
            # of what all took in turns, others had half
            await trio.sleep(max(COMMIT_PAUSE_SECONDS - took / 2, COMMIT_REST_SECONDS))

    async def _tell_all(self) -> float:
        """Tells all sinks what is new; for how many seconds nothing is to be told that nothing
        tells of. Apart: a session that is over, and its buffers, is not kept while `look` waits."""
        for session in list(self._sessions()):
            await session.words.tell_levels_in_turns()
        desks = [session.words for session in self._sessions()]
        if any(words.is_due for words in desks):
            return 0.0
        return COMMIT_SECONDS if any(words.is_behind for words in desks) else math.inf

    def _arm_all(self) -> None:
        """Has the boards ring that were not asked to, or have ended since."""
        for queue in list(self._queues.values()) if live.AVAILABLE else ():
            if not queue.board.is_armed and queue.copy is None:  # what a copy's source says counts
                self._arm(queue, queue.leading.safe_index())

    async def work(self) -> None:
        """Tells what is safe, each time that more is."""
        while True:
            await until(lambda: bool(self._bell.risen), self._bell.has_risen)
            began = surroundings().processor_seconds()
            self._tell_risen()  # apart: no queue or session that is over is kept while this waits
            took = surroundings().processor_seconds() - began
            await trio.sleep(max(PAUSE_SECONDS, PAUSE_SHARE * took))

    def _tell_risen(self) -> None:
        for board in self._bell.take_risen(TURN_QUEUES):
            queue = self._queues.get(board.queue)
            if queue is not None and queue.board is board:
                self._tell(queue)

    def _tell(self, queue: SourceQueue) -> None:
        """More of a queue than before may be safe."""
        sessions = list(self._sessions())
        for session in sessions:  # all queues while a task may wait for what was there at the start
            session.catch_up(queue.name if session.is_caught_up else None)
        for session in sessions:
            session.words.tell_levels_of(queue.name)
        safe = queue.leading.safe_index()
        if safe > queue.board.told_to:
            queue.board.told_to = safe
            self._bell.look_again(queue.board)
        elif safe >= queue.board.risen_to:  # else a claim has rung, as it would again at once
            self._arm(queue, safe)

    def _arm(self, queue: SourceQueue, safe: int) -> None:
        wanted = queue.leading.wanted_beyond(safe)
        if wanted is not None:
            queue.board.arm(wanted)
