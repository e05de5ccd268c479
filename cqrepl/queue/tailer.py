"""Reads a queue from an index on, in batches, across cycles.

Theory of operation. A tailer stands at a header position of one store file. It changes nothing and
takes no lock. A cycle is left only at its end-of-file mark: a file without one may still grow, even
when newer ones exist, and is waited at, as Java does. "Nothing yet" is an answer, not an error.

A hole is never stepped over silently. A cycle without a file is no hole, since nobody wrote then;
but when the tailer's own file has been removed behind it, whole cycles between may have been, and
that is reported as a gap.

Bytes have no checksums here, but positions can be compared: a length that is wrong shifts all that
comes behind it, so each batch is held against the index slot of its last indexed excerpt, and where
nothing follows, the recorded write position must not lie behind. Either way it is reported as
damage instead of waited at, or passed on under wrong indexes.

The batches are views of the mapped file, valid until the next call.
"""

import time
from collections.abc import Callable
from typing import Final

from cqrepl.queue.batch import ExcerptBatch
from cqrepl.queue.cycles import Cycles
from cqrepl.queue.errors import ExcerptTooLarge, IndexGap
from cqrepl.queue.index import NEXT_OF_EMPTY, cycle_of, index_of, sequence_of
from cqrepl.queue.indexing import Indexing
from cqrepl.queue.storefile import START, Place, StoreFile
from wire.header import HEADER_BYTES, body_length
from wire.kernel import NO_LIMIT, Found, Stop

BYTES_MAX: Final = 256 * 1024
PAYLOAD_MAX: Final = 16 * 1024 * 1024
_LISTING_PAUSE_S: Final = 0.1  # between listings of the directory while there is no next cycle
_BEFORE_ALL: Final = -1  # the cycle before every cycle


class Tailer:
    """A reader of a queue. `next_index` is that of the excerpt it will give next, or wait for."""

    def __init__(
        self, cycles: Cycles, index: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Stands before the first excerpt at or after `index`.

        Args:
            index: 0 for the start; the first sequence of any cycle; an excerpt's; or one past the
                last of a cycle.
            clock: seconds, for how often the directory is listed.

        Raises:
            IndexGap: the queue does not reach from what it holds to `index`.
            QueueError: no queue of this roll cycle can hold `index`.
        """
        self._cycles = cycles
        self._clock = clock
        self._listed_at = -_LISTING_PAUSE_S
        self._store: StoreFile | None = None
        self._indexing: Indexing | None = None
        self._last: Place | None = None  # the last excerpt passed, if it is known
        self._cycle = _BEFORE_ALL
        self._position = 0
        self._index = index
        self.is_closed = False
        if index != NEXT_OF_EMPTY:
            self._seek(index)

    @property
    def next_index(self) -> int:
        """Index of the next excerpt; one past the last of a cycle while no other follows."""
        return self._index

    def next_batch(
        self,
        *,
        count_max: int = NO_LIMIT,
        bytes_max: int = BYTES_MAX,
        payload_max: int = PAYLOAD_MAX,
    ) -> ExcerptBatch | None:
        """The excerpts that follow, at least one, within one cycle; None: nothing yet.

        Args:
            bytes_max: of payload in a batch of more than one excerpt.
            payload_max: of one excerpt.

        Raises:
            ExcerptTooLarge: the next excerpt has more bytes than `payload_max`.
            QueueDamaged: the file cannot be followed.
            IndexGap: store files were removed that have not been read.
        """
        assert count_max > 0
        assert not self.is_closed
        while self._store is not None or self._enter_next():
            assert self._store is not None
            found = self._store.find(
                self._position, count_max=count_max, bytes_max=bytes_max, payload_max=payload_max
            )
            self._position = found.position
            if found.offsets:
                return self._take(self._store, found)
            if found.stop is Stop.TOO_LARGE:
                length = body_length(self._store.word_at(found.position))
                raise ExcerptTooLarge(self._index, length, payload_max, path=self._store.path)
            self._store.check_end(found.position, self._last)
            if found.stop is not Stop.END_OF_FILE or not self._enter_next():
                return None
        return None

    def close(self) -> None:
        """Closes the file. Batches given out keep their memory as long as they are held."""
        self.is_closed = True
        if self._store is not None:
            self._store.close()
            self._store = None

    def _take(self, store: StoreFile, found: Found) -> ExcerptBatch:
        batch = ExcerptBatch(
            self._index, store.mapping.data.toreadonly(), found.offsets, found.lengths
        )
        assert self._indexing is not None
        sequence = sequence_of(self._index, self._cycles.shift)
        self._indexing.check_last(sequence, found.offsets)
        self._last = Place(sequence + len(batch) - 1, found.offsets[-1] - HEADER_BYTES)
        self._index += len(batch)
        return batch

    def _seek(self, index: int) -> None:
        cycle = cycle_of(index, self._cycles.shift)
        sequence = sequence_of(index, self._cycles.shift)
        self._cycles.path_of(cycle)  # refuses a cycle that can have no file
        self._cycle = cycle - 1
        if sequence == 0:
            return  # entered when its file, or that of a later cycle, is there
        store = self._open(cycle)
        if store is None:
            raise IndexGap(index, self._first_after(cycle), "its store file is not there")
        self._indexing = Indexing(store)
        try:
            walked = store.walk(self._indexing.place_before(sequence), sequence)
            if walked.place.sequence < sequence:
                end = index_of(cycle, walked.place.sequence, self._cycles.shift)
                raise IndexGap(index, end, "its cycle ends before", path=store.path)
        except BaseException:
            store.close()
            raise
        self._store, self._cycle, self._position = store, cycle, walked.place.position
        if walked.position_last:
            self._last = Place(sequence - 1, walked.position_last)

    def _first_after(self, cycle: int) -> int:
        """The first index there is from this cycle on; for a message."""
        following = self._cycles.following(cycle - 1)
        return NEXT_OF_EMPTY if following is None else index_of(following, 0, self._cycles.shift)

    def _enter_next(self) -> bool:
        """Goes to the start of the next cycle; false while there is none that is ready."""
        cycle = self._following()
        store = None if cycle is None else self._open(cycle)
        if cycle is None or store is None:
            return False
        if self._store is not None:
            if cycle > self._cycle + 1 and not self._store.mapping.is_current():
                store.close()
                found = index_of(cycle, 0, self._cycles.shift)
                raise IndexGap(
                    self._index, found, "store files were removed before they were read",
                    path=self._cycles.path,
                )  # fmt: skip
            self._store.close()
        self._store, self._cycle, self._position = store, cycle, 0
        self._indexing, self._last = Indexing(store), START
        self._index = index_of(cycle, 0, self._cycles.shift)
        return True

    def _following(self) -> int | None:
        if self._cycle != _BEFORE_ALL and self._cycles.has(self._cycle + 1):
            return self._cycle + 1
        now = self._clock()
        if now - self._listed_at < _LISTING_PAUSE_S:
            return None
        following = self._cycles.following(self._cycle)
        if following is None:
            self._listed_at = now  # nothing there: not again for a while
        return following

    def _open(self, cycle: int) -> StoreFile | None:
        """The store file of a cycle; None when it is not there, or not ready yet."""
        try:
            return StoreFile.open(self._cycles.path_of(cycle), cycle, writable=False)
        except FileNotFoundError:
            return None
