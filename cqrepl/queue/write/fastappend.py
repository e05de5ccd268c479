"""The pen of an appender: the native kernel's way to append in one call, while all is as usual.

Theory of operation. A pen holds what this process knows of the store file that is appended to: next
sequence and its position, the index page, the space reserved, the count of changes of the
directory, and when the clock leaves the cycle. A call takes the write lock, compares all of it with
what the files say, walks over what other writers have appended, appends, and gives the lock back.
It goes on from one index page to the next. What does not compare is a `Refusal`: nothing is
appended, and the appender goes the long way, which is the reference, and makes a new pen.

The pen then knows where the file ends and the `StoreWriter` does not, so the appender tells it
before it goes the long way. It need not be right: the long way walks on from there to the end.
"""

from typing import TYPE_CHECKING, Final

from cqrepl.kernel.pen import PenTerms, Refusal, pen_type
from cqrepl.queue.files.atomics import INT64_MAX, INT64_MIN
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import WordLock
from cqrepl.queue.files.storefile import Place
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.index import SEQUENCE_FIRST, Position, Sequence, index_of
from cqrepl.queue.write.queueend import QueueEnd
from cqrepl.queue.write.storewriter import StoreWriter

if TYPE_CHECKING:
    from cqrepl.kernel.pen import Pen

_NEVER_MS: Final = INT64_MIN  # a clock is always behind it


class PenCase:
    """Makes the pens of one appender."""

    def __init__(
        self,
        cycles: Cycles,
        listing: Listing,
        *,
        write_lock: WordLock,
        append_lock: WordLock,
        payload_max: int,
    ) -> None:
        self._cycles = cycles
        self._listing = listing
        self._write_lock = write_lock
        self._append_lock = append_lock
        self._payload_max = payload_max

    def take(self, end: QueueEnd, look_ms: int = INT64_MAX) -> "Pen | None":
        """A pen for the end of the queue; None where there is no native kernel, or no place for it.

        The write lock is held, and the end was refreshed under it.

        Args:
            look_ms: from then on the long way is gone, as where the clock leaves the cycle.
        """
        kind, writer = pen_type(), end.writer
        if kind is None or writer is None or writer.has_ended:
            return None
        page = writer.indexing.page_of(writer.place.sequence)
        array = writer.indexing.array_of(page)
        if array is None:
            return None
        terms = self._terms(end, writer, array, writer.indexing.page_start(page), look_ms)
        lock, store = self._write_lock.words(), writer.store
        return kind(store.mapping.data[:], lock.table, lock.turn, terms, *writer.place)

    @staticmethod
    def put(pen: "Pen", end: QueueEnd) -> None:
        """Tells the writer how far a pen has come."""
        assert end.writer is not None
        place = Place(Sequence(pen.sequence), Position(pen.position))
        end.writer.came_to(place, pen.reserved)

    def check(self, refused: int, pen: "Pen", end: QueueEnd) -> None:
        """Does nothing when the long way can be gone after a pen has refused.

        Raises:
            QueueDamaged: a writer is at work that does not have the write lock.
            QueueError: the write lock was taken away by force. The append is done.
        """
        if refused == -Refusal.CLASH:
            assert end.writer is not None
            raise end.writer.store.clash(pen.position)
        if refused == -Refusal.LOCK_LOST:
            raise self._lost()

    def _lost(self) -> QueueError:
        return self._write_lock.taken_away()

    def _terms(
        self, end: QueueEnd, writer: StoreWriter, page: int, page_first: int, look_ms: int
    ) -> PenTerms:
        lock, store = self._write_lock.words(), writer.store
        cycle, header = writer.cycle, store.header
        is_last = end.cycle_last <= cycle  # else the clock's appends go to an empty cycle above
        return PenTerms(
            lock=lock.word,
            start=lock.start,
            append_lock=self._append_lock.words().word,
            changes=self._listing.changes_position,
            changes_seen=end.changes_seen,
            process=lock.process,
            process_start=lock.process_start,
            descriptor=store.mapping.descriptor,
            write_position=header.write_position,
            sequence_word=header.sequence,
            last_index=header.last_index,
            sequence_bits=store.sequence_bits,
            index_first=index_of(cycle, SEQUENCE_FIRST, self._cycles.shift),
            sequence_end=writer.sequence_end,
            index_count=header.index_count,
            index_spacing=header.index_spacing,
            page=page,
            page_first=page_first,
            pages=writer.indexing.pages_array,
            page_size=writer.page_size,
            payload_max=self._payload_max,
            reserved=writer.reserved,
            step=writer.step if writer.allocates else 0,
            cycle_end_ms=min(look_ms, self._cycles.ends_ms(cycle)) if is_last else _NEVER_MS,
        )
