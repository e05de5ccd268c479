"""Reads what was appended to a queue from its files, behind the stream.

Theory of operation. A chain over what the files hold (`queue.read.chains`) is what two copies
compare. So each excerpt is read once after it was appended, in short stretches, so that a stream at
full rate is hardly held up, nor are many; a copy is at its end soon after the last excerpt has
come. How far that was is kept in side files: the next start goes on from there. A store file that
was written to since its side file was is read once more as a whole, in the same way, and what is
there has to be what was there.

Of closed store files a SHA-256 is noted as well (`queue.read.closeddigest`), reckoned in the same
way, one file after the other; a round over all of them holds them against it.
"""

import logging
from typing import Final

from cqrepl.kernel.chain import has_chains
from cqrepl.queue.files.chainfile import Point
from cqrepl.queue.files.closedcycles import UNKNOWN_CHAIN, ClosedCycle, altered
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Cycle, Index
from cqrepl.queue.read.chainpoints import START
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.closeddigest import ClosedDigest
from cqrepl.queue.read.count import end_index
from cqrepl.surroundings import monotonic

FOLLOW_SECONDS: Final = 0.02  # of reading, each time: of all queues together
ALONE_SECONDS: Final = 60.0  # between two times, where no peer waits for it
ALONE_FOLLOW_SECONDS: Final = 0.5  # of reading then
REREAD_SECONDS: Final = 0.2  # of reading once more, each time
DIGEST_SECONDS: Final = 0.1  # of reading for a SHA-256, each time

_logger: Final = logging.getLogger(__name__)
NO_CYCLE: Final = Cycle(-1)
Place = tuple[Index, bytes]
"""A next index, and the chain over all before it in its cycle."""


