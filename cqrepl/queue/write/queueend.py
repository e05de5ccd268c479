"""The end of a queue: the store file that is appended to, and the closing of those below.

Theory of operation. Everything here happens under the queue's write lock. The end is one past the
last excerpt of the highest cycle that holds any; an append may continue there or begin a higher
cycle at sequence 0. Other writers move it, so each use begins with `refresh`.

Going up to another cycle, the new store file is made first (a full disk then leaves all as it was),
and every lower file without an end-of-file mark gets one, because a reader waits in a file without
one for ever. That is Java's rule too; Java only misses some files, and standing at the end closes
those as well (`listing` tells how each older file is looked at only once).

With a group commit the order is: the new file, the names of the directory and the table store; then
what other writers have left unsynced in lower files, and the marks that close them; then
`listing`'s word that they are closed.
"""

from dataclasses import replace

from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.mapping import check_name
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Sequence,
    index_of,
)
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.write.groupcommit import GroupCommit
from cqrepl.queue.write.nextcycle import remove_passed
from cqrepl.queue.write.pretoucher import PageToucher
from cqrepl.queue.write.storewriter import StoreWriter
from cqrepl.queue.write.writerterms import WriterTerms, check_room


class QueueEnd:
    """The end of a queue, as one appender knows it."""

    def __init__(
        self,
        cycles: Cycles,
        layout: QueueLayout,
        listing: Listing,
        commits: GroupCommit | None,
        toucher: PageToucher | None,
    ) -> None:
        """Finds the end, and repairs there what dead writers and power cuts left undone.

        Raises:
            QueueDamaged: the end of the queue cannot be trusted.
            DurabilityLost: what is in the queue may never reach the disk.
        """
        self._cycles = cycles
        self._layout = layout
        self._listing = listing
        self._commits = commits
        self.writer: StoreWriter | None = None
        self._has_left_any = False  # excerpts, in cycles below the writer's
        self.cycle_last = Cycle(0)  # the highest that is known to have a file
        self.changes_seen = -1  # the listing's, when the directory was last looked at
        self._checked_below = listing.checked_below(cycles.listing())
        self._synced_below = 0  # all files of lower cycles are on the disk, if that is promised
        self._terms = WriterTerms(
            sequence_end=1 << cycles.shift,
            commits=commits,
            is_restarted=listing.is_restarted(),
            synced=listing.synced(),
            closed=cycles.closed,
            toucher=toucher,
        )
        if commits is not None:
            commits.begin(listing)
            self._synced_below = max(listing.synced() >> cycles.shift, 0)
        try:
            self.refresh()
            listing.note_start()
            remove_passed(cycles, self.cycle_last + 1)  # what killed writers have never finished
        except BaseException:
            self.close()  # the caller has not got this end, to close it
            raise
        self._terms = replace(self._terms, is_restarted=False)

    @property
    def next_index(self) -> Index:
        """One past the last excerpt, as of the last refresh; 0 for an empty queue."""
        writer = self.writer
        if writer is None or not (writer.place.sequence or self._has_left_any):
            return NEXT_OF_EMPTY  # a file that was made for the first excerpt is none
        return index_of(writer.cycle, writer.place.sequence, self._cycles.shift)

    def refresh(self) -> None:
        """Stands where the queue ends now."""
        changes = self._listing.changes()
        writer = self.writer
        if writer is not None:
            writer.refresh()
            self._check_name(writer)
            if changes == self.changes_seen and not writer.has_ended:
                return
        cycles = self._cycles.listing()
        self.cycle_last = max(cycles, default=Cycle(0))
        later = self._last_with_excerpts(cycles, -1 if writer is None else writer.cycle)
        if later is not None:
            self._stand(later)
        self.changes_seen = changes

    def at(self, cycle: Cycle, count: int) -> StoreWriter:
        """The writer of a cycle at or above the end's, rolled to if need be.

        Raises:
            QueueError: the cycle has no indexes for so many more excerpts. Nothing was changed.
        """
        writer = self.writer
        if writer is None or writer.cycle != cycle:
            numbers = self._layout.index_count, self._layout.index_spacing
            check_room(0, count, self._terms.capacity(*numbers), self._cycles.path_of(cycle))
            writer = self._roll_to(cycle)
        writer.check_room(count)
        return writer

    def place_in(self, cycle: Cycle) -> tuple[Cycle, Sequence]:
        """Cycle and sequence for an append to this cycle; the next cycle if this one is closed."""
        if self.has_ended(cycle):
            return Cycle(cycle + 1), SEQUENCE_FIRST
        writer = self.writer
        if writer is not None and writer.cycle == cycle:
            return cycle, writer.place.sequence
        return cycle, SEQUENCE_FIRST

    def has_ended(self, cycle: Cycle) -> bool:
        """True when the cycle has a store file, and that is closed."""
        writer = self.writer
        if writer is not None and writer.cycle == cycle:
            return writer.has_ended
        return self._cycles.has_ended(cycle)

    def close(self) -> None:
        """Unmaps the file. Nothing is written."""
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    def _check_name(self, writer: StoreWriter) -> None:
        """Does nothing while the name of the writer's file leads to it, or the queue has moved as a
        whole, or what it is named by has: then its next file is refused.

        Raises:
            QueueDamaged: the file was moved away, or another one has taken its name.
        """
        try:
            check_name(writer.path, writer.store.mapping.identity)
        except QueueDamaged as error:
            try:
                self._listing.check_name()
            except QueueDamaged:
                return
            raise error from None

    def _roll_to(self, cycle: Cycle) -> StoreWriter:
        self._listing.check_name()  # no file is made in a directory that has taken this one's place
        path = self._cycles.path_of(cycle)
        writer = self._open(cycle) if path.exists() else None
        if writer is None:
            writer = StoreWriter.create(path, cycle, self._layout, self._terms)
            self._listing.add(cycle)
            self.changes_seen += 1  # our own change is known; another writer's shows all the same
        try:
            self._listing.check_name()  # nor written to one, if that was while it was made
        except BaseException:
            writer.close()
            raise
        assert writer.place.sequence == 0  # only empty files lie above the last excerpt
        self._stand(writer)
        return writer

    def _last_with_excerpts(self, cycles: list[Cycle], above: int) -> StoreWriter | None:
        """The highest of these cycles that is above `above` and holds an excerpt."""
        for cycle in reversed(cycles):
            if cycle <= above:
                break
            writer = self._open(cycle)
            if writer is None:
                continue
            if writer.place.sequence:
                return writer
            writer.close()
        return None

    def _stand(self, writer: StoreWriter) -> None:
        """Makes this the current writer, and closes all cycles below it."""
        left, self.writer = self.writer, writer
        self.cycle_last = max(self.cycle_last, writer.cycle)
        if self._commits is not None:
            self._commits.sync_names(self._listing)
        if left is not None:
            try:
                left.refresh()
                self._has_left_any = self._has_left_any or left.place.sequence > 0
                left.end()
            finally:
                left.close()
            self._synced_below = left.cycle + 1
        cycles = self._cycles.listing()
        for cycle in cycles:
            if cycle < writer.cycle and self._is_open(cycle):
                self._end(cycle)
        self._checked_below = self._synced_below = writer.cycle
        self._listing.ended_below(writer.cycle, cycles)

    def _is_open(self, cycle: Cycle) -> bool:
        """False when nothing is left to be done for a cycle below the end."""
        if self._commits is not None and cycle >= self._synced_below:
            return True
        if self._terms.is_restarted:
            return True  # the mark may be there, and what stands before it lost
        return cycle >= self._checked_below and not self.has_ended(cycle)

    def _end(self, cycle: Cycle) -> None:
        """Puts the end-of-file mark into a store file that lacks it; opening it syncs it."""
        writer = self._open(cycle)
        if writer is not None:
            try:
                writer.end()
            finally:
                writer.close()

    def _open(self, cycle: Cycle) -> StoreWriter | None:
        return StoreWriter.open(self._cycles.path_of(cycle), cycle, self._terms)
