"""Syncs what is waited for as soon as a live pump has stored it.

Theory of operation. Between a pump and a sync in a thread lies the event loop: three wake-ups, and
what its tasks do meanwhile, which is more than the sync takes. So a pump tells a thread itself,
which syncs and has the pump tell the source. It does that for one queue at a time. Where several
have something at once, the event loop has the others synced side by side; so it has one that needs
more than that, and for a while one whose sync was slow: the thread hears of no other meanwhile.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

from cqrepl.kernel import live
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index
from cqrepl.surroundings import NO_THREAD, begun

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, StoredBell

SLOW_SECONDS: Final = 0.1  # what takes so long
SLOW_FOR_SECONDS: Final = 10.0  # is for so long left to the event loop
_logger: Final = logging.getLogger(__name__)


class _Waited:
    """A queue that is waited for."""

    def __init__(
        self, sync: Callable[[Index], bool], later: Callable[[], None], slow_until: float
    ) -> None:
        self.later = later
        self.slow_until = slow_until  # by the system's monotonic clock
        self._sync = sync

    @property
    def is_slow(self) -> bool:
        return time.monotonic() < self.slow_until

    def sync(self, index: Index) -> bool:
        began = time.monotonic()
        is_synced = self._sync(index)
        now = time.monotonic()
        if now - began > SLOW_SECONDS:
            self.slow_until = now + SLOW_FOR_SECONDS
        return is_synced


class StoredThread:
    """One for all queues of a host; there is none before the first one is waited for.

    Args:
        soon: has the event loop call a function, from any thread.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        self._soon = soon
        self._bell: StoredBell | None = None
        self._next = count()
        self._numbers: dict[Queue, int] = {}
        self._waited: dict[int, _Waited] = {}
        self._has_ended = False

    def watch(
        self,
        queue: Queue,
        lane: "SinkLane",
        sync: Callable[[Index], bool],
        later: Callable[[], None],
    ) -> None:
        """From now on what a live pump stores in this lane is synced.

        Args:
            sync: syncs up to an index, in the thread; false where that is left to the event loop.
            later: has it done, in the event loop.
        """
        if self._bell is None and not self._begin():
            return
        assert self._bell is not None
        number = self._numbers.get(queue)
        if number is None:
            number = self._numbers[queue] = next(self._next)
        before = self._waited.get(number)
        slow_until = -math.inf if before is None else before.slow_until
        self._waited[number] = _Waited(sync, later, slow_until)
        lane.await_stored(self._bell, number)

    def _begin(self) -> bool:
        """False where there is no descriptor or no thread now: the event loop looks once a second,
        and the next lane tries it again."""
        error: OSError | str = NO_THREAD
        try:
            bell = live.StoredBell()
            if self._start(bell):
                self._bell = bell
                return True
        except OSError as none_left:
            error = none_left
        _logger.warning("what is waited for is synced later: %s", error)
        return False

    def forget(self, queue: Queue) -> None:
        """The queue is about to be closed."""
        number = self._numbers.pop(queue, None)
        if number is not None:
            del self._waited[number]

    def end(self) -> None:
        """The thread ends, after what it is doing."""
        self._has_ended = True
        if self._bell is not None:
            self._bell.ring()

    def _start(self, bell: "StoredBell") -> bool:
        return begun(threading.Thread(target=self._work, args=(bell,), daemon=True))

    def _work(self, bell: "StoredBell") -> None:
        try:
            while not self._has_ended:
                self._sync(bell.wait())
        finally:
            # by an error: what is stored later needs a thread all the same
            if not self._has_ended and not self._start(bell):
                self._bell = None  # the next lane tries it again

    def _sync(self, stored: list[tuple[int, int]]) -> None:
        found = ((self._waited.get(number), index) for number, index in stored)
        news = [(waited, index) for waited, index in found if waited is not None]
        news.sort(key=lambda each: each[0].is_slow)
        own = [each for each in news[:1] if not each[0].is_slow]
        for waited, _ in news[len(own) :]:
            self._soon(waited.later)
        for waited, index in own:
            is_synced = False
            try:
                is_synced = waited.sync(Index(index))
            finally:
                if not is_synced:
                    self._soon(waited.later)
