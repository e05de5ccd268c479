"""Syncs what is waited for as soon as a live pump has stored it.

Theory of operation. Between a pump and a sync in a thread lies the event loop: three wake-ups, and
what its tasks do meanwhile, which is more than the sync takes. So a pump tells a thread itself,
which syncs and has the pump tell the source. It does that for one queue at a time. Where several
have something at once, the event loop has the others synced side by side; so it has one that needs
more than that.
"""

import threading
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from cqrepl.kernel import live
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, StoredBell


class _Waited(NamedTuple):
    sync: Callable[[Index], bool]
    later: Callable[[], None]


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
        if self._bell is None:
            self._bell = live.StoredBell()
            thread = threading.Thread(target=self._work, args=(self._bell,), daemon=True)
            thread.start()
        number = self._numbers.get(queue)
        if number is None:
            number = self._numbers[queue] = next(self._next)
        self._waited[number] = _Waited(sync, later)
        lane.await_stored(self._bell, number)

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

    def _work(self, bell: "StoredBell") -> None:
        while not self._has_ended:
            stored = ((self._waited.get(number), index) for number, index in bell.wait())
            news = [(waited, index) for waited, index in stored if waited is not None]
            for waited, _ in news[1:]:
                self._soon(waited.later)
            for waited, index in news[:1]:
                if not waited.sync(Index(index)):
                    self._soon(waited.later)
