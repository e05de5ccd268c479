"""Watchers: they are told of transactions as they are seen. The caller has a lock."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cqrepl.grid.partition.partitiongroup import OpenTx


@dataclass(slots=True, eq=False)
class Watcher:
    """One that is told.

    Args:
        tell: is called in the event loop.
        is_over: it is not to be told any more.
        since: the number of the last transaction that it has not to be told of.
    """

    tell: Callable[[OpenTx], None]
    is_over: Callable[[], bool]
    since: int = 0


class Watchers:
    """All of one group, and what they were not told of yet."""

    def __init__(self) -> None:
        self._all: list[Watcher] = []
        self._seen = 0  # transactions so far
        self._news: list[tuple[int, OpenTx]] = []  # with their numbers

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, watcher: Watcher) -> None:
        """One more, who knows all that was noted so far."""
        watcher.since = self._seen
        self._all.append(watcher)

    def note(self, committed: Iterable[OpenTx]) -> None:
        """These are seen from now on."""
        for each in committed if self._all else ():
            self._seen += 1
            self._news.append((self._seen, each))

    def take(self) -> list[tuple[Watcher, OpenTx]]:
        """The watchers that are to be told, each with a transaction."""
        news, self._news = self._news, []
        self._all = [each for each in self._all if not each.is_over()]
        return [(each, tx) for number, tx in news for each in self._all if number > each.since]
