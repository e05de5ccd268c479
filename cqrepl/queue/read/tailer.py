"""Reads a queue from an index on, in batches or one by one, across cycles.

Theory of operation. A tailer stands at a header position of one store file. It changes nothing and
takes no lock. A cycle is left only at its end-of-file mark: a file without one may still grow, even
when newer ones exist, and is waited at, as Java does (`stalling` tells when that is for ever, and
repairs it for a caller that may). "Nothing yet" is an answer, not an error.

A hole is never stepped over silently. A cycle without a file is no hole, since nothing was written
then; but when the tailer's own file has been removed behind it, whole cycles between may have been,
and that is reported as a gap.

Excerpts have no checksums, but positions can be compared: only what agrees with an index slot, or a
recorded end, is given out (see `agreement`). Where nothing follows, the recorded write position
must not lie behind. So a wrong length is reported as damage instead of waited at, or passed on
under wrong indexes.

Single excerpts come out of a batch that is read ahead, so each costs no look at the file. A caller
that changes to batches in between gets the rest of it first: the tailer steps back to where it is.

Batches and excerpts are views of the mapped file, valid until the next call.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from cqrepl.kernel.batch import NO_LIMIT, FindStop, Found
from cqrepl.kernel.memory import WatchedWord
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.orphanfile import check_unfinished
from cqrepl.queue.files.storefile import START, Place, StoreFile
from cqrepl.queue.format.errors import ExcerptTooLarge, IndexGap, QueueDamaged, used_after_close
from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Position,
    Sequence,
    cycle_of,
    index_of,
    sequence_of,
)
from cqrepl.queue.format.storeimage import ARRAY_HEAD_BYTES
from cqrepl.queue.read.agreement import Agreement
from cqrepl.queue.read.directorychange import DirectoryChange
from cqrepl.queue.read.pauser import Pauser
from cqrepl.queue.read.stall import Repair, Stall, StallWatch
from cqrepl.surroundings import monotonic
from wire.header import END_OF_FILE, HEADER_BYTES, body_length, is_ready

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cqrepl.queue.read.typeddocuments import Documents
    from wire.errors import FieldError

M = TypeVar("M", bound="DataclassInstance")
OnMisfit = Callable[["FieldError"], object] | None
BYTES_MAX: Final = 256 * 1024
PAYLOAD_MAX: Final = 16 * 1024 * 1024
_AHEAD_COUNT: Final = 1024
_LISTING_PAUSE_S: Final = 0.1  # between listings of the directory while there is no next cycle
_BEFORE_ALL: Final = Cycle(-1)  # the cycle before every cycle


@dataclass(frozen=True, slots=True)
class Stand:
    """The stand of a tailer in a store file that may still grow, for a pump that reads on there.

    Args:
        data: the mapped file, for as long as the tailer is not used otherwise, or `is_at` says so.
        mapped: the same, as its owner has it; it says nothing once the file is mapped anew.
        file: its number: no other file of the queue has the same while this one is there.
        position: of the next header.
        certain_end: all headers before this position agree with what writers recorded.
        recorded: the positions at which writers record that: of the word that names the last
            excerpt's header; of the sequence word beside it, with the number of its bits that are
            the sequence's; of an index page, see `Indexing.slots_for`; of the first slot of the
            page of pages.
    """

    data: memoryview
    mapped: memoryview
    file: int
    position: Position
    index: Index
    sequence: Sequence
    certain_end: int
    recorded: tuple[int, tuple[int, int] | None, tuple[int, int, int, int] | None, int | None]


class Tailer:
    """A reader of a queue. Use one from one thread at a time."""

    def __init__(
        self,
        cycles: Cycles,
        index: int,
        clock: Callable[[], float] = monotonic,
        *,
        pauser: Pauser | None = None,
        repair: Repair | None = None,
    ) -> None:
        """Stands before the first excerpt at or after `index`.

        Args:
            index: 0 for the start; the first sequence of any cycle; an excerpt's; or one past the
                last of a cycle.
            clock: seconds, for how often the directory is listed, and for `wait`.
            pauser: how `wait` and `follow` wait.
            repair: closes a cycle whose writer is dead, so that the tailer can go on.

        Raises:
            IndexGap: the queue does not reach from what it holds to `index`.
            QueueDamaged: what it held there once is lost.
            QueueError: no queue of this roll cycle can hold `index`.
        """
        self._cycles = cycles
        self._clock = clock
        self._pauser = Pauser() if pauser is None else pauser
        self._watch = StallWatch(cycles, clock, repair)
        self._listed_at = -_LISTING_PAUSE_S
        self._change = DirectoryChange(cycles.table_path)
        self._store: StoreFile | None = None
        self._indexing: Indexing | None = None
        self._agreement: Agreement | None = None
        self._last: Place | None = None  # the last excerpt passed, if it is known
        self._cycle = _BEFORE_ALL
        self._unready = _BEFORE_ALL  # the cycle whose file was found without a header
        self._position = Position(0)
        self._index = Index(index)
        self._ahead: ExcerptBatch | None = None  # read but not given
        self._items: Iterator[tuple[int, memoryview]] = iter(())
        self._next = index  # of the excerpts read ahead
        self.is_closed = False
        if index != NEXT_OF_EMPTY:
            self._seek(self._index)

    @property
    def mapped(self) -> memoryview | None:
        """The bytes of the store file that it is in, as mapped now; None where it is in none."""
        return None if self._store is None else self._store.mapping.data

    @property
    def next_index(self) -> Index:
        """Index of the next excerpt; one past the last of a cycle while no other follows."""
        return self._index if self._ahead is None else Index(self._next)

    @property
    def stalled(self) -> Stall | None:
        """The reason why the tailer waits where no writer will write any more; None while it does
        not."""
        return self._watch.stalled

    def next_batch(
        self,
        *,
        count_max: int = NO_LIMIT,
        bytes_max: int = BYTES_MAX,
        payload_max: int = PAYLOAD_MAX,
        is_whole: bool = False,
    ) -> ExcerptBatch | None:
        """The excerpts that follow, at least one, within one cycle; None: nothing yet.

        Args:
            bytes_max: of payload in a batch of more than one excerpt.
            payload_max: of one excerpt.
            is_whole: as many as that allows, for a caller to whom a second batch is dear.

        Raises:
            ExcerptTooLarge: the next excerpt has more bytes than `payload_max`.
            QueueCut: what was read went to quarantine, with a tail of the queue.
            QueueDamaged: the file cannot be followed.
            IndexGap: store files were removed that have not been read.
            LayoutMismatch: the queue was made anew with another roll cycle.
        """
        assert count_max > 0
        self._step_back()
        return self._fetch(count_max, bytes_max, payload_max, is_whole=is_whole)

    def next_excerpt(self) -> Excerpt | None:
        """The excerpt that follows, of any size; None: nothing yet.

        Raises:
            QueueDamaged, IndexGap, LayoutMismatch: as `next_batch`.
        """
        item = next(self._items, None)
        if item is None:
            if not self._read_ahead():
                return None
            item = next(self._items)
        self._next = item[0] + 1
        return Excerpt(*item)

    def __iter__(self) -> Iterator[Excerpt]:
        """The excerpts that are there; ends where there is nothing yet."""
        while (excerpt := self.next_excerpt()) is not None:
            yield excerpt

    def has_next(self) -> bool:
        """True when the next excerpt is there."""
        if self._ahead is not None and self._next <= self._ahead.index_last:
            return True
        return self._read_ahead()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Blocks until the next excerpt is there; false when it did not come in time."""
        deadline = None if timeout_s is None else self._clock() + timeout_s
        while not self.has_next():
            remaining_s = None if deadline is None else deadline - self._clock()
            if remaining_s is not None and remaining_s <= 0:
                return False
            self._pauser.pause(remaining_s)
        self._pauser.reset()
        return True

    def follow(self) -> Iterator[Excerpt]:
        """The excerpts that are there, then those to come, for ever; blocks in between."""
        while self.wait():
            yield from self

    def documents(
        self,
        *kinds: "type[M]",
        follow: bool = False,
        on_misfit: OnMisfit = None,
    ) -> "Documents[M]":
        """The excerpts from here on as objects of a dataclass, whose annotations are the schema.

        Args:
            kinds: one class; or several, each with a `wire_event` of its own. Calls of methods that
                none of them names are passed by.
            follow: go on with what is still to come, for ever; blocks in between.
            on_misfit: is told of each excerpt that does not fit, which is passed by. Without it
                that is a `wire.FieldError` with index, path, expected and found; the iteration can
                go on behind it.

        Raises:
            TypeError: these classes cannot be read.
        """
        from cqrepl.queue.read.typeddocuments import Documents  # loaded by those that read objects

        return Documents(self.follow() if follow else iter(self), kinds, on_misfit)

    def stand(self) -> Stand | None:
        """The place from which a live pump can read on; None where the file ends, is of an old
        version, or none is open."""
        self._step_back()
        store = self._store
        if store is None or store.word_at(self._position) == END_OF_FILE:
            return None
        if store.header.alignment != HEADER_BYTES:
            return None  # a live pump takes headers of old files for none
        assert self._indexing is not None
        assert self._agreement is not None
        sequence = sequence_of(self._index, self._cycles.shift)
        try:
            slots = self._indexing.slots_for(sequence)
            pages = self._indexing.pages_array
        except QueueDamaged:
            return None  # the next batch tells
        mapped, word = store.mapping.data, store.header.sequence
        bits = None if word is None else (word, store.sequence_bits)
        first = None if pages is None else pages + ARRAY_HEAD_BYTES
        recorded = (store.header.write_position, bits, slots, first)
        end = self._agreement.end
        data = mapped.toreadonly()
        _, file = store.mapping.identity
        return Stand(data, mapped, file, self._position, self._index, sequence, end, recorded)

    def is_at(self, mapped: memoryview, position: int) -> bool:
        """True while it stands at this position of a file that does not end there and is mapped as
        it was when it said so (`Stand`)."""
        self._step_back()
        store = self._store
        if store is None or self._position != position or store.word_at(position) == END_OF_FILE:
            return False
        return store.mapping.data is mapped

    def watched(self) -> WatchedWord | None:
        """The word that changes when something follows; for a caller that was just given nothing.

        That is the next header, or, where the next excerpt will be in another file, the one that
        counts changes of the directory. None when something is there already, or when no word
        tells. Nor does one tell of files that are replaced or removed: look again now and then.

        Raises:
            QueueError: as `next_batch`.
        """
        self._step_back()
        store = self._store
        if store is None or store.word_at(self._position) == END_OF_FILE:
            return self.awaited_file()
        header_end, file = self._position + HEADER_BYTES, store.mapping.identity
        if not store.mapping.cover(header_end):  # recorded just after the excerpt is there
            recorded = WatchedWord.at(file, store.mapping.data, store.header.write_position)
            return None if store.mapping.cover(header_end) else recorded
        header = WatchedWord.at(file, store.mapping.data, self._position)
        word = int.from_bytes(header.value, "little")
        return None if is_ready(word) or word == END_OF_FILE else header

    def awaited_file(self) -> WatchedWord | None:
        """The word that changes when the file is there that the next excerpt will be in; None where
        there is one already.

        Raises:
            QueueError: as `next_batch`.
        """
        store = self._store
        if store is not None and store.word_at(self._position) != END_OF_FILE:
            return None
        change = self._change.watched()
        # listed behind the word: a file that this does not show changes it
        if self._cycles.following(self._cycle) is None:
            return change
        self._listed_at = -_LISTING_PAUSE_S  # who hears that it is there finds it at once
        return None

    def pass_by(self, count: int, position: int, position_last: int) -> None:
        """Goes on behind excerpts that a live pump has read from where this tailer stood.

        Args:
            position: of the header behind them.
            position_last: of the header of the last one.
        """
        assert count > 0
        assert self._position <= position_last < position
        self._index = Index(self._index + count)
        self._position = Position(position)
        sequence = Sequence(sequence_of(self._index, self._cycles.shift) - 1)
        self._last = Place(sequence, Position(position_last))
        self._watch.goes_on()

    def give_back(self, batch: ExcerptBatch, start: int) -> None:
        """Stands before excerpt `start` of the batch that was given last."""
        assert 0 <= start < len(batch)
        self._index = Index(batch.index_first + start)
        self._position = Position(batch.offsets[start] - HEADER_BYTES)
        self._last = None
        if start:
            sequence = Sequence(sequence_of(self._index, self._cycles.shift) - 1)
            self._last = Place(sequence, Position(batch.offsets[start - 1] - HEADER_BYTES))

    def check_cut(self) -> None:
        """Does nothing while what was read last is the queue's, as far as its store file tells.

        Raises:
            QueueCut: it went to quarantine, with a tail of the queue.
        """
        if self._store is not None:
            self._watch.check_cut(self._store, self.next_index)

    def close(self) -> None:
        """Closes the file. Batches given out keep their memory as long as they are held."""
        self.is_closed = True
        self._step_back()
        self._change.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def _read_ahead(self) -> bool:
        """Fetches the batch that single excerpts come from; false when there is nothing yet."""
        self._ahead, self._items = None, iter(())
        ahead = self._fetch(_AHEAD_COUNT, BYTES_MAX, NO_LIMIT)
        if ahead is None:
            return False
        self._ahead, self._items, self._next = ahead, iter(ahead), ahead.index_first
        return True

    def _step_back(self) -> None:
        """Gives up what was read ahead and not given."""
        ahead, self._ahead, self._items = self._ahead, None, iter(())
        if ahead is not None and self._next <= ahead.index_last:
            self.give_back(ahead, self._next - ahead.index_first)

    def _fetch(
        self, count_max: int, bytes_max: int, payload_max: int, *, is_whole: bool = False
    ) -> ExcerptBatch | None:
        if self.is_closed:
            raise used_after_close("reader", self._cycles.path)
        while self._store is not None or self._enter_next():
            store = self._store
            assert store is not None
            assert self._agreement is not None
            sequence = sequence_of(self._index, self._cycles.shift)
            run_max = count_max if is_whole else self._agreement.run_max(sequence, count_max)
            found = store.find(
                self._position, count_max=run_max, bytes_max=bytes_max, payload_max=payload_max
            )
            if found.offsets:
                start = Place(sequence, self._position)
                found = self._certain(start, found, is_whole)
                self._position = Position(found.position)
                return self._take(store, sequence, found)
            self._position = Position(found.position)
            if found.stop is FindStop.TOO_LARGE:
                start = Place(sequence, self._position)  # or its length is wrong
                self._certain(start, store.find(found.position, count_max=1), True)
                length = body_length(store.word_at(found.position))
                raise ExcerptTooLarge(self._index, length, payload_max, path=store.path)
            store.check_end(found.position, self._last)
            if found.stop is FindStop.END_OF_FILE:
                if not self._enter_next():
                    return None
            else:
                store.mapping.grows_from(self._position)
                if not self._watch.waits(store, self._cycle, self._index):
                    return None
        return None

    def _take(self, store: StoreFile, sequence: Sequence, found: Found) -> ExcerptBatch:
        batch = ExcerptBatch(
            self._index, store.mapping.data.toreadonly(), found.offsets, found.lengths
        )
        assert self._agreement is not None
        assert found.offsets[-1] - HEADER_BYTES < self._agreement.end  # it is proved
        assert found.offsets[-1] + found.lengths[-1] <= found.position
        position_last = Position(found.offsets[-1] - HEADER_BYTES)
        self._last = Place(Sequence(sequence + batch.count - 1), position_last)
        self._index = Index(self._index + batch.count)
        self._watch.goes_on()
        return batch

    def _certain(self, start: Place, found: Found, is_whole: bool) -> Found:
        """The run, as far as what writers recorded agrees with it.

        Args:
            start: of its first excerpt.

        Raises:
            QueueDamaged: not even its first excerpt is certain.
        """
        assert self._agreement is not None
        count = self._agreement.certain_count(start, found, is_whole=is_whole)
        if count == len(found.offsets):
            return found
        assert count > 0
        position = found.offsets[count] - HEADER_BYTES
        return Found(position, FindStop.LIMIT, found.offsets[:count], found.lengths[:count])

    def _seek(self, index: Index) -> None:
        cycle = cycle_of(index, self._cycles.shift)
        sequence = sequence_of(index, self._cycles.shift)
        self._cycles.path_of(cycle)  # refuses a cycle that can have no file
        self._cycle = Cycle(cycle - 1)
        if sequence == 0:
            return  # entered when its file, or that of a later cycle, is there
        store = self._cycles.open(cycle)
        if store is None:
            following = self._cycles.following(cycle)
            if following is not None:
                self._cycles.check_between(self._cycle, following)
            found = self._first_after(cycle)
            path = self._cycles.path
            raise IndexGap(index, found, "its store file is not there", path=path)
        self._indexing = Indexing(store)
        self._agreement = Agreement(store, self._indexing)
        try:
            walked = store.walk(self._indexing.place_before(sequence), sequence)
            if walked.place.sequence < sequence:
                if self._cycles.following(cycle) is not None:
                    self._cycles.check_counted(cycle, walked.place.sequence)
                end = index_of(cycle, walked.place.sequence, self._cycles.shift)
                raise IndexGap(index, end, "its cycle ends before", path=store.path)
        except BaseException:
            store.close()
            raise
        self._store, self._cycle, self._position = store, cycle, walked.place.position
        if walked.position_last:
            self._last = Place(Sequence(sequence - 1), walked.position_last)

    def _first_after(self, cycle: Cycle) -> Index:
        """The first index there is from this cycle on; for a message."""
        following = self._cycles.following(Cycle(cycle - 1))
        if following is None:
            return NEXT_OF_EMPTY
        return index_of(following, SEQUENCE_FIRST, self._cycles.shift)

    def _enter_next(self) -> bool:
        """Goes to the start of the next cycle; false while there is none that is ready."""
        cycle = self._following()
        if cycle is None:
            return False
        store = self._cycles.open(cycle)
        if store is None and self._watch.waits(None, cycle, self._index):
            return self._enter_next()  # its file has been renamed
        if store is None:
            self._check_start(cycle)
            return False
        try:
            self._cycles.check_layout()
            if self._store is not None:
                self._check_leaving(self._store, cycle)
            if self._cycle != _BEFORE_ALL and cycle > self._cycle + 1:
                self._cycles.check_between(self._cycle, cycle)
        except BaseException:
            store.close()
            raise
        if self._store is not None:
            self._store.close()
        self._change.close()
        self._store, self._cycle, self._position = store, cycle, START.position
        self._indexing, self._last = Indexing(store), START
        self._agreement = Agreement(store, self._indexing)
        self._index = index_of(cycle, SEQUENCE_FIRST, self._cycles.shift)
        return True

    def _check_leaving(self, store: StoreFile, cycle: Cycle) -> None:
        """Refuses to go on over excerpts that were removed unread, or behind a tail that went."""
        self._watch.check_cut(store, self._index)
        sequence = sequence_of(self._index, self._cycles.shift)
        self._cycles.check_closed(self._cycle, sequence, is_closed=True)
        if cycle > self._cycle + 1 and not store.mapping.is_current():
            found = index_of(cycle, SEQUENCE_FIRST, self._cycles.shift)
            raise IndexGap(
                self._index, found, "store files were removed before they were read",
                path=self._cycles.path,
            )  # fmt: skip

    def _check_start(self, cycle: Cycle) -> None:
        """Refuses a file that is waited for in vain: it has excerpts, but no header."""
        if cycle != self._unready:
            self._unready = cycle  # once is enough: excerpts come only behind a header
            with suppress(FileNotFoundError):
                check_unfinished(self._cycles.path_of(cycle))

    def _following(self) -> Cycle | None:
        after = Cycle(self._cycle + 1)
        if self._cycle != _BEFORE_ALL and self._cycles.has(after):
            return after
        now = self._clock()
        if now - self._listed_at < _LISTING_PAUSE_S:
            return None
        following = self._cycles.following(self._cycle)
        if following is None:
            self._listed_at = now  # nothing there: not again for a while
            self._cycles.check_layout()
        return following
