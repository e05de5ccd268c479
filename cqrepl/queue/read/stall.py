"""Finds why a waiting tailer cannot go on: a cycle that no writer will close, or lost files.

Theory of operation. A tailer leaves a cycle only at its end-of-file mark, which a writer sets when
it goes up to another cycle. A writer that dies in between leaves a file without one, below a newer
file that holds excerpts, and a tailer would wait there for ever. The same goes for a file of which
the creator died before its header was ready. Java's tailers wait; so do ours, but they notice:

    looked at      every 0.25 s while there is nothing to read, never while there is
    suspected      a newer cycle holds excerpts; no writer leaves it so for long. Every 0.1 s then
    stalled        and no living process holds the write lock: the writer that left it so is gone
    repaired       once it has been so for 0.3 s, by a tailer that was given `queue.write.endrepair`

The same look finds a store file that is no longer the one under its name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.queue.files.cutreports import cut_of
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.locks import WRITE_LOCK_KEY, is_held_elsewhere
from cqrepl.queue.files.storefile import StoreFile
from cqrepl.queue.format.errors import IndexGap, QueueCut, QueueDamaged
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    index_of,
    sequence_of,
)

_LOOK_PAUSE_S: Final = 0.25
_LOOK_PAUSE_SUSPECTED_S: Final = 0.1
_CONFIRM_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A cycle that a tailer cannot leave. `since_s` is of the tailer's clock."""

    path: Path
    cycle: Cycle
    cycle_next: Cycle
    since_s: float

    def __str__(self) -> str:
        return (
            f"{self.path}: cycle {self.cycle} has no end-of-file mark and no writer,"
            f" cycle {self.cycle_next} holds excerpts"
        )


Repair = Callable[[Stall], bool]


class StallWatch:
    """Looks at what a tailer waits for."""

    def __init__(
        self, cycles: Cycles, clock: Callable[[], float], repair: Repair | None = None
    ) -> None:
        """With `repair`, which closes the cycle of a stall and answers true if it did."""
        self._cycles = cycles
        self._clock = clock
        self._repair = repair
        self._looked_at: float | None = None
        self._suspected: tuple[Cycle, float] | None = None  # a cycle, and since when
        self.stalled: Stall | None = None

    def waits(self, store: StoreFile | None, cycle: Cycle, index: Index) -> bool:
        """Called when there is nothing to read; true when something was repaired.

        Args:
            store: the file waited in; None when the header of the cycle's file is not ready.
            cycle: the cycle waited for.
            index: the next one to be read.

        Raises:
            LayoutMismatch: the queue was made anew with another roll cycle.
            IndexGap: the store file was removed before its end.
            QueueCut: it went to quarantine, with a tail of the queue.
            QueueDamaged: another store file has taken its name, or it ends too early.
        """
        now = self._clock()
        pause_s = _LOOK_PAUSE_S if self._suspected is None else _LOOK_PAUSE_SUSPECTED_S
        if self._looked_at is not None and now - self._looked_at < pause_s:
            return False
        self._looked_at = now
        self._cycles.check_layout()
        later = with_excerpts_above(self._cycles, cycle)
        if store is not None and not store.mapping.is_current():
            raise self._gone(store, later, index)
        if later is None:
            self.goes_on()
            return False
        if store is not None:  # it may be an older one, which says nothing of its end
            sequence = sequence_of(index, self._cycles.shift)
            self._cycles.check_closed(cycle, sequence, is_closed=False)
        if self._suspected is None or self._suspected[0] != cycle:
            self._suspected, self.stalled = (cycle, now), None
        since_s = self._suspected[1]
        if self.stalled is None and not is_held_elsewhere(self._cycles.table_path, WRITE_LOCK_KEY):
            path = self._cycles.path_of(cycle)
            self.stalled = Stall(path=path, cycle=cycle, cycle_next=later, since_s=since_s)
        if self._repair is None or self.stalled is None or now - since_s < _CONFIRM_S:
            return False
        return self._repair(self.stalled)

    def goes_on(self) -> None:
        """Called when there was something to read."""
        self._suspected = self.stalled = None

    def check_cut(self, store: StoreFile, index: Index) -> None:
        """Does nothing while the file that is read has its name, or went otherwise than with a
        tail.

        Raises:
            QueueCut: it went to quarantine.
        """
        if not store.mapping.is_current():
            cut = cut_of(self._cycles.path, store.path.name, store.mapping.identity)
            if cut is not None:
                raise QueueCut(cut, index, path=store.path)

    def _gone(self, store: StoreFile, later: Cycle | None, index: Index) -> Exception:
        self.check_cut(store, index)
        if store.path.exists():
            return QueueDamaged(
                f"expected the store file that holds {index:#x}, another has taken its name",
                path=store.path,
                index=index,
            )
        shift = self._cycles.shift
        found = NEXT_OF_EMPTY if later is None else index_of(later, SEQUENCE_FIRST, shift)
        reason = "its store file was removed before its end"
        return IndexGap(index, found, reason, path=store.path)


def unclosed(cycles: Cycles, below: list[Cycle], now: float) -> Stall | None:
    """The lowest of some cycles that has no end, while a later one holds excerpts and no living
    process holds the write lock.

    Args:
        now: of the clock that the caller goes by.

    Raises:
        QueueError: a store file cannot be read.
    """
    for cycle in below:
        if cycles.has(cycle) and not cycles.has_ended(cycle):
            later = with_excerpts_above(cycles, cycle)
            if later is None or is_held_elsewhere(cycles.table_path, WRITE_LOCK_KEY):
                return None
            path = cycles.path_of(cycle)
            return Stall(path=path, cycle=cycle, cycle_next=later, since_s=now)
    return None


def with_excerpts_above(cycles: Cycles, cycle: Cycle) -> Cycle | None:
    """The lowest cycle above that holds an excerpt."""
    for later in cycles.listing():
        if later > cycle:
            store = cycles.open(later)
            if store is not None:
                has_any = bool(store.find(0, count_max=1).offsets)
                store.close()
                if has_any:
                    return later
    return None
