"""Finds cycles that come to a queue of a source after its streams have passed them.

Theory of operation. Streams go upwards: a store file of a cycle before the ones that were sent, as
of a writer whose clock was set back, is read by none of them. Once a second, where names in the
directory have changed, the source looks whether there is one with excerpts. It was passed if it was
not there when the streams began, and no stream was the first one to send excerpts of it. Then the
queue stops as diverged, and no mark is behind it any more (`SourceQueue`): not those that are kept
either. With the next connection a copy is compared as a whole, and goes on where it lacks nothing,
or where what it lacks is excused (`agreement.lineage`).

What comes while no source runs is compared with the next connection as well, but a peer that proves
nothing, `gc`, and readers go by the marks. So the lowest cycle is noted beside them, and one below
it that has come since lowers them when the source starts (`queue.read.latecycles`).
"""

import os
from typing import Final

from cqrepl.queue import Diverged, Queue, QueueError
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index, cycle_of, index_of
from cqrepl.queue.read.count import count_in
from cqrepl.queue.read.latecycles import late_below
from cqrepl.replicator.agreement.lineage import lacks_begin
from cqrepl.replicator.disk.diskend import LONG_TICK_NS
from cqrepl.replicator.marks.counters import NOTHING, SourceCounters
from cqrepl.replicator.marks.hostmarks import QueueMarks
from cqrepl.surroundings import surroundings

_NEVER: Final = -1
_HERE: Final = "excerpts"


class LateWatch:
    """Looks, in one queue that a source streams, for cycles that came late.

    Args:
        is_own: from its own directory; nothing is found in a copy, which a sink fills in order.
    """

    def __init__(
        self, queue: Queue, counters: SourceCounters, marks: QueueMarks, *, is_own: bool
    ) -> None:
        self._queue = queue
        self._cycles = queue.cycles
        self._counters = counters
        self._marks = marks
        self._is_own = is_own
        self._known: set[Cycle] | None = None  # nothing of these is passed by
        self._unfilled: set[Cycle] = set()  # passed, and without an excerpt
        self._before = NOTHING  # the mark of earlier runs
        self._seen_ns = _NEVER  # when names in the directory changed last

    def find(self) -> Index | None:
        """The first index of what came late while no source ran, as far as is noted; None for
        nothing. To be called once, at the start.

        Raises:
            QueueError, OSError: the queue, or what is noted of it, cannot be read.
        """
        if not self._is_own:
            return None
        late = late_below(self._cycles, self._queue.first_noted)
        mark = max(self._queue.sent_index, self._queue.acknowledged_index)
        self._before = min(mark, self._queue.next_index())
        self._known = self._known_now(self._cycles.listing())
        return index_of(late[0], SEQUENCE_FIRST, self._cycles.shift) if late else None

    def look(self, *, is_returning: bool = False) -> Diverged | None:
        """The difference for which no copy may go on with the stream; None while no excerpts came
        that streams had passed.

        Args:
            is_returning: a sink gives back to the queue now.
        """
        if not self._unfilled and not self._has_changed():
            return None
        try:
            listed = self._cycles.listing()
            late = self._find(listed, is_returning=is_returning)
            if late:
                return self._error(late[0], self._first(listed))
            self._note_first(listed)
        except (QueueError, OSError):
            self._seen_ns = _NEVER  # who reads it tells
        return None

    def find_new(self) -> frozenset[Cycle]:
        """The cycles with excerpts that came behind what streams have passed, for `note_compared`.
        In any thread.

        Raises:
            QueueError, OSError: the queue cannot be read.
        """
        known = self._known
        if not self._is_own or known is None:
            return frozenset()
        passed = self._passed()
        new = [each for each in self._cycles.listing() if each < passed and each not in known]
        return frozenset(cycle for cycle in new if count_in(self._cycles, cycle, 1))

    def note_compared(self, new: frozenset[Cycle]) -> None:
        """A copy holds the same as this queue, these cycles included, and no other stream is on:
        none has passed them. As a store file that was away for a moment."""
        if self._known is not None:
            self._known |= new

    def begin(self) -> None:
        """A stream begins: what is there by now comes with it, or was compared. What was passed
        before is left to the next look."""
        if not self._is_own:
            return
        try:
            listed = self._cycles.listing()
            late = set(self._find(listed))
            assert self._known is not None
            self._known = (self._known | set(listed)) - self._unfilled - late
            if late:
                self._seen_ns = _NEVER
            else:
                self._note_first(listed)
        except (QueueError, OSError):
            return  # who reads it tells

    def _find(self, listed: list[Cycle], *, is_returning: bool = False) -> list[Cycle]:
        """The cycles that were passed, each once."""
        if self._known is None:  # it could not be read at the start
            self._known = self._known_now(listed)
        self._known |= set(listed) if is_returning else self._counters.cycles_sent
        self._counters.cycles_sent.clear()
        passed = self._passed()
        new = [cycle for cycle in listed if cycle not in self._known and cycle < passed]
        late = [cycle for cycle in new if count_in(self._cycles, cycle, 1)]
        self._unfilled = {
            cycle for cycle in new if cycle not in late and not self._cycles.has_ended(cycle)
        }
        self._known |= set(new) - self._unfilled
        return late

    def _known_now(self, listed: list[Cycle]) -> set[Cycle]:
        """Those with a store file, but for empty ones before the first excerpt; and those of which
        notes tell, whose files may be put back."""
        first = self._first(listed)
        known = {cycle for cycle in listed if first is not None and cycle >= first}
        return known | self._cycles.closed.load().keys()

    def _first(self, listed: list[Cycle]) -> Cycle | None:
        return next((cycle for cycle in listed if count_in(self._cycles, cycle, 1)), None)

    def _error(self, late: Cycle, first: Cycle | None) -> Diverged:
        index = index_of(late, SEQUENCE_FIRST, self._cycles.shift)
        received = "nothing by its copies: the store file came after later ones were sent"
        self._before = min(self._before, index - 1)
        return lacks_begin(index, received) if late == first else Diverged(index, _HERE, received)

    def _note_first(self, listed: list[Cycle]) -> None:
        first = self._first(listed)
        if first is not None:
            self._queue.note_first(first)

    def _passed(self) -> int:
        """The cycle of the greatest index that a host is taken to have, or that was sent to one."""
        counted = [self._counters.index_sent, self._counters.index_acknowledged]
        hosts = [max(each.sent, each.acknowledged) for each in self._marks.known().values()]
        mark = max([self._before, *counted, *hosts])
        return _NEVER if mark <= 0 else cycle_of(Index(mark), self._cycles.shift)

    def _has_changed(self) -> bool:
        """True where names in the directory may have changed since this was asked last."""
        here = surroundings()
        if not here.has_threads:
            return True  # real times of change tell nothing there
        try:
            changed_ns = os.stat(self._cycles.path).st_mtime_ns
        except OSError:
            return False  # who reads it tells
        if changed_ns == self._seen_ns:
            return False
        # one of now may change again within the same tick of that clock
        is_recent = here.wall_ns() - changed_ns < LONG_TICK_NS
        self._seen_ns = _NEVER if is_recent else changed_ns
        return True
