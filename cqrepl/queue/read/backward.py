"""Reads a queue backwards from an index down, in batches or one by one, across cycles.

Theory of operation. Store files are chained forwards only: a header tells where the next one is.
Reading back therefore means to walk forward over a short run and to hand it out from behind. A run
begins at an index slot (where the spacing is small, at every 2nd, 4th, ... of them):

    end of a cycle     found from its last checked slot, as for counting
    each step down     one walk, from the slot below to where the run above began
    memory             the offsets of one run

A slot is not trusted: the walk from it must end exactly where the run above began. Where it does
not, or where there is no index, the file is walked once from its start, and the places passed are
used in place of the slots from then on.

What a cycle held when it was entered is read; what is appended later lies above. Retention
removes the lowest cycles first, so files that go meanwhile only bring the end nearer. One that is
missing in between, or holds less than when it was closed, is told, as by a tailer that goes up.
"""

from collections.abc import Iterator
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT, Found
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.storefile import START, Place, StoreFile, Walked
from cqrepl.queue.format.errors import QueueDamaged, used_after_close
from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import (
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Position,
    Sequence,
    cycle_of,
    index_of,
    sequence_of,
)
from cqrepl.queue.read.agreement import Agreement
from wire.header import HEADER_BYTES

_RUN_MIN: Final = 256  # excerpts; a run is the least multiple of the index spacing with these
_HOLE_MAX: Final = 16  # runs; over longer holes in the index every step would walk anew