class QueueAudit:
    """Reads the files of one queue behind the stream. One thread at a time uses it.

    Args:
        at: everything before it was read, or is by others; None: it begins with the end.
    """

    def __init__(self, chains: Chains, at: Index | None) -> None:
        self.at = at
        self._chains = chains
        self._has_failed = False  # to keep how far it was read
        self._due = monotonic() + ALONE_SECONDS  # to read on where no peer waits for it
        self._reread: tuple[Cycle, Point] | None = None  # how far
        self._scrubbed: tuple[Cycle, Point] = (NO_CYCLE, START)  # the same
        self._gone: set[Cycle] = set()
        self._may_digest = True  # there may be closed store files without a SHA-256
        self._digest: ClosedDigest | None = None  # that is being reckoned, to be noted
        self._scrub_digest: ClosedDigest | None = None  # the same, to be compared

    @property
    def has_to_read(self) -> bool:
        """True while something is left to be read once more, or noted, however the queue stays."""
        return self._may_digest or self._chains.has_to_reread

    @property
    def has_to_save(self) -> bool:
        """True while `save` would write anything, as far as it is on the disk."""
        return self._chains.has_to_save

    def follow_now_and_then(self, cycles: Cycles) -> None:
        """Reads on towards the end, where no peer waits for that, so that a sink that comes need
        not wait for all of it.

        Raises:
            QueueError: a store file cannot be read.
        """
        if monotonic() >= self._due:
            self._due = monotonic() + ALONE_SECONDS
            end = end_index(cycles)
            if end != self.at:
                self.follow(end, ALONE_FOLLOW_SECONDS)

    def follow(self, end: Index, seconds: float) -> list[Place]:
        """Reads on towards the end, for a short time.

        Returns:
            The chains on the way, as `Chains.follow` has them.

        Raises:
            QueueError: a store file cannot be read.
        """
        if not has_chains() or end == NEXT_OF_EMPTY:
            self.at = end
            return []
        start = end if self.at is None else min(self.at, end)
        found = self._chains.follow(start, end, seconds)
        self.at = found[-1][0]
        return found

    def reread(self, cycles: Cycles) -> None:
        """Reads on in store files that were written to since their points were saved.

        Raises:
            QueueDamaged: one does not hold what it held.
            QueueError: one cannot be read.
        """
        until = monotonic() + REREAD_SECONDS
        while (cycle := self._chains.to_check) is not None and monotonic() < until:
            self._check_closed(cycles, cycle)
        while (cycle := self._chains.to_reread) is not None and monotonic() < until:
            if self._reread is None or self._reread[0] != cycle:
                self._reread = cycle, START
            place, _ = self._chains.reread(*self._reread)
            self._reread = None if place is None else (cycle, place)
            if place is None:
                self._check_closed(cycles, cycle)

    def digest(self, cycles: Cycles) -> None:
        """Reads on in closed store files whose SHA-256 is not noted yet.

        Raises:
            QueueDamaged: one does not hold what it held.
            QueueError: one cannot be read.
            OSError: what they held cannot be read, or noted.
        """
        closed = cycles.closed
        closed.load()
        while (record := closed.undigested(self._gone)) and not cycles.has(record.cycle):
            self._gone.add(record.cycle)  # retention has taken it
        self._may_digest = record is not None and has_chains()
        if record is None or not has_chains():
            return
        if self._digest is None or self._digest.record != record:
            self._digest = ClosedDigest(cycles, record)
        self._digest.read_on(DIGEST_SECONDS)
        if self._digest.is_done:
            found, self._digest = self._digest, None
            if found.chain != record.chain:
                raise QueueDamaged(altered(record), path=cycles.path_of(record.cycle))
            closed.note_digest(record._replace(sha256=found.value()))

    def scrub(self, cycles: Cycles) -> int | None:
        """Reads a stretch of the store files once more, as far as they were read before.

        Returns:
            How many bytes; None when all of them have been read.

        Raises:
            QueueDamaged: one does not hold what it held.
            QueueError: one cannot be read.
            OSError: what they held is not known.
        """
        if self._scrub_digest is not None:
            return self._scrub_for_digest(cycles, self._scrub_digest)
        cycle, start = self._scrubbed
        place: Point | None = None
        count = 0
        if cycle != NO_CYCLE and cycles.has(cycle):
            place, count = self._chains.reread(cycle, start)
            if place is None:
                self._check_closed(cycles, cycle)
                record = cycles.closed.load().get(cycle)
                if record is not None and record.sha256:
                    self._scrub_digest = ClosedDigest(cycles, record)
        if place is not None:
            self._scrubbed = cycle, place
            return count
        following = min((each for each in cycles.listing() if each > cycle), default=NO_CYCLE)
        self._scrubbed = following, START
        return None if following == NO_CYCLE else count

    def _scrub_for_digest(self, cycles: Cycles, digest: ClosedDigest) -> int:
        """Reads a batch of a closed store file; how many bytes."""
        cycle = digest.record.cycle
        self._scrub_digest = None  # unless there is more
        if digest.record != cycles.closed.load().get(cycle) or not cycles.has(cycle):
            return 0  # retention has taken it, or a person has declared it lost
        count = digest.read_on(0.0)
        if not digest.is_done:
            self._scrub_digest = digest
        elif digest.value() != digest.record.sha256:
            raise QueueDamaged(altered(digest.record), path=cycles.path_of(cycle))
        return count

    def _check_closed(self, cycles: Cycles, cycle: Cycle) -> None:
        """Holds a store file against what was noted when it was closed."""
        record = cycles.closed.load().get(cycle)
        self._chains.check_closed(
            ClosedCycle(cycle, 0, UNKNOWN_CHAIN) if record is None else record
        )

    def save(self, synced: Index) -> None:
        """Keeps how far it was read, of what is on the disk.

        Raises:
            QueueError: a store file cannot be read.
        """
        try:
            self._chains.save(synced)
        except OSError as error:
            if not self._has_failed:
                _logger.warning("chains are not kept, the next start reads more: %s", error)
            self._has_failed = True
