"""Appends to a queue: at exact indexes, as a replica must, or at the end.

Theory of operation. Every call takes the queue's write lock, catches up with what other writers
have appended meanwhile, checks the index, and only then changes anything. The next index is one
past the last excerpt of the highest cycle that holds any; an append may continue there or begin a
higher cycle at sequence 0. Nothing else is accepted: a repeat is for `compare`, a gap is an
`IndexGap`. `ending` tells how cycles are changed, `storewriter` how a run of excerpts becomes
visible, and `durability` what has reached the disk when a call returns.

What can refuse an append does so before anything is stored: the locks, a cycle that is full, an
excerpt that is longer than readers take (`block`), a full disk.

The append lock keeps plain writers out of a replica. It must be free or this process's own, before
the write lock is taken and after: an appender that waited for the write lock may have been
overtaken. Java looks only before. So behind a fence, and where a sink appends, each append first
looks whether the end is where it was left. In the process that holds the append lock its word keeps
no appender out: there the other appenders look whether the queue is a copy, which only a sink
appends to.

Without a group commit and with the native kernel a pen does the usual append in one call (`pens`).
What it refuses goes the long way, as everything does without it; what any reader finds
afterwards is the same. The long way takes the write lock: one thread goes it at a time. It also
finds a store file that was moved away, replaced or written over, which a pen does not see: an
append at the end goes it every few seconds, by the clock that it appends by, and hosts look
themselves.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Final

from cqrepl.queue.files.atomics import INT64_MAX
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.knownleader import leader_known
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import WordLock
from cqrepl.queue.files.mapping import check_name
from cqrepl.queue.format.block import BLOCK_BYTES, longest_payload
from cqrepl.queue.format.errors import (
    AppendsToCopy,
    DurabilityLost,
    ExcerptTooLarge,
    IndexGap,
    QueueDamaged,
    QueueError,
    QueueLocked,
    WrittenBetween,
    used_after_close,
)
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import (
    SEQUENCE_FIRST,
    Cycle,
    Index,
    cycle_of,
    index_of,
    is_next,
    sequence_of,
)
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.read.comparer import Comparer
from cqrepl.queue.write.draft import Draft
from cqrepl.queue.write.fastappend import PenCase
from cqrepl.queue.write.groupcommit import GroupCommit, Pending
from cqrepl.queue.write.pretoucher import PageToucher
from cqrepl.queue.write.queueend import QueueEnd
from cqrepl.queue.write.storewriter import StoreWriter
from cqrepl.queue.write.tailwait import TailWait
from cqrepl.surroundings import surroundings
from wire.header import LENGTH_MASK

if TYPE_CHECKING:
    from cqrepl.kernel.pen import Pen

WRITE_LOCK_TIMEOUT_S: Final = 5.0
IS_COPY: Final = (
    "expected the queue that its leader streams, found a copy: what is appended here no other copy"
    " has; --to-copy or to_copy=True appends all the same"
)
LOOK_MS: Final = 5000  # between two looks at the name of a file that is appended to by the clock


class Appender:
    """A writer of a queue. Any thread may append; all else is for one thread at a time.

    Attributes:
        is_out_of_date: its store file is not there any more, and what marks tell that it held is
            there again: another appender goes on.
    """

    def __init__(
        self,
        cycles: Cycles,
        layout: QueueLayout,
        listing: Listing,
        *,
        write_lock: WordLock,
        append_lock: WordLock,
        commits: GroupCommit | None = None,
        block_bytes: int = BLOCK_BYTES,
        payload_max: int | None = None,
        toucher: PageToucher | None = None,
        tail_wait: TailWait | None = None,
        is_sole: bool = False,
        to_copy: bool = False,
    ) -> None:
        """Stands at the end of the queue, and repairs there what dead writers left undone.

        Args:
            commits: makes appends durable before they return; one for all appenders of a queue.
            block_bytes: what this process's readers map at a time; decides the longest excerpt.
            payload_max: the longest excerpt in bytes, where the caller has decided it.
            toucher: brings pages into memory ahead; the caller closes it.
            tail_wait: lets the first append at the end wait, or refuses it; None: nothing does.
            is_sole: no other writer is to append: what is found behind the end that this appender
                has left raises `WrittenBetween`, until it is closed.
            to_copy: what is appended at the end may go to a copy.

        Raises:
            QueueDamaged: the end of the queue cannot be trusted.
            QueueLocked: another process keeps the write lock.
            DurabilityLost: a sync has failed.
        """
        self._cycles = cycles
        self._layout = layout
        self._listing = listing
        self._write_lock = write_lock
        self._append_lock = append_lock
        self._commits = commits
        longest = longest_payload(block_bytes, layout.index_count)
        self._payload_max = min(longest if payload_max is None else payload_max, LENGTH_MASK)
        self._comparer = Comparer(cycles)
        self._appended_next = 0  # one past the last excerpt that another thread appended for us
        self._is_exclusive = False
        self._fenced_end: Index | None = None  # behind a fence: where the queue was left
        self._is_sole = is_sole
        self._between: WrittenBetween | None = None  # why a sole one appends no more
        self._tail_wait = tail_wait
        self._to_copy = to_copy
        self.is_closed = False
        self.is_out_of_date = self._has_lost_file = False
        self._pen: Pen | None = None
        self._pens = PenCase(
            cycles,
            listing,
            write_lock=write_lock,
            append_lock=append_lock,
            payload_max=self._payload_max,
        )
        with self._write_lock.held(WRITE_LOCK_TIMEOUT_S):
            self._end = QueueEnd(cycles, layout, listing, commits, toucher)

    @property
    def next_index(self) -> int:
        """One past the last excerpt, as of the last call; 0 for an empty queue."""
        pen = self._pen
        if pen is not None:
            return pen.next_index
        return max(self._end.next_index, self._appended_next)

    @property
    def pen(self) -> "Pen | None":
        """The pen of this appender, for a pump that appends with it; None while there is none.

        The appender appends nothing itself while the pump has it.
        """
        return self._pen

    @property
    def payload_max(self) -> int:
        """The longest excerpt in bytes that is taken."""
        return self._payload_max

    def append_at(self, batch: ExcerptBatch) -> None:
        """Appends excerpts at exactly their indexes.

        Raises:
            IndexGap: `batch.index_first` is neither the next index nor the first of a higher
                cycle. Nothing was changed.
            ExcerptTooLarge: an excerpt is longer than `payload_max`. Nothing was changed.
            QueueLocked: the append lock or the write lock is another process's.
            QueueError: the cycle has no room for the batch. Nothing was changed.
            DurabilityLost: a sync failed, now or before. The batch may be there or not.
            OSError: no space. What was appended before it is whole.
        """
        if not self.append_now(batch):
            self.append_refused(batch)

    def append_now(self, batch: ExcerptBatch) -> bool:
        """Appends as `append_at` when that takes no time; false when nothing was changed.

        One that was refused is not tried again: it is for `append_refused`.

        Raises:
            QueueError: the append went wrong half-way, as for `append_at`.
        """
        pen = self._pen
        if pen is None:
            return False
        last = pen.append_at(batch.data, batch.offsets, batch.lengths, batch.index_first)
        if last < 0:
            self._pens.check(last, pen, self._end)
        return last >= 0

    def append_soon(self, batch: ExcerptBatch) -> bool:
        """Appends as `append_at` where that makes no file and allocates no space; else false, and
        nothing was changed: it is for `reserve`, and then `append_refused`.

        Raises:
            IndexGap, ExcerptTooLarge, QueueLocked, QueueError, DurabilityLost, OSError: as
                `append_at`.
        """
        if not self.append_now(batch):
            if self.space_needed(batch):
                return False
            self.append_refused(batch)
        return True

    def append_refused(self, batch: ExcerptBatch) -> None:
        """Appends as `append_at` what `append_now` has refused: the long way.

        Raises:
            IndexGap, ExcerptTooLarge, QueueLocked, QueueError, DurabilityLost, OSError: as
                `append_at`.
        """
        with self._writing():
            self._check_next(batch)
            self._append(batch)

    def append(self, payloads: Sequence[bytes | memoryview], now_ms: int | None = None) -> int:
        """Appends at the end, in the clock's cycle or a later one that exists; the last index.

        Args:
            now_ms: what decides the cycle, milliseconds since 1970; by default the clock's time.

        Raises:
            ExcerptTooLarge, QueueLocked, QueueError, DurabilityLost, OSError: as `append_at`.
        """
        if not payloads:
            raise ValueError("at least one excerpt expected, none came")
        pen = self._pen
        if pen is not None:
            last = pen.append_many(payloads, now_ms)
            if last >= 0:
                return last
            self._pens.check(last, pen, self._end)
        return self._append_slowly(payloads, now_ms)

    def append_one(self, payload: bytes | memoryview, now_ms: int | None = None) -> int:
        """Appends one excerpt at the end, as `append`; its index."""
        pen = self._pen
        if pen is not None:
            last = pen.append_one(payload, now_ms)
            if last >= 0:
                return last
            self._pens.check(last, pen, self._end)
        return self._append_slowly((payload,), now_ms)

    def _append_slowly(self, payloads: Sequence[bytes | memoryview], now_ms: int | None) -> int:
        if self.is_closed:
            raise used_after_close("appender", self._cycles.path)
        if not self._to_copy and self._listing.is_follower():
            self._check_append_lock()  # one that is taken in now says so
            leader = leader_known(self._cycles.path, self._listing)
            raise AppendsToCopy(f"{IS_COPY}{leader}", path=self._cycles.path)
        if self._tail_wait is None:
            return self._append_anyway(payloads, now_ms)
        self._tail_wait.wait()
        try:
            return self._append_anyway(payloads, now_ms)
        except QueueDamaged as error:  # as where the store file is not the one it was
            had_lost, self._has_lost_file = self._has_lost_file, True
            self._tail_wait.check_marks(error)
            self._has_lost_file, self.is_out_of_date = False, had_lost
            raise

    def _append_anyway(self, payloads: Sequence[bytes | memoryview], now_ms: int | None) -> int:
        if now_ms is None:
            now_ms = surroundings().wall_ms()
        look_ms = min(now_ms + LOOK_MS, INT64_MAX)
        if self._commits is None or self._is_exclusive:
            with self._writing():
                return self._append_last(payloads, now_ms, look_ms)
        last = self._commits.append(Pending(payloads, now_ms), self._append_for_all)
        self._appended_next = last + 1
        return last

    @contextmanager
    def writing(self, now_ms: int | None = None) -> Iterator[Draft]:
        """An excerpt to be put together in a block, and appended when the block ends well.

        Nothing is in the queue before, and no lock is held. `rollback` or an error drops it.

            with appender.writing() as out:
                out.write(b"...")
            print(out.index)

        Raises:
            ExcerptTooLarge, QueueLocked, QueueError, DurabilityLost, OSError: as `append`.
        """
        draft = Draft(self.next_index, self._payload_max)
        yield draft
        draft.append_with(lambda payload: self.append((payload,), now_ms))

    def compare(self, batch: ExcerptBatch) -> None:
        """Does nothing when the queue holds exactly these excerpts under these indexes.

        Raises:
            Diverged: other bytes stand under one of the indexes.
            IndexGap: one of them is not there.
        """
        self._comparer.compare(batch, self.next_index)

    def space_needed(self, batch: ExcerptBatch) -> bool:
        """True when appending the batch will make files or allocate space: `reserve` first."""
        self._put_pen_down()
        writer = self._end.writer
        if writer is None or writer.cycle != cycle_of(batch.index_first, self._cycles.shift):
            return True
        return writer.space_needed(batch)

    def reserve(self, batch: ExcerptBatch) -> None:
        """Does what takes long in appending the batch: rolls, makes files, allocates space.

        Raises:
            IndexGap, ExcerptTooLarge, QueueLocked, QueueError, OSError: as `append_at`.
        """
        with self._writing():
            self._check_next(batch)
            cycle = cycle_of(batch.index_first, self._cycles.shift)
            self._stand_on(batch, cycle).reserve(batch)

    def reserve_ahead(self) -> None:
        """Maps and allocates more of a file that is nearly full; nothing while there is room.

        For a caller that does so for one queue now, and would for this one soon.

        Raises:
            QueueLocked, QueueError, OSError: as `append_at`.
        """
        pen, writer = self._pen, self._end.writer
        if pen is None or writer is None or not writer.is_nearly_full(pen.position):
            return
        with self._writing():
            if self._end.writer is writer and not writer.has_ended:
                writer.reserve_ahead()
                self._pen = self._pens.take(self._end)

    @contextmanager
    def exclusive(self, timeout_s: float) -> Iterator[None]:
        """Keeps every other writer out for the length of a block, and knows the true end in it.

        Raises:
            QueueLocked: another process kept the append lock or the write lock all the time.
        """
        with _kept(self._append_lock, timeout_s), self._write_lock.held(timeout_s):
            self._is_exclusive = True
            try:
                self._put_pen_down()
                self._end.refresh()
                yield
            finally:
                self._is_exclusive = False

    @contextmanager
    def fenced(self, timeout_s: float) -> Iterator[None]:
        """Keeps every other writer out for the length of a block, and knows the true end in it;
        the write lock is held only while something is appended.

        In this process other appenders wait for the write lock all the same. In another one a
        writer that looked at the append lock before may still append: the next append here then
        raises `WrittenBetween`, once, before it changes anything. One whose append lock was taken
        away by force raises `QueueError`.

        Raises:
            QueueLocked: another process kept the append lock or the write lock all the time.
        """
        with _kept(self._append_lock, timeout_s), self._write_lock.turn(timeout_s):
            with self._write_lock.held(timeout_s):  # a writer that was in its append has ended it
                self._put_pen_down()
                self._end.refresh()
                self._fenced_end = self._end.next_index
            try:
                yield
            finally:
                self._fenced_end = None

    def end_cycle(self) -> None:
        """Closes the cycle of the last excerpt for good, as rolling on does; nothing if empty.

        Raises:
            QueueLocked, DurabilityLost: as `append_at`.
        """
        with self._writing():
            if self._end.writer is not None:
                self._end.writer.end()

    def check_name(self) -> None:
        """Does nothing while the name of the store file that is appended to leads to it.

        Raises:
            QueueDamaged: the file was removed, or another one has taken its name.
        """
        writer = self._end.writer
        if writer is not None:
            check_name(writer.path, writer.store.mapping.identity)

    def close(self) -> None:
        """Unmaps the files. Nothing is written."""
        self.is_closed = True
        self._pen = None
        self._end.close()
        self._comparer.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self.is_closed:
            raise used_after_close("appender", self._cycles.path)
        if self._commits is not None:
            self._commits.check()
        if self._is_exclusive:
            self._put_pen_down()
            yield
            return
        self._check_append_lock()
        with self._write_lock.held(WRITE_LOCK_TIMEOUT_S):
            self._check_append_lock()
            self._put_pen_down()
            end_left = self._end_left()
            self._end.refresh()
            try:
                self._check_end(end_left)
                yield
            finally:
                # left by a signal it ends when it is collected, which may be behind `close`
                if self._fenced_end is not None and not self.is_closed:
                    self._fenced_end = self._end.next_index

    def _check_append_lock(self) -> None:
        if self._append_lock.is_sure:
            return  # as of a sink: it keeps out all others
        holder, own = self._append_lock.holder(), surroundings().process_id()
        if self._fenced_end is not None and holder != own:
            raise self._append_lock.taken_away()
        is_copy = self._append_lock.is_held_beside and self._listing.is_follower()
        if holder is not None and (holder != own or is_copy):
            leader = leader_known(self._cycles.path, self._listing)
            raise QueueLocked(
                f"expected to be allowed to append, process {holder} keeps the append lock{leader}",
                holder=holder,
                path=self._cycles.path,
            )

    def _end_left(self) -> Index | None:
        """The next index at which this appender has left the queue; None where others may append
        too."""
        if self._between is not None:
            return Index(self._between.end_left)
        return self._end.next_index if self._is_sole else self._fenced_end

    def _check_end(self, left: Index | None) -> None:
        """Checks that the end is where this appender left it. The end tells all: an excerpt in a
        later cycle moves it too, and an empty file above is in no appender's way."""
        found = self._end.next_index
        if left is not None and left != found:
            error = WrittenBetween(left, found, path=self._cycles.path)
            if self._is_sole:
                self._between = error
            raise error

    def _put_pen_down(self) -> None:
        """The long way begins: what a pen has appended becomes known to it."""
        pen, self._pen = self._pen, None
        if pen is not None:
            self._pens.put(pen, self._end)

    def _check_next(self, batch: ExcerptBatch) -> None:
        index, shift, path = batch.index_first, self._cycles.shift, self._cycles.path
        next_index = self._end.next_index
        cycle = cycle_of(index, shift)
        if not is_next(next_index, index, shift):
            raise IndexGap(next_index, index, "it does not follow the end", path=path)
        if self._end.has_ended(cycle):
            expected = index_of(Cycle(cycle + 1), SEQUENCE_FIRST, shift)
            raise IndexGap(expected, index, "its cycle is closed", path=path)

    def _append_for_all(self, waiting: list[Pending]) -> None:
        """Appends what several callers wait for: one batch for all of a cycle."""
        roll_cycle, epoch = self._layout.roll_cycle, self._layout.epoch
        with self._writing():
            for _, group in groupby(waiting, lambda each: roll_cycle.cycle_at(each.now_ms, epoch)):
                self._append_together(list(group))

    def _append_together(self, group: list[Pending]) -> None:
        """Appends for all of a group; when that is refused, for each in turn."""
        end = self._end.next_index
        payloads = [payload for pending in group for payload in pending.payloads]
        try:
            last = self._append_last(payloads, group[0].now_ms)
        except (QueueError, OSError) as error:
            if len(group) == 1 or isinstance(error, DurabilityLost) or self._has_grown(end):
                for pending in group:
                    pending.error = error
                return
            for pending in group:
                self._append_together([pending])
            return
        index = last + 1 - len(payloads)
        for pending in group:
            index += len(pending.payloads)
            pending.index_last = index - 1

    def _has_grown(self, end: Index) -> bool:
        """True when there are excerpts behind what was the end."""
        now, shift = self._end.next_index, self._cycles.shift
        is_rolled = cycle_of(now, shift) > cycle_of(end, shift)
        return now != end and not (is_rolled and sequence_of(now, shift) == 0)

    def _append_last(
        self, payloads: Sequence[bytes | memoryview], now_ms: int, look_ms: int = INT64_MAX
    ) -> Index:
        """Appends at the end, and answers the last index. The write lock is held.

        Args:
            look_ms: until then a pen need not ask whether the names of the files lead to them.
        """
        cycle = self._layout.roll_cycle.cycle_at(now_ms, self._layout.epoch)
        cycle, sequence = self._end.place_in(max(cycle, self._end.cycle_last, Cycle(0)))
        batch = ExcerptBatch.of(index_of(cycle, sequence, self._cycles.shift), payloads)
        self._append(batch, look_ms)
        return batch.index_last

    def _append(self, batch: ExcerptBatch, look_ms: int = INT64_MAX) -> None:
        shift = self._cycles.shift
        cycle, sequence = cycle_of(batch.index_first, shift), sequence_of(batch.index_first, shift)
        assert sequence + batch.count <= 1 << shift  # all of one cycle
        writer = self._stand_on(batch, cycle)
        assert writer.place.sequence == sequence
        writer.append(batch)
        assert writer.place.sequence == sequence + batch.count
        if self._commits is not None:
            self._listing.synced_to(batch.index_last)
        elif self._fenced_end is None:  # a pen would walk over what others have appended
            self._pen = self._pens.take(self._end, look_ms)

    def _stand_on(self, batch: ExcerptBatch, cycle: Cycle) -> StoreWriter:
        """The writer of the batch's cycle, rolled to if need be, with room for the batch."""
        longest = batch.payload_longest
        if longest > self._payload_max:
            index = batch.index_first + batch.lengths.index(longest)
            raise ExcerptTooLarge(index, longest, self._payload_max, path=self._cycles.path)
        return self._end.at(cycle, batch.count)


@contextmanager
def _kept(lock: WordLock, timeout_s: float) -> Iterator[None]:
    """Holds a lock for the length of a block; one that is held already stays so."""
    if lock.is_held:
        yield
        return
    with lock.held(timeout_s):
        yield