class BackwardTailer:
    """A reader of a queue from an index downwards. Use one from one thread at a time."""

    def __init__(self, cycles: Cycles, index: int | None = None) -> None:
        """Stands behind the last excerpt that is at or below `index`; None: behind the last.

        Nothing has to stand at `index` itself.
        """
        self._cycles = cycles
        self._store: StoreFile | None = None
        self._indexing: Indexing | None = None
        self._places: dict[int, int] | None = None  # of the walk where there is no usable index
        # where the run above began: the next run ends before it; or, at the end of a cycle, the
        # position of the last excerpt, since behind it an index page may come
        self._last: int
        self._upper, self._last = START, 0
        self._sequence_min = 0  # of the cycle that it is in: where the queue begins
        self._batch: ExcerptBatch | None = None  # the run that is being handed out
        self._left = 0  # how many of it are not given yet
        # the next cycle to enter is the greatest below this one, from this sequence down
        self._cycle: int
        self._sequence_max: int
        self._cycle, self._sequence_max = NO_LIMIT, NO_LIMIT
        if index is not None:
            self._cycle = cycle_of(Index(index), cycles.shift) + 1
            self._sequence_max = sequence_of(Index(index), cycles.shift) if index >= 0 else 0
        self.is_closed = False

    def next_batch(self, *, count_max: int = NO_LIMIT) -> ExcerptBatch | None:
        """The excerpts right below those given before, at least one; None: below there is none.

        Within a batch they stand in ascending order, as in every batch; each batch lies below the
        one before it.

        Raises:
            QueueDamaged: a store file cannot be followed, is missing, or holds less than it did.
        """
        assert count_max > 0
        if not self._left and not self._step():
            return None
        assert self._batch is not None
        stop, self._left = self._left, max(0, self._left - count_max)
        return self._batch.part(self._left, stop)

    def next_excerpt(self) -> Excerpt | None:
        """The excerpt right below the one given before; None: below there is none.

        Raises:
            QueueDamaged: as `next_batch`.
        """
        if not self._left and not self._step():
            return None
        batch = self._batch
        assert batch is not None
        self._left -= 1
        return Excerpt(batch.index_first + self._left, batch.payload(self._left))

    def __iter__(self) -> Iterator[Excerpt]:
        """The excerpts in descending order, down to the first of the queue."""
        while (excerpt := self.next_excerpt()) is not None:
            yield excerpt

    def close(self) -> None:
        """Closes the file. Batches given out keep their memory as long as they are held."""
        self.is_closed = True
        self._leave()
        self._batch, self._left = None, 0

    def _step(self) -> bool:
        """Fetches the run below; false when there is none."""
        if self.is_closed:
            raise used_after_close("reader", self._cycles.path)
        while self._upper.sequence <= self._sequence_min:
            if not self._enter_below():
                return False
        store = self._store
        assert store is not None
        spacing = store.header.index_spacing
        run = spacing * -(-_RUN_MIN // spacing)
        sequence = (self._upper.sequence - 1) // run * run
        found = self._run(store, self._lower(store, sequence, run))
        if found is None and self._places is None:
            self._walk_all(store)
            found = self._run(store, self._lower(store, sequence, run))
        if found is None:
            raise QueueDamaged(
                f"expected excerpts {sequence} to {self._upper.sequence - 1}, walked elsewhere",
                path=store.path,
            )
        first = Sequence(self._upper.sequence - len(found.offsets))
        index = index_of(store.cycle, first, self._cycles.shift)
        data = store.mapping.data.toreadonly()
        batch = ExcerptBatch(index, data, found.offsets, found.lengths)
        self._batch = batch.part(max(0, self._sequence_min - first), len(batch))
        self._left = len(self._batch)
        self._upper, self._last = Place(first, Position(found.offsets[0] - HEADER_BYTES)), 0
        return True

    def _lower(self, store: StoreFile, sequence: int, run: int) -> Place:
        """The place of the excerpt with a sequence, if the index is right."""
        if sequence == 0:
            return START
        if self._places is None:
            assert self._indexing is not None
            start = self._indexing.guess_before(sequence)
            if sequence - start.sequence <= run * _HOLE_MAX:
                try:
                    return store.walk(start, sequence).place
                except QueueDamaged:
                    pass
            self._walk_all(store)
        assert self._places is not None
        return Place(Sequence(sequence), Position(self._places.get(sequence, 0)))

    def _run(self, store: StoreFile, lower: Place) -> Found | None:
        """The excerpts from a place up to the run above; None when they do not lead there."""
        count = self._upper.sequence - lower.sequence
        try:
            found = store.find(lower.position, count_max=count)
        except QueueDamaged:
            return None
        if len(found.offsets) != count:
            return None
        if self._last:
            leads = found.offsets[-1] - HEADER_BYTES == self._last
        else:
            leads = found.position == self._upper.position
        return found if leads else None

    def _walk_all(self, store: StoreFile) -> None:
        """Finds out where excerpts stand without any index."""
        self._places = dict(store.walk(START, self._upper.sequence).marks)

    def _enter_below(self) -> bool:
        """Goes to the end of the greatest cycle below that is there; false when there is none."""
        self._leave()
        listed = self._cycles.listing()
        below = [cycle for cycle in listed if cycle < self._cycle]
        if not below:
            return False
        if below[-1] < self._cycle - 1:
            self._sequence_max = NO_LIMIT
            self._cycles.check_between(below[-1], min(Cycle(self._cycle), listed[-1]))
        end = min(self._sequence_max, NO_LIMIT - 1) + 1
        self._cycle, self._sequence_max = below[-1], NO_LIMIT
        store = self._cycles.open(below[-1])
        if store is None:  # not ready, or removed since it was listed
            return True
        self._store, self._indexing = store, Indexing(store)
        begin = max(self._cycles.begin, index_of(store.cycle, SEQUENCE_FIRST, self._cycles.shift))
        self._sequence_min = sequence_of(begin, self._cycles.shift)
        walked = store.walk(self._indexing.place_before(end), end)
        self._upper, self._last = walked.place, walked.position_last
        if walked.place.sequence < end:
            self._check_end(store, walked)
            if store.cycle < listed[-1]:
                self._cycles.check_counted(store.cycle, walked.place.sequence)
        elif walked.position_last:
            # the end that was asked for is not the file's: it is held against what comes behind
            last = Place(Sequence(end - 1), walked.position_last)
            found = store.find(last.position, count_max=1)
            Agreement(store, self._indexing).certain_count(last, found)
        return True

    def _check_end(self, store: StoreFile, walked: Walked) -> None:
        """Refuses a file that records more than the walk has found."""
        last: Place | None = START
        if walked.place.sequence:
            at = walked.position_last
            last = Place(Sequence(walked.place.sequence - 1), at) if at else None
        store.check_end(walked.place.position, last)

    def _leave(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._indexing = self._places = None
        self._upper, self._last, self._sequence_min = START, 0, 0
