"""Watches over the closed store files of a queue: what they held once, they hold now.

Theory of operation. A closed cycle never changes, so it is remembered once, and noted beside the
queue once its file is on the disk (`files.closedcycles`): what a power cut may still take is not
noted. Each look then lists the directory, and opens only files that are new to this process, or
other ones than the last time, or were changed since: those are read once more, too. The last file
is none of them, whatever was noted: a queue that has lost its end, as one from a backup, gets it
back from its copies. What changes behind the file system's back is found where copies are compared.

What this process has found as it was noted counts from then on, if the notes go or tell of less: a
store file may be removed or replaced together with them. Not so once it has found a store file gone
or changed of which the notes told: then they have done their part, and a person may have them
forgotten (`acceptance`) while it runs.
"""

import math
from collections.abc import Mapping
from typing import Final

from cqrepl.kernel.chain import has_chains
from cqrepl.queue.files.chainfile import StoreState
from cqrepl.queue.files.closedcycles import UNKNOWN_CHAIN, ClosedCycle
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.index import Cycle, Index, Sequence, cycle_of, index_of
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.closeddigest import ClosedDigest
from cqrepl.queue.read.count import count_in
from cqrepl.queue.read.stall import Stall, unclosed
from cqrepl.surroundings import monotonic

NEW_MAX: Final = 16  # cycles that are new in one look: each is read
STALE_MAX: Final = 1024  # records of files that retention has taken
STALL_SECONDS: Final = 1.0


class ClosedFiles:
    """The closed store files of one queue. One thread at a time looks.

    Attributes:
        has_more: the last look had not the time to read all that was new.
        stall: the lowest cycle that was found without an end by two looks a second apart, though a
            later one holds excerpts, which no tailer reaches then; None for none.
    """

    def __init__(self, cycles: Cycles, chains: Chains) -> None:
        self.has_more = False
        self.stall: Stall | None = None
        self._suspected: Stall | None = None
        self._cycles = cycles
        self._chains = chains
        self._sound: dict[Cycle, StoreState] = {}  # the file that was looked at, and as it was
        self._held: dict[Cycle, ClosedCycle] = {}  # what was noted of it then

    def look(self, synced: Index, doubtful: range = range(0), seconds: float = math.inf) -> bool:
        """Checks that what was noted is there, and notes what has been closed since; true when that
        waits for the disk.

        Args:
            synced: a next index: what comes before it is on the disk.
            doubtful: cycles that a power cut may have torn: they may still be mended.
            seconds: so long what is new is read, and the next look goes on there.

        Raises:
            QueueDamaged: a store file is missing between others, or holds less than it did.
            QueueError: one cannot be read.
            OSError: the record cannot be read, or written.
        """
        listed = self._cycles.listing()
        if not listed:
            return False
        closed, there = self._cycles.closed, set(listed)
        noted = self._known(closed.load(), listed[0])
        for cycle in self._held.keys() - there:
            del self._held[cycle]
        if any(listed[0] < cycle < listed[-1] and cycle not in there for cycle in noted):
            self._cycles.check_between(listed[0], listed[-1])
        for record in noted.values():
            if record.cycle in there and record.cycle < listed[-1]:
                self._check(record)
        new = [
            cycle
            for cycle in listed[:-1]
            if cycle not in noted or (noted[cycle].chain == UNKNOWN_CHAIN and cycle not in doubtful)
        ]
        self._look_for_stall(new[:NEW_MAX])
        self.has_more = has_chains() and len(new) > NEW_MAX
        until = monotonic() + seconds
        for cycle in new[:NEW_MAX] if has_chains() else ():
            left_s = max(until - monotonic(), 0.0)
            if not self._remember(cycle, left_s, is_doubtful=cycle in doubtful):
                self.has_more = True
                break
        closed.note_below(cycle_of(synced, self._cycles.shift))
        if sum(cycle < listed[0] for cycle in noted) > max(STALE_MAX, len(listed)):
            closed.forget_below(listed[0])
        return closed.is_ahead

    @property
    def is_suspicious(self) -> bool:
        """True until a further look has told whether a cycle stays without its end."""
        return self._suspected is not None and self.stall is None

    def _look_for_stall(self, below: list[Cycle]) -> None:
        """A writer that has just gone on to another cycle closes this one in a moment."""
        found = unclosed(self._cycles, below, monotonic())
        before, self._suspected = self._suspected, found
        if before is None or found is None or before.cycle != found.cycle:
            self.stall = None
            return
        self._suspected = before  # since when
        if found.since_s - before.since_s >= STALL_SECONDS:
            self.stall = before

    def _known(
        self, noted: Mapping[Cycle, ClosedCycle], lowest: Cycle
    ) -> Mapping[Cycle, ClosedCycle]:
        """The notes of closed cycles. A note that has gone, or that now tells less than it did or
        something else, is made again.

        Args:
            lowest: the lowest cycle that has a file: retention has deleted those below.
        """
        for cycle, held in list(self._held.items()):
            now = noted.get(cycle)
            if cycle < lowest:
                del self._held[cycle]
            elif now is not None and _is_kept(held, now):
                self._held[cycle] = now
            else:
                self._cycles.closed.remember(held)
        return self._cycles.closed.load()

    def _check(self, record: ClosedCycle) -> None:
        file = StoreState.of(self._cycles.path_of(record.cycle))
        if file is None:
            return  # retention has just taken it, or the next look tells
        before = self._sound.get(record.cycle)
        if before != file:
            self._held.pop(record.cycle, None)
            is_closed = self._cycles.has_ended(record.cycle)
            count = count_in(self._cycles, record.cycle)
            self._cycles.check_closed(record.cycle, count, is_closed=is_closed)
            self._sound[record.cycle] = file
            if before is None:
                self._held[record.cycle] = record
            else:  # no writer changes a closed one
                self._chains.doubt(record.cycle)

    def _remember(self, cycle: Cycle, seconds: float, *, is_doubtful: bool) -> bool:
        """False where the time was too short to read it."""
        if not self._cycles.has_ended(cycle):
            return True
        count = count_in(self._cycles, cycle)
        end = index_of(cycle, Sequence(count), self._cycles.shift)
        chain = UNKNOWN_CHAIN if is_doubtful else self._chains.at_within(end, seconds)
        if chain is not None:
            self._cycles.closed.remember(ClosedCycle(cycle, count, chain))
        return chain is not None


