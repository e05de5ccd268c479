"""Does a queue of a source still have all that its marks tell of?

Theory of operation. Store files may be removed or cut, or older ones put back, with a source that
runs or without. Other excerpts may then get indexes that hosts know, so in this run no mark is
above the end. Where marks are kept, those of hosts stay, as they tell appenders of ours what is
missing: until the host's stream begins, by when it has given back what it has. Those of the queue
itself, Java's, fall at once, where a host's tells the same; the others, which no copy can tell
from a loss, stay until the queue reaches them again, or a person accepts that.

A writer that looks at no mark, as Java, cannot be kept from appending. Once a second the source
looks at the names of the files. Where those have changed, it asks for the end: one below what was
sent stops the queue, and so does one that has risen while something is missing. From then on no
mark covers what was written.

A queue whose marks are all at or below its end, and whose store file is the one that it was when
they were written, in the same start of the machine, has lost nothing. Else it may have, as one from
a backup, whose marks came with it: then each host that is known may give back what it has, once.
"""

import os
from collections.abc import Callable
from typing import Final

from cqrepl.queue import Queue, QueueDamaged, QueueError
from cqrepl.queue.files.markslots import HOSTS
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of, format_index
from cqrepl.queue.read.lostmarks import LostMark, lost_mark, may_be_power_cut
from cqrepl.replicator.marks.counters import NOTHING, SourceCounters
from cqrepl.replicator.marks.hostmarks import HostMarks, QueueMarks

_Seen = tuple[int, int, int, int] | None
_ABSENT: Final = (-1, -1, -1)


class EndWatch:
    """Watches the end of one queue that a source streams from its own directory.

    Args:
        end: gives the next index of what can be read.
        lower_synced: takes the synced mark back to an end.

    Attributes:
        lost: what tells that excerpts are missing; None where nothing does, or it is settled.
    """

    def __init__(
        self,
        queue: Queue,
        end: Callable[[], Index],
        counters: SourceCounters,
        marks: QueueMarks,
        lower_synced: Callable[[Index], None],
    ) -> None:
        self.lost: LostMark | None = None
        self._queue = queue
        self._end = end
        self._counters = counters
        self._marks = marks
        self._lower_synced = lower_synced
        self._seen: _Seen = None
        self._is_sure = self._is_noted = queue.has_noted_file
        self._has_begun: set[int] = set()  # streams to these hosts, in this run

    @property
    def has_all(self) -> bool:
        """True where nothing is lost here that a host may have."""
        return self.lost is None and self._is_sure and self._queue.has_noted_file

    def _note_file(self, end: Index) -> None:
        """The last store file is known as it is, where nothing of it may be missing."""
        if not self._is_sure or self.lost is not None or end == NEXT_OF_EMPTY:
            return
        if self._is_noted and not self._queue.has_noted_file:  # another has its name
            self._is_sure, self._has_begun = False, set()
            return
        self._queue.note_file(cycle_of(Index(end - 1), self._queue.cycles.shift))
        self._is_noted = True

    def find(self) -> None:
        """Looks whether something is missing.

        Raises:
            QueueError, OSError: the queue or its marks cannot be read.
        """
        self.lost = lost_mark(self._queue.cycles)

    def lower(self, last: int) -> None:
        """No mark of this run is above the end any more.

        Args:
            last: the index of the last excerpt; -1 for none.

        Raises:
            QueueError, OSError: the marks cannot be read.
        """
        self._marks.give_up(last, keeps_sent=not may_be_power_cut(self._queue.cycles))
        self._counters.lower_to(last)
        if self.lost is None or self._marks.are_missed:
            self._queue.lower_marks(last)

    def look(self, *, is_returning: bool) -> None:
        """Does nothing while the end is where it is to be.

        Args:
            is_returning: a sink gives back to the queue now.

        Raises:
            QueueDamaged: excerpts are gone, or something was written in their place.
        """
        mark = max(self._counters.index_sent, self._counters.index_acknowledged)
        if mark == NOTHING and self.lost is None:
            return
        at = mark if self.lost is None else self.lost.end
        seen, before = self._look_at(Index(max(at, 0))), self._seen
        self._seen = seen
        if seen is None or seen == before:
            return
        try:
            end = self._end()
        except (QueueError, OSError):
            return  # who reads it tells
        if is_returning:
            self.note_returned()
        elif self.lost is not None and end > self.lost.end:
            raise QueueDamaged(
                f"{self.lost}, where it was to stay until that is settled: another process has"
                f" appended up to {format_index(end)}",
                path=self._queue.path,
                index=self.lost.end,
            )
        elif self.lost is None and mark >= end:
            lost = LostMark(mark, "what hosts were sent", end)
            raise QueueDamaged(str(lost), path=self._queue.path, index=end)
        self._note_file(end)

    def note_returned(self) -> None:
        """A sink gives back, or has given back some."""
        if self.lost is not None:
            self.lost = self.lost._replace(end=self._end())

    def begin_return(self, end: Index) -> None:
        """A sink gives back what is from `end` on."""
        if self.lost is not None:
            self._lower_synced(end)

    def settle(self, marks: HostMarks, start: int, *, is_proved: bool) -> None:
        """The stream to a host begins: it has nothing more of what is missing.

        Args:
            start: the next index that it wants.
            is_proved: it has proved that it holds what is here.

        Raises:
            QueueError, OSError: the queue or its marks cannot be read.
        """
        if is_proved or start > marks.missed_to:
            self._settle(marks, start)
        if marks.host_id in HOSTS:
            self._has_begun.add(marks.host_id)
            if self._marks.known().keys() <= self._has_begun and not self._is_sure:
                self._is_sure, self._is_noted = True, False
            self._note_file(self._end())

    def _settle(self, marks: HostMarks, start: int) -> None:
        was_missed = self._marks.are_missed
        marks.settle()
        if self.lost is None:  # another host has given it back
            return
        if start > self.lost.last:
            self.lost = None
        elif was_missed and not self._marks.are_missed and marks.host_id in HOSTS:
            end = self._end()
            last = None if end == NEXT_OF_EMPTY else self._queue.last_index_before(end)
            self._queue.lower_marks(NOTHING if last is None else last)
            self._lower_synced(end)
            self.lost = None

    def _look_at(self, index: Index) -> _Seen:
        """Numbers that change with the store file of an index, or with a name in the directory;
        None where the system does not tell them now."""
        cycles = self._queue.cycles
        try:
            changed_ns = os.stat(cycles.path).st_mtime_ns
        except OSError:
            return None
        try:
            file = os.stat(cycles.path_of(cycle_of(index, cycles.shift)))
        except FileNotFoundError:
            return *_ABSENT, changed_ns
        except OSError:
            return None
        return file.st_ino, file.st_size, file.st_mtime_ns, changed_ns
