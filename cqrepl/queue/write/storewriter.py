"""Writes one store file: recovery, runs of excerpts, index pages, the end-of-file mark.

Theory of operation. Everything here happens under the queue's write lock. A run of excerpts is laid
behind the last document with its first header word left 0, so no reader sees any of it; one
compare-and-set of that word then publishes the whole run. What comes after is bookkeeping:

    1  lay         bodies, headers, gaps, 8 zero bytes behind      invisible
    2  publish     first header word 0 -> length                   the run is there, all of it
    3  record      write position, sequence word                   hints for the next opening
    4  index       a new index page if the run began one; slots, used, lastIndex

A writer that dies before 2 leaves bytes behind a 0 word, which the next one overwrites. One that
dies after 2 leaves hints that lag; opening walks from the last slot to the true end and makes up
for what is missing. The 8 zero bytes see to it that the word behind the last body is 0 even where a
dead writer left bytes.

An index page stands right behind the first excerpt that belongs into it (as Java has it), so a run
ends with that excerpt at the latest.

A pen does the same steps in the same order in one call (`pens`), where no more of the file has to
be mapped; a page that is due it adds where the file stays open meanwhile, one in a call. `place`
then lags behind until the appender tells it.

With a group commit, what 1 stores is synced before 2, and what 2 stores before 3 and 4
(`durability` tells why); that goes for index pages and the end-of-file mark too.

Without one, a power cut may leave marks on the disk that name excerpts which are not there. That
looks like a damaged file, and is taken for one unless the machine was started since our last writer
was here. If it was, the file is walked from what was recorded as synced on, or whole. If documents
are missing, what is left behind the first of them is put aside, in a file of its own with holes for
all else, and the marks are set back to what can be walked to; but what was synced must be there.

Space is allocated ahead of the end, before anything is stored, in steps that double from 1 to
4 MiB: a full disk is then an error before the first byte, not a fault in the middle of a store.
Longer steps hold up the one that takes them where space is cleared at once, as in memory.
The file is longer than that, and mapped whole, so that the next step only has to allocate: a pen
can do that too. What lies behind `reserved` may be a hole.
Where pages are touched ahead (`touching`), that helper decides the steps and allocates before them.
"""

from functools import partial
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import FindStop, lay_excerpts
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.maker import make_file, take_precreated
from cqrepl.queue.files.orphanfile import check_unfinished
from cqrepl.queue.files.storefile import START, Place, StoreFile, Walked
from cqrepl.queue.format.errors import NotAQueue, QueueDamaged
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import Cycle, Position, Sequence
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.format.storeimage import TAIL_ZEROS, page_image, page_size, store_image
from cqrepl.queue.write.writerterms import WriterTerms, check_room
from cqrepl.surroundings import surroundings
from wire.header import HEADER_BYTES

_STEP_MIN: Final = 1 << 20
_STEP_MAX: Final = 4 << 20
_BLOCK_BYTES: Final = 4096  # that a copy of what is lost is in
_LENGTH_MIN: Final = 8 << 20
_LENGTH_STEP: Final = 64 << 20
_END_MARK_BYTES: Final = 8
_LOOKED_AT_MAX: Final = 1024  # excerpts of a pen that are walked over at one look


