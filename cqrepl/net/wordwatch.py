"""One look for all connections that have nothing to do: at the words that change when that ends.

Theory of operation. A mapped file does not tell that it was written to, so a source has to look. A
thread that wakes costs 15 to 50 us, and a look at a word, which has left the caches since the last
one, still up to 1 us. So the connections that have had nothing for some time do not look
themselves: one thread looks at the words of all of them, at each once, and lets the event loop know
whose have changed. With the native kernel it does so without the interpreter, whose wake-up costs
more than all the rest. It is there while there is anything to look at. Where none of them has
changed for ten seconds it looks half as often: then what comes is 20 ms late at most, as behind the
pauser of that name in Java.

The thread is over before the interpreter ends: it holds memory of Python, which goes then, and
native code must not wake in the middle of that.

The thread judges nothing. It tells that a word is not what it was when its connection found nothing
to send; what that means is for the connection to find out.
"""

import atexit
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import trio

from cqrepl.kernel.memory import WatchedWord, looks_at
from cqrepl.surroundings import begun, surroundings

LOOK_PAUSE_SECONDS: Final = 0.009
REST_PAUSE_SECONDS: Final = 0.019
REST_AFTER_SECONDS: Final = 10.0


class _Watcher:
    """The words that one connection waits for, and the call that tells it of a change."""

    def __init__(
        self, words: Sequence[WatchedWord], tell: Callable[[], None], rests_from: float
    ) -> None:
        self.words = words
        self.tell = tell
        self.rests_from = rests_from  # by the system's monotonic clock: looks may be fewer

    @property
    def has_news(self) -> bool:
        return any(word.has_changed for word in self.words)


class _View:
    """All that is to be looked at, side by side."""

    def __init__(self, watchers: Sequence[_Watcher]) -> None:
        self.watchers = list(watchers)
        # connections wait for the same words mostly; a place that has changed in between is kept
        words = {(one.place, one.value): one for each in watchers for one in each.words}
        rests_from = max((each.rests_from for each in watchers), default=0.0)
        count = max(0, math.ceil((rests_from - time.monotonic()) / LOOK_PAUSE_SECONDS))
        self.looks = looks_at(list(words.values()), LOOK_PAUSE_SECONDS, REST_PAUSE_SECONDS, count)


class WordWatch:
    """Looks at words, in a thread, for the connections of one event loop."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._guard = threading.Lock()  # of what follows
        self._view = _View([])
        self._is_running = False

    @property
    def watchers(self) -> Sequence[object]:
        """Those that nothing was told to so far."""
        return self._view.watchers

    @contextmanager
    def watching(
        self, words: Sequence[WatchedWord], tell: Callable[[], None], quiet_seconds: float = 0.0
    ) -> Iterator[None]:
        """For the length of a block, `tell` is called in the event loop, once, when a word is
        another one.

        Args:
            quiet_seconds: for so long none of them has changed.
        """
        watcher = _Watcher(words, tell, time.monotonic() + REST_AFTER_SECONDS - quiet_seconds)
        with self._guard:
            self._look_at([*self._view.watchers, watcher])
            is_looked_at = self._is_running or not surroundings().has_threads or self._begin()
        if not is_looked_at:  # it looks itself, as before it came to rest, and then tries it again
            self._leave(watcher)
            tell()
        try:
            yield
        finally:
            self._leave(watcher)

    def _begin(self) -> bool:
        """False where no thread can be started now."""
        thread = threading.Thread(target=self._look, name="word watch", daemon=True)
        if not _threads:
            atexit.unregister(_end_all)
            atexit.register(_end_all)
        _threads[thread] = self
        self._is_running = begun(thread)
        if not self._is_running:
            del _threads[thread]
        return self._is_running

    def end(self) -> None:
        """No connection is told anything any more; the thread is about to end."""
        with self._guard:
            self._look_at([])

    def _look_at(self, watchers: Sequence[_Watcher]) -> None:
        """The guard is held. The thread takes up the new view with its next look."""
        self._view.looks.cancel()
        self._view = _View(watchers)

    def _leave(self, watcher: _Watcher) -> bool:
        """False when it has left before."""
        with self._guard:
            others = [each for each in self._view.watchers if each is not watcher]
            if len(others) == len(self._view.watchers):
                return False
            self._look_at(others)
            return True

    def look(self) -> None:
        """Looks once, in the event loop: where there are no threads, a laboratory does so."""
        for watcher in self._view.watchers:
            if watcher.has_news and self._leave(watcher):
                watcher.tell()

    def _look(self) -> None:
        while view := self._view_of_now():
            if view.looks.until_changed():
                for watcher in view.watchers:
                    if watcher.has_news and self._leave(watcher):
                        with suppress(trio.RunFinishedError):
                            self._token.run_sync_soon(watcher.tell)
        _threads.pop(threading.current_thread(), None)

    def _view_of_now(self) -> _View | None:
        """None when there is nothing to look at: then the thread ends."""
        with self._guard:
            self._is_running = bool(self._view.watchers)
            return self._view if self._is_running else None


_threads: Final[dict[threading.Thread, WordWatch]] = {}  # those that look


def _end_all() -> None:
    """At the end of the process, where an event loop was left as it stood."""
    for thread, watch in list(_threads.items()):
        watch.end()
        thread.join()


_watch: Final[trio.lowlevel.RunVar[WordWatch]] = trio.lowlevel.RunVar("word watch")


def word_watch() -> WordWatch:
    """The watch of this event loop."""
    try:
        return _watch.get()
    except LookupError:
        watch = WordWatch()
        _watch.set(watch)
        return watch
