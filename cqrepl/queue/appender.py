"""Appends to a queue: at exact indexes, as a replica must, or at the end.

Theory of operation. Every call takes the queue's write lock, catches up with what others have
appended meanwhile, checks the index, and only then changes anything. The next index is one past the
last excerpt of the highest cycle that holds any; an append may continue there or begin a higher
cycle at sequence 0. Nothing else is accepted: a repeat is for `compare`, a gap is an `IndexGap`.

Going up to another cycle, the new store file is made first (a full disk then leaves all as it was),
and every lower file without an end-of-file mark gets one, because a reader waits in a file without
one for ever. That is Java's rule too; Java only misses some files, and opening an appender here
closes those as well.

The append lock keeps plain writers out of a replica. It must be free or this process's own.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cqrepl.queue.batch import ExcerptBatch
from cqrepl.queue.cycles import Cycles
from cqrepl.queue.errors import Diverged, IndexGap, QueueLocked
from cqrepl.queue.index import NEXT_OF_EMPTY, cycle_of, index_of, is_next
from cqrepl.queue.layout import QueueLayout
from cqrepl.queue.listing import Listing
from cqrepl.queue.locks import WordLock
from cqrepl.queue.storefile import StoreFile
from cqrepl.queue.storewriter import StoreWriter
from cqrepl.queue.tailer import Tailer
from wire.kernel import NO_LIMIT

WRITE_LOCK_TIMEOUT_S: Final = 5.0
_EMPTY_STORED: Final = b"\x8f"  # how an excerpt without bytes lies in a store file


class Appender:
    """A writer of a queue. Use one from one thread at a time."""

    def __init__(
        self,
        cycles: Cycles,
        layout: QueueLayout,
        listing: Listing,
        *,
        write_lock: WordLock,
        append_lock: WordLock,
    ) -> None:
        """Stands at the end of the queue, and repairs there what dead writers left undone.

        Raises:
            QueueDamaged: the end of the queue cannot be trusted.
            QueueLocked: another process keeps the write lock.
        """
        self._cycles = cycles
        self._layout = layout
        self._listing = listing
        self._write_lock = write_lock
        self._append_lock = append_lock
        self._writer: StoreWriter | None = None
        self._checked_below = 0  # every cycle below has its end-of-file mark
        self._comparer: Tailer | None = None
        self._is_exclusive = False
        self.is_closed = False
        self._changes_seen = -1
        with self._write_lock.held(WRITE_LOCK_TIMEOUT_S):
            self._refresh()

    @property
    def next_index(self) -> int:
        """One past the last excerpt, as of the last call; 0 for an empty queue."""
        writer = self._writer
        if writer is None:
            return NEXT_OF_EMPTY
        return index_of(writer.cycle, writer.place.sequence, self._cycles.shift)

    def append_at(self, batch: ExcerptBatch) -> None:
        """Appends excerpts at exactly their indexes.

        Raises:
            IndexGap: `batch.index_first` is neither the next index nor the first of a higher
                cycle. Nothing was changed.
            QueueLocked: the append lock or the write lock is another process's.
            QueueError: the cycle has no room for the batch. Nothing was changed.
            OSError: no space. What was appended before it is whole.
        """
        with self._writing():
            self._check_next(batch)
            self._append(batch)

    def append(self, payloads: Sequence[bytes | memoryview], now_ms: int) -> int:
        """Appends at the end, in the clock's cycle or a later one that exists; the last index.

        Raises:
            QueueLocked, QueueError, OSError: as `append_at`.
        """
        with self._writing():
            cycle = self._layout.roll_cycle.cycle_at(now_ms, self._layout.epoch)
            cycle = max(cycle, *self._cycles.listing()[-1:], 0)
            writer = self._writer
            sequence = 0
            if writer is not None and writer.cycle == cycle:
                sequence = writer.place.sequence
            if self._has_ended(cycle):
                cycle, sequence = cycle + 1, 0
            batch = ExcerptBatch.of(index_of(cycle, sequence, self._cycles.shift), payloads)
            self._append(batch)
            return batch.index_last

    def compare(self, batch: ExcerptBatch) -> None:
        """Does nothing when the queue holds exactly these excerpts under these indexes.

        Raises:
            Diverged: other bytes stand under one of the indexes.
            IndexGap: one of them is not there.
        """
        start = 0
        while start < len(batch):
            stored = self._stored(batch.index_first + start, len(batch) - start)
            received = batch.part(start, start + len(stored))
            for (index, mine), (_, theirs) in zip(stored, received, strict=True):
                if mine != (theirs if len(theirs) else _EMPTY_STORED):
                    raise Diverged(index, _digest(mine), _digest(theirs), path=self._cycles.path)
            start += len(stored)

    def space_needed(self, batch: ExcerptBatch) -> bool:
        """True when appending the batch will make files or allocate space: `reserve` first."""
        writer = self._writer
        if writer is None or writer.cycle != cycle_of(batch.index_first, self._cycles.shift):
            return True
        return writer.space_needed(batch)

    def reserve(self, batch: ExcerptBatch) -> None:
        """Does what takes long in appending the batch: rolls, makes files, allocates space.

        Raises:
            IndexGap, QueueLocked, QueueError, OSError: as `append_at`.
        """
        with self._writing():
            self._check_next(batch)
            self._stand_on(batch).reserve(batch)

    @contextmanager
    def exclusive(self, timeout_s: float) -> Iterator[None]:
        """Keeps every other writer out for the length of a block, and knows the true end in it.

        Raises:
            QueueLocked: another process kept the append lock or the write lock all the time.
        """
        with _kept(self._append_lock, timeout_s), self._write_lock.held(timeout_s):
            self._is_exclusive = True
            try:
                self._refresh()
                yield
            finally:
                self._is_exclusive = False

    def close(self) -> None:
        """Unmaps the files. Nothing is written."""
        self.is_closed = True
        for open_file in (self._writer, self._comparer):
            if open_file is not None:
                open_file.close()
        self._writer = self._comparer = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        assert not self.is_closed
        if self._is_exclusive:
            yield
            return
        holder = self._append_lock.holder()
        if holder is not None and holder != os.getpid():
            raise QueueLocked(
                f"expected to be allowed to append, process {holder} keeps the append lock",
                holder=holder,
                path=self._cycles.path,
            )
        with self._write_lock.held(WRITE_LOCK_TIMEOUT_S):
            self._refresh()
            yield

    def _check_next(self, batch: ExcerptBatch) -> None:
        index, shift, path = batch.index_first, self._cycles.shift, self._cycles.path
        cycle = cycle_of(index, shift)
        if not is_next(self.next_index, index, shift):
            raise IndexGap(self.next_index, index, "it does not follow the end", path=path)
        if self._has_ended(cycle):
            expected = index_of(cycle + 1, 0, shift)
            raise IndexGap(expected, index, "its cycle is closed", path=path)

    def _append(self, batch: ExcerptBatch) -> None:
        assert cycle_of(batch.index_last, self._cycles.shift) == cycle_of(
            batch.index_first, self._cycles.shift
        )
        self._stand_on(batch).append(batch)

    def _stand_on(self, batch: ExcerptBatch) -> StoreWriter:
        """The writer of the batch's cycle, rolled to if need be, with room for the batch."""
        cycle = cycle_of(batch.index_first, self._cycles.shift)
        writer = self._writer
        if writer is None or writer.cycle != cycle:
            writer = self._roll_to(cycle)
        writer.check_room(len(batch))
        return writer

    def _roll_to(self, cycle: int) -> StoreWriter:
        path, end = self._cycles.path_of(cycle), 1 << self._cycles.shift
        writer = self._open(cycle) if path.exists() else None
        if writer is None:
            writer = StoreWriter.create(path, cycle, self._layout, end)
            self._listing.add(cycle)
        assert writer.place.sequence == 0  # only empty files lie above the last excerpt
        self._stand(writer)
        return writer

    def _refresh(self) -> None:
        """Stands where the queue ends now. The write lock is held."""
        changes = self._listing.changes()
        writer = self._writer
        if writer is not None:
            writer.refresh()
            if changes == self._changes_seen and not writer.has_ended:
                return
        later = self._last_with_excerpts(-1 if writer is None else writer.cycle)
        if later is not None:
            self._stand(later)
        self._changes_seen = changes

    def _last_with_excerpts(self, above: int) -> StoreWriter | None:
        """The highest cycle above this one that holds an excerpt."""
        for cycle in reversed(self._cycles.listing()):
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
        left, self._writer = self._writer, writer
        if left is not None:
            left.refresh()
            left.end()
            left.close()
        for cycle in self._cycles.listing():
            if self._checked_below <= cycle < writer.cycle:
                self._end(cycle)
        self._checked_below = writer.cycle
        self._listing.ended_below(writer.cycle)

    def _end(self, cycle: int) -> None:
        """Puts the end-of-file mark into a store file that lacks it."""
        if not self._has_ended(cycle):
            writer = self._open(cycle)
            if writer is not None:
                writer.end()
                writer.close()

    def _has_ended(self, cycle: int) -> bool:
        """True when the cycle has a store file, and that is closed."""
        writer = self._writer
        if writer is not None and writer.cycle == cycle:
            return writer.has_ended
        path = self._cycles.path_of(cycle)
        if not path.exists():
            return False
        store = StoreFile.open(path, cycle, writable=False)
        if store is None:
            return False
        try:
            return store.has_end_mark()
        finally:
            store.close()

    def _open(self, cycle: int) -> StoreWriter | None:
        return StoreWriter.open(self._cycles.path_of(cycle), cycle, 1 << self._cycles.shift)

    def _stored(self, index: int, count: int) -> ExcerptBatch:
        """Excerpts of the queue from `index` on, at most `count`."""
        if self._comparer is None or self._comparer.next_index != index:
            if self._comparer is not None:
                self._comparer.close()
            self._comparer = Tailer(self._cycles, index)
        stored = self._comparer.next_batch(count_max=count, payload_max=NO_LIMIT)
        if stored is None or stored.index_first != index:
            found = self.next_index if stored is None else stored.index_first
            raise IndexGap(index, found, "it is not in the queue", path=self._cycles.path)
        return stored


@contextmanager
def _kept(lock: WordLock, timeout_s: float) -> Iterator[None]:
    """Holds a lock for the length of a block; one that is held already stays so."""
    if lock.is_held:
        yield
        return
    with lock.held(timeout_s):
        yield


def _digest(payload: memoryview) -> str:
    return hashlib.sha256(payload).hexdigest()
