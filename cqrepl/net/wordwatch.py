"""One look for all connections that have nothing to do: at the words that change when that ends.

Theory of operation. A mapped file tells nobody that it was written to, so a source has to look. A
thread that wakes costs 15 to 40 us, looking at a word 50 ns. So the connections of a process that
have had nothing for some time do not look themselves: one thread looks at the words of all of them,
and lets the event loop know whose have changed. It is there while there is anything to look at.

The thread judges nothing. It tells that a word is not what it was when its connection found nothing
to send; what that means is for the connection to find out.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import trio

from cqrepl.kernel.memory import WatchedWord

LOOK_PAUSE_SECONDS: Final = 0.009


class _Watcher:
    """What one connection waits for."""

    def __init__(self, words: Sequence[WatchedWord], tell: Callable[[], None]) -> None:
        self.words = words
        self.tell = tell

    @property
    def has_news(self) -> bool:
        return any(word[0] != value for word, value in self.words)


class WordWatch:
    """Looks at words, in a thread, for the connections of one event loop."""

    def __init__(
        self, pause: Callable[[], object] = lambda: time.sleep(LOOK_PAUSE_SECONDS)
    ) -> None:
        self._pause = pause
        self._token = trio.lowlevel.current_trio_token()
        self._guard = threading.Lock()  # of what follows; the thread reads the first without it
        self._watchers: tuple[_Watcher, ...] = ()
        self._is_running = False

    @contextmanager
    def watching(self, words: Sequence[WatchedWord], tell: Callable[[], None]) -> Iterator[None]:
        """For the length of a block, `tell` is called in the event loop, once, when a word is
        another one."""
        watcher = _Watcher(words, tell)
        with self._guard:
            self._watchers += (watcher,)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._look, name="word watch", daemon=True).start()
        try:
            yield
        finally:
            self._leave(watcher)

    def _leave(self, watcher: _Watcher) -> None:
        with self._guard:
            self._watchers = tuple(each for each in self._watchers if each is not watcher)

    def _look(self) -> None:
        while self._has_watchers():
            self._pause()
            for watcher in self._watchers:
                if watcher.has_news:
                    self._leave(watcher)
                    with suppress(trio.RunFinishedError):
                        self._token.run_sync_soon(watcher.tell)

    def _has_watchers(self) -> bool:
        if self._watchers:
            return True
        with self._guard:
            self._is_running = bool(self._watchers)
            return self._is_running


_watch: Final[trio.lowlevel.RunVar[WordWatch]] = trio.lowlevel.RunVar("word watch")


def word_watch() -> WordWatch:
    """The watch of this event loop."""
    try:
        return _watch.get()
    except LookupError:
        watch = WordWatch()
        _watch.set(watch)
        return watch