def _is_kept(held: ClosedCycle, now: ClosedCycle) -> bool:
    """True when a note still tells what it did; a chain or a SHA-256 may have been added to it."""
    return now.excerpts == held.excerpts and held.chain in (now.chain, UNKNOWN_CHAIN)


def wanting(cycles: Cycles, known: Mapping[Cycle, ClosedCycle] | None = None) -> list[ClosedCycle]:
    """The closed cycles that do not hold what they held, the lowest first. Reads all of them.

    Args:
        known: what they held, beside what is noted in the directory.

    Raises:
        QueueError: the directory cannot be read.
        OSError: what they held is not known.
    """
    listed, found = cycles.listing(), []
    for record in sorted({**(known or {}), **cycles.closed.load()}.values()):
        is_between = bool(listed) and listed[0] <= record.cycle < listed[-1]
        if is_between and record.excerpts and not is_as_noted(cycles, record):
            found.append(record)
    return found


def is_as_noted(cycles: Cycles, record: ClosedCycle) -> bool:
    """True when the store file of a closed cycle holds what it held. Reads it as a whole."""
    try:
        if not cycles.has(record.cycle) or not cycles.has_ended(record.cycle):
            return False
        if record.chain == UNKNOWN_CHAIN or not has_chains():
            return count_in(cycles, record.cycle) == record.excerpts
        digest = ClosedDigest(cycles, record)
        value = digest.read()
        return digest.chain == record.chain and record.sha256 in (b"", value)
    except QueueError:
        return False
