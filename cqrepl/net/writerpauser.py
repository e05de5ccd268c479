"""The pauses of a connection's writer while no queue has anything new.

The writer waits in trio, where other tasks run in between, and where a wake-up ends the pause at
once. trio sleeps a millisecond at least: a live pump is quicker.

Each look at all queues costs far more than a look at one word, so a writer that has found nothing
for a second rests: it names the word of each queue that changes when something comes, and lets the
word watch look at those. Now and then it looks itself all the same, for what no word tells.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import trio

from cqrepl.kernel.live import Pausing
from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.wordwatch import word_watch
from cqrepl.surroundings import surroundings

SLEEP_SECONDS: Final = {Pausing.BALANCED: 0.001, Pausing.SLEEPY: 0.005}
REST_SECONDS: Final = 10.0  # at most, until it looks itself

Watched = Callable[[], "Sequence[WatchedWord] | None"]


class WriterPauser:
    """Counts polls that found nothing."""

    def __init__(self, pausing: Pausing = Pausing.BALANCED, *, may_rest: bool = False) -> None:
        """With `may_rest` the words of the queues change by the clock on the wall, and trio's clock
        is no other."""
        self._sleep_s = SLEEP_SECONDS.get(pausing)
        self._may_rest = may_rest and self._sleep_s is not None
        self._rest_after_s = surroundings().rest_after_seconds
        self._polls = surroundings().idle_polls
        self._idle = 0  # polls in a row that found nothing
        self.is_waiting = False  # the last poll found nothing
        self._awake_from = trio.current_time()

    @property
    def wants_rest(self) -> bool:
        """True when nothing was found for so long that the writer should rest."""
        return self._may_rest and trio.current_time() >= self._awake_from + self._rest_after_s

    def leave_live(self) -> None:
        """A live pump cannot wait for what comes next: it is polled for."""
        self.is_waiting = True

    def reset(self) -> None:
        """Something was found."""
        self._idle = 0
        self._stay_awake()

    async def pause(
        self, wake: trio.Event, watched: Watched = lambda: None, limit_s: float = math.inf
    ) -> None:
        """Waits before the next poll, or until `wake` is set.

        Args:
            watched: the words that tell when there is anything to be found; None when no words do.
            limit_s: after so many seconds there may be something else to be found.
        """
        if wake.is_set():
            await trio.lowlevel.checkpoint()  # what it is about is looked at before any pause
            return
        if self.wants_rest:
            await self._rest(wake, watched(), limit_s)
            return
        self._idle += 1
        self.is_waiting = True
        if self._sleep_s is None or self._idle <= self._polls:
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(self._sleep_s):
            await wake.wait()

    async def _rest(
        self, wake: trio.Event, words: Sequence[WatchedWord] | None, limit_s: float
    ) -> None:
        if words is None:
            self._stay_awake()
            await trio.lowlevel.checkpoint()
            return

        def tell() -> None:
            self._stay_awake()  # more may have to come before there is an excerpt
            wake.set()

        quiet_s = trio.current_time() - self._awake_from
        with (
            trio.move_on_after(min(REST_SECONDS, limit_s)),
            word_watch().watching(words, tell, quiet_s),
        ):
            await wake.wait()

    def _stay_awake(self) -> None:
        """Polls as often as ever, or lets a live pump do it, until it may rest again."""
        self.is_waiting = False
        self._awake_from = trio.current_time()