class StoreWriter:
    """A store file open for writing. `place` is the next sequence, and where its header goes.

    All before `reserved` is allocated, further on `step` bytes at once; no sequence from
    `sequence_end` on has an index.
    """

    def __init__(self, store: StoreFile, terms: WriterTerms) -> None:
        """Takes over a store file and brings its marks up to date.

        Raises:
            QueueDamaged: the write position lies behind what can be walked to.
            DurabilityLost: what is in the file may never reach the disk.
        """
        self.store = store
        self.cycle = store.cycle
        self.path = store.path
        self._commits = terms.commits
        self._toucher = terms.toucher
        self._synced = 0  # all before this position is on the disk, if there is a group commit
        self.indexing = Indexing(store)
        count, spacing = store.header.index_count, store.header.index_spacing
        self.sequence_end = terms.capacity(count, spacing)
        self.page_size = page_size(count)
        self.step = _STEP_MIN
        self._step_max = _STEP_MAX if self._toucher is None else self._toucher.step_max
        self.reserved = 0
        self.place = START
        self.has_ended = False
        self._position_last = Position(0)  # of the last excerpt that it knows, 0 for none
        self._is_last_known = True  # false where a pen has appended since
        self._recover(terms)
        store.mapping.grows_from(self.place.position)

    @classmethod
    def open(cls, path: Path, cycle: Cycle, terms: WriterTerms) -> "StoreWriter | None":
        """The file's writer; None, with the file renamed, if its creator died over it.

        Raises:
            QueueDamaged: it has lost its header, or what it held.
            NotAQueue: an old Chronicle Queue wrote it, without aligned headers.
            FileNotFoundError: there is no file.
        """
        store = StoreFile.open(path, cycle, writable=True)
        if store is None:
            # the write lock is ours, so no process is still creating it
            terms.closed.check_unready(cycle, path)
            if not terms.may_have_lost(cycle):
                check_unfinished(path)
            surroundings().rename(path, _discarded(path))
            return None
        try:
            if store.header.alignment != HEADER_BYTES:
                raise NotAQueue(
                    "expected a store file with aligned headers (dataFormat 1), found one of an old"
                    " Chronicle Queue: it is read, appending to it is not supported",
                    path=path,
                )
            return cls(store, terms)
        except BaseException:
            store.close()
            raise

    @classmethod
    def create(
        cls, path: Path, cycle: Cycle, layout: QueueLayout, terms: WriterTerms
    ) -> "StoreWriter":
        """A new, empty store file; one that was made ahead of time is taken if there is one."""
        image = partial(store_image, layout.index_count, layout.index_spacing)
        is_synced = terms.commits is not None
        writer = None
        while writer is None:  # what is found there may never have been finished
            if not take_precreated(path, image, is_synced=is_synced):
                make_file(path, image(), is_synced=is_synced)
            writer = cls.open(path, cycle, terms)
        return writer

    @property
    def allocates(self) -> bool:
        """True when it is for the writer to allocate space ahead, and no helper does."""
        return self._toucher is None

    def refresh(self) -> None:
        """Catches up with what other processes have appended since.

        Raises:
            QueueDamaged: the file was cut, removed or written over, or cannot be followed.
        """
        self.store.mapping.check_named()
        self._check_last()
        if not self.has_ended and self.store.word_at(self.place.position):
            self._take(self.store.walk(self.place))

    def space_needed(self, batch: ExcerptBatch) -> bool:
        """True when the file must be allocated further before it can take the batch."""
        end = self._end_of(batch)
        return end > self.reserved and not self._is_ready(end + 2 * self.step)

    def reserve(self, batch: ExcerptBatch) -> None:
        """Allocates space for the batch, and some ahead.

        Raises:
            OSError: no space. The file may have grown; its content is as before.
        """
        end = self._end_of(batch)
        if end > self.reserved:
            self._reserve(end + self.step)
            self.step = min(2 * self.step, self._step_max)

    def is_nearly_full(self, position: int) -> bool:
        """True when a writer that stands there will soon have to make the file longer."""
        length = self.store.mapping.length
        return self.allocates and length - position < max(_STEP_MIN, length // 8)

    def reserve_ahead(self) -> None:
        """Allocates more than is mapped, so that the file becomes longer and more of it is mapped.

        Raises:
            OSError: no space. The file may have grown; its content is as before.
        """
        self._reserve(self.store.mapping.length + self.step)

    def came_to(self, place: Place, reserved: int) -> None:
        """A pen has gone on to this place, and has allocated so far."""
        self.place = place
        self.reserved = max(self.reserved, reserved)
        self._is_last_known = False

    def check_room(self, count: int) -> None:
        """Does nothing when so many more excerpts have indexes.

        Raises:
            QueueError: the cycle is full.
        """
        check_room(self.place.sequence, count, self.sequence_end, self.path)

    def append(self, batch: ExcerptBatch) -> None:
        """Appends the excerpts of a batch. Its indexes have been checked by the caller."""
        assert not self.has_ended
        self.reserve(batch)
        start = 0
        while start < batch.count:
            start += self._append_run(batch, start)

    def end(self) -> None:
        """Closes the cycle for good; nothing if it is closed."""
        if not self.has_ended:
            position = self.place.position
            self.store.write_end_mark(position)
            self.has_ended = True
            self._sync(position)

    def close(self) -> None:
        """Unmaps the file. Nothing is written."""
        self.store.close()

    def _append_run(self, batch: ExcerptBatch, start: int) -> int:
        """Appends as many excerpts as one publication may hold, and answers how many."""
        sequence, position = self.place
        count = min(batch.count - start, self._run_length(sequence))
        store, data = self.store, self.store.mapping.data
        laid = lay_excerpts(
            batch.data,
            batch.offsets,
            batch.lengths,
            start,
            count,
            data,
            position,
            sequence,
            store.header.index_spacing,
        )
        assert position <= laid.position_last < laid.position_end
        assert laid.position_end + len(TAIL_ZEROS) <= len(data)
        self._sync(laid.position_end)
        store.publish(position, laid.first_word)
        self._sync_published(position, laid.position_end)
        self.place = Place(Sequence(sequence + count), Position(laid.position_end))
        self._position_last = Position(laid.position_last)
        store.record_last(self._position_last, Sequence(sequence + count - 1))
        assert store.word_at(position) == laid.first_word  # it is what readers find
        self._index(laid.marks)
        return count

    def _run_length(self, sequence: int) -> int:
        """Greatest number of excerpts before an index page may be due."""
        page = self.indexing.page_of(sequence)
        if not self.indexing.has_page(page):
            return 1
        return self.indexing.page_end(page) - sequence + 1

    def _index(self, marks: list[tuple[int, int]]) -> None:
        """Puts excerpts into the index; adds the pages that are not there yet."""
        for page in sorted({self.indexing.page_of(sequence) for sequence, _ in marks}):
            if not self.indexing.has_page(page):
                if self.has_ended:
                    marks = [mark for mark in marks if self.indexing.page_of(mark[0]) < page]
                    break  # nothing can be added to a closed file: it is walked instead
                self._add_page(page)
        self.indexing.set_places(marks)

    def _add_page(self, page: int) -> None:
        position = self.place.position
        if position + self.page_size > self.reserved:
            self._reserve(position + self.page_size)
        image, _ = page_image("index", position, self.store.header.index_count)
        end = position + len(image)
        self.store.mapping.write(position + HEADER_BYTES, image[HEADER_BYTES:] + TAIL_ZEROS)
        self._sync(end)
        self.store.publish(position, int.from_bytes(image[:HEADER_BYTES], "little"))
        self._sync_published(position, end)
        self.indexing.set_page(page, position)
        self.place = Place(self.place.sequence, Position(end))

    def _recover(self, terms: WriterTerms) -> None:
        if terms.is_restarted:
            walked = self._give_up_lost(terms.sequence_synced(self.cycle))
        else:
            walked = self.store.walk(self.indexing.place_before())
            if self.store.write_position() > walked.position_last:
                raise self._damaged(walked.place)
        self._take(walked)

    def _give_up_lost(self, synced: int) -> Walked:
        """Sets the marks back to what a power cut has left behind the last synced sequence."""
        # pages are lost anywhere behind it, not only at the end
        walked = self.store.walk(self.indexing.place_before(max(synced, 0)), past_end=True)
        if synced >= walked.place.sequence:
            raise self._damaged(walked.place)
        is_torn = walked.stop is FindStop.PAST_END
        if is_torn or self.store.write_position() > walked.position_last:
            _put_aside(self.path, walked.place.position)
            last = Sequence(walked.place.sequence - 1)
            self.store.set_back_last(walked.position_last, last)
        if is_torn:
            self.store.mapping.words.store_4(walked.place.position, 0)
        self.indexing.forget_from(walked.place)
        return walked

    def _damaged(self, end: Place) -> QueueDamaged:
        return QueueDamaged(
            f"expected the last excerpt at {self.store.write_position()}, the documents end before"
            f" with {end.sequence} excerpts",
            path=self.path,
            position=end.position,
        )

    def _take(self, walked: Walked) -> None:
        """Stands where a walk has ended, and records what the last writer may not have."""
        self.place = walked.place
        self.has_ended = walked.stop is FindStop.END_OF_FILE
        self._reserve(self.place.position + _END_MARK_BYTES)
        self.store.clear_not_complete(self.place.position)
        self._sync_walked()
        if walked.position_last:
            last = Sequence(walked.place.sequence - 1)
            self.store.record_last(walked.position_last, last)
        self._position_last = self.store.write_position()
        self._index(walked.marks)

    def _check_last(self) -> None:
        """Does nothing while excerpts lead from the last one that it knows to its place; of many
        that a pen has appended, the first ones. In a file that an older one was written over, the
        recorded position is an older one, too.

        Raises:
            QueueDamaged: they do not: the file was cut, or an older one was written over it.
        """
        recorded, known = self.store.write_position(), self._position_last
        if not known or (self._is_last_known and recorded >= known):
            return
        found = self.store.find(known, count_max=_LOOKED_AT_MAX)
        if found.stop is FindStop.NOT_READY and found.position < self.place.position:
            raise QueueDamaged(
                f"expected excerpts up to position {self.place.position}, which were appended,"
                " found nothing there: another file was written over this one",
                path=self.path,
                position=found.position,
            )
        self._position_last, self._is_last_known = recorded, True

    def _sync(self, position: int) -> None:
        """Makes all before a header word durable, and the word itself, if that is promised."""
        if self._commits is not None:
            end = position + len(TAIL_ZEROS)
            self._commits.sync(self.store.mapping, min(self._synced, position), end)
            self._synced = position

    def _sync_published(self, position: int, end: int) -> None:
        """Makes the header word durable that shows all up to `end`, if that is promised."""
        if self._commits is not None:
            self._commits.sync(self.store.mapping, position, position + HEADER_BYTES)
            self._commits.note(self.path, end)

    def _sync_walked(self) -> None:
        """Makes what a walk has passed durable, if that is promised and has not been done."""
        position = self.place.position
        commits = self._commits
        # an end-of-file mark may be another's: what was noted ends before it
        if commits is not None and not self.has_ended and commits.is_durable(self.path, position):
            self._synced = position
        else:
            self._sync(position)

    def _end_of(self, batch: ExcerptBatch) -> int:
        """The least position behind the batch, with its index pages and an end-of-file mark."""
        sequence, position = self.place
        page_first = self.indexing.page_of(sequence)
        pages = self.indexing.page_of(sequence + batch.count) - page_first + 1
        return position + batch.laid_bytes + pages * self.page_size + _END_MARK_BYTES

    def _reserve(self, end: int) -> None:
        """Allocates all up to `end`."""
        mapping = self.store.mapping
        if end > self.reserved:
            if not self._is_ready(end):
                mapping.reserve(self.reserved, end, _length_for(end))
            self.reserved = end
        mapping.cover(end)
        if self._toucher is not None:
            mapping.cover(end + self.step)
            self._toucher.follow(mapping, self.cycle, self.place.position, end + self.step)

    def _is_ready(self, end: int) -> bool:
        toucher = self._toucher
        return toucher is not None and toucher.is_ready(self.store.mapping, end)


def _length_for(end: int) -> int:
    """The length in bytes that a file is given which is written up to `end`."""
    return _LENGTH_MIN if end <= _LENGTH_MIN else -(-end // _LENGTH_STEP) * _LENGTH_STEP


def _put_aside(path: Path, start: int) -> None:
    """Copies what a store file holds from about a position on, at its place, without zeros: that
    takes no more space than was lost, however long the file is."""
    with FileBytes(path) as store, _discarded(path).open("xb") as aside:
        at = start // _BLOCK_BYTES * _BLOCK_BYTES
        while block := store.read(at, _BLOCK_BYTES):
            if block.strip(b"\0"):
                aside.seek(at)
                aside.write(block)
            at += len(block)
        aside.truncate(at)


def _discarded(path: Path) -> Path:
    """A name under which no process looks for a store file, as Java forms it."""
    return path.with_name(f"{path.name}-{surroundings().wall_ms()}.discard")
