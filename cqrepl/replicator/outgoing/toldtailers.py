"""What one sink was told of where named tailers stand at its source.

Theory of operation. A position goes behind the excerpts before it. A reader at the end of a busy
queue is always a little ahead of what was sent: so a position that has to wait is kept until it can
go, and only then the next one is looked at; else none would ever go. One that lies lower takes its
place, as the reader has gone back.

The first time on each connection all names are told: what the copy kept may be older, or nothing.
"""

from collections.abc import Iterable

from cqrepl.protocol.source import SourceHandler
from cqrepl.queue.format.tailerposition import TailerPosition


class ToldTailers:
    """Those of one queue on one connection."""

    def __init__(self) -> None:
        self._told: dict[str, TailerPosition] = {}
        self._due: dict[str, TailerPosition] = {}

    def note(self, found: Iterable[TailerPosition]) -> bool:
        """They stand there now; true where there is anything to tell."""
        for each in found:
            due = self._due.get(each.name)
            if self._told.get(each.name) == each:
                self._due.pop(each.name, None)
            elif due is None or each.index < due.index:
                self._due[each.name] = each
        return bool(self._due)

    def tell(self, source: SourceHandler) -> bool:
        """Tells what can be told now; true where that is anything.

        Args:
            source: the core's half of the queue.
        """
        told = [each for each in self._due.values() if source.tell_tailer(each)]
        for each in told:
            del self._due[each.name]
            self._told[each.name] = each
        return bool(told)
