"""The positions of named tailers at a source, as one sink was told of them.

Theory of operation. A position goes behind the excerpts before it. A reader at the end of a busy
queue is always a little ahead of what was sent: so a position that has to wait is kept until it can
go, and only then the next one is looked at; else none would ever go. One that lies lower takes its
place, as the reader has gone back.

The first time on each connection all names are told: what the copy kept may be older, or nothing.

Most queues have no named tailer that goes to copies, and a queue may have many sinks: so each is
looked at once for all of them, and where nothing is found no sink is asked for.
"""

from collections.abc import Iterable
from contextlib import suppress

from cqrepl.protocol.source import SourceHandler
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.tailerposition import TailerPosition


class TailerLooks:
    """The positions of the named tailers of queues. Each queue is looked at when first asked for.

    Args:
        all_names: also names that do not begin `replicated:`.
    """

    def __init__(self, *, all_names: bool) -> None:
        self._all_names = all_names
        self._found: dict[str, list[TailerPosition]] = {}

    def of(self, name: str, queue: Queue) -> list[TailerPosition]:
        """Those of one queue, which has this name at its source."""
        found = self._found.get(name)
        if found is None:
            found = []
            with suppress(QueueError, OSError):  # those who need the table store say so
                found = queue.tailer_positions.look(all_names=self._all_names)
            self._found[name] = found
        return found


class ToldTailers:
    """Those of one queue on one connection."""

    def __init__(self) -> None:
        self._told: dict[str, TailerPosition] = {}
        self._due: dict[str, TailerPosition] = {}

    @property
    def has_due(self) -> bool:
        """True while a position waits for the excerpts before it."""
        return bool(self._due)

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
