"""The source's queue while a sink copies back: locked for every other writer, and written.

A local writer may have used indexes between the offer and the lock. What comes back for those is
compared, in order and without leaving any of ours out; the first difference ends the back copy as
diverged.

Meanwhile the append lock keeps the queue's own writers out. The write lock is taken and given back
once before the end is read, so that a writer that was in its append has ended it, and then for each
batch alone. A writer of another process, Java's above all, may have looked at the append lock
before it was taken, and may append once more however much later. Each batch begins with a look for
that (`Appender.fenced`): what is found is compared with what comes back in the same way.

Java never gives back an append lock by itself: after a kill those writers would stay out for ever.
So another lock of ours is held with it; where it names the same dead process as the append lock
does, both are to be given back. A sink's own append lock, which is to stay, has no such mark.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.net.threads import in_thread
from cqrepl.queue import Diverged, Queue, QueueError
from cqrepl.queue.files.chroniclemarks import ChronicleMarks
from cqrepl.queue.files.fileusers import users_of_files
from cqrepl.queue.files.locks import UNLOCKED, WRITE_LOCK_KEY, WordLock, is_alive
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.errors import WrittenBetween
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import format_index
from cqrepl.queue.write.heldexcerpts import HeldExcerpts
from cqrepl.replicator.agreement.consent import ReturnRefused, ReturnSettings
from cqrepl.replicator.agreement.firstindex import check_not_ahead
from cqrepl.replicator.queuestate.appendhold import AppendHold
from cqrepl.surroundings import surroundings

LOCK_SECONDS: Final = 5.0
_KEY: Final = "cqrepl.backCopy.lock"
_logger: Final = logging.getLogger(__name__)


class BackCopyTarget:
    """Holds the append lock of a queue from its making until `close`.

    Args:
        offered: the first index that the queue lacked when it was offered to the sink.
        limits: how much comes back at most.
        proved_end: the next index behind what no power cut has torn here; None: nothing is torn.
        host_id: of the sink.
        hold: that keeps other processes out; it is given back, and taken again by `close`.

    Attributes:
        returned: so many excerpts came back.

    Raises:
        QueueError, OSError: the queue cannot be written or locked.
    """

    def __init__(
        self,
        path: Path,
        offered: int,
        limits: ReturnSettings,
        host_id: int,
        proved_end: int | None,
        hold: AppendHold | None = None,
    ) -> None:
        self._limits = limits
        self._host_id = host_id
        self.returned = 0  # excerpts
        with ExitStack() as stack:
            if hold is not None:
                hold.give_back()
                stack.callback(hold.take_again)
            queue = stack.enter_context(Queue.open_for_append(path))
            self._appender = queue.appender(payload_max=NO_LIMIT)  # the connection has a limit
            stack.enter_context(back_copy_lock(queue).held(LOCK_SECONDS))
            stack.enter_context(self._appender.fenced(LOCK_SECONDS))
            self._held = HeldExcerpts(queue.cycles, offered, proved_end)
            stack.callback(lambda: self._held.close())
            self._path = path
            self._queue = queue
            self._write_lock = queue.word_lock(WRITE_LOCK_KEY)
            self._between: WrittenBetween | None = None  # what comes back is held against it
            self._writers = ""  # whose that is
            self._is_in_thread = self._is_over = False
            self._open = stack.pop_all()

    @property
    def mended(self) -> int:
        """Number of excerpts that a power cut had torn, and that the sink's bytes have mended."""
        return self._held.mended

    @property
    def next_index(self) -> int:
        """The first index that the queue lacks."""
        return self._appender.next_index

    def compare(self, batch: ExcerptBatch) -> None:
        """Checks that what a local writer put in the way, or a power cut left, is what comes back.

        Raises:
            Diverged: other bytes, or ours has an excerpt where the sink has none.
            QueueError, OSError: it cannot be read, or mended.
        """
        self._held.compare(batch)

    async def append(self, batch: ExcerptBatch) -> None:
        """Appends what came back, at exactly its indexes.

        Raises:
            ReturnRefused: it is more than may come back.
            LayoutMismatch: it is of a cycle that this host's clock has not come to.
            Diverged: a writer that got in between has appended something else.
            QueueLocked: another process keeps the write lock.
            QueueError: the append lock was taken away by force, or it cannot be appended.
            OSError: no space, or the like.
        """
        count_max = self._limits.excerpts_max
        if self.returned + len(batch) > count_max:
            raise ReturnRefused(
                f"host {self._host_id} has more than this queue by over {count_max:,} excerpts;"
                f" {self.returned:,} were taken (--return-excerpts)",
                path=self._path,
            )
        layout = self._queue.layout
        check_not_ahead(batch.index_last, layout, surroundings().wall_ms(), self._path)
        self.returned += len(batch)
        rest = self._compare_between(batch)
        while rest is not None:
            try:
                await self._append(rest)
                return
            except WrittenBetween as found:
                if self._is_over:
                    return
                self._meet(found)
                rest = self._compare_between(rest)

    async def _append(self, batch: ExcerptBatch) -> None:
        if self._appender.space_needed(batch):
            await self._in_thread(partial(self._appender.reserve, batch))
        if self._is_over:
            return
        if self._write_lock.holder() is None:
            self._appender.append_at(batch)
        else:  # the process that holds it may be suspended
            await self._in_thread(partial(self._appender.append_at, batch))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        self._is_in_thread = True
        try:
            await in_thread(work)
        finally:
            self._is_in_thread = False
            if self._is_over:
                self.close()

    def _meet(self, found: WrittenBetween) -> None:
        """Warns that another process has appended between two batches."""
        pids: tuple[int, ...] = ()
        with suppress(OSError):
            pids = users_of_files([self._path / FILE_NAME]).known
        names = ", ".join(str(pid) for pid in pids) or "none that is known"
        self._writers = f"another process (the queue is open in: {names})"
        _logger.warning(
            "%s: what stands from %s to before %s was appended by %s while a sink gives back: a"
            " writer that had looked at the append lock before it was taken; it is compared with"
            " what comes back",
            self._path,
            format_index(found.end_left),
            format_index(found.end_found),
            self._writers,
        )
        self._held.close()
        self._held = HeldExcerpts(self._queue.cycles, found.end_left, None)
        self._between = found

    def _compare_between(self, batch: ExcerptBatch) -> ExcerptBatch | None:
        """The excerpts of a batch that are to be appended. Those that another process has appended
        between are compared."""
        between = self._between
        if between is None:
            return batch
        try:
            if batch.index_first >= between.end_found:
                self._held.check_passed()
            count = max(0, min(len(batch), between.end_found - batch.index_first))
            if count:
                self._held.compare(batch.part(0, count))
        except Diverged as error:
            stored = f"{error.stored}, appended meanwhile by {self._writers}"
            index = between.end_left if error.index is None else error.index
            raise Diverged(index, stored, error.received, path=self._path) from error
        if batch.index_first + count >= between.end_found:
            self._between = None
        return None if count == len(batch) else batch.part(count, len(batch))

    def overdue(self) -> ReturnRefused:
        """The refusal of a back copy whose time is over."""
        return ReturnRefused(
            f"host {self._host_id} has more than this queue, and takes longer than"
            f" {self._limits.seconds_max:g} s to give it back, which keep writers out;"
            f" {self.returned:,} excerpts were taken (--return-seconds)",
            path=self._path,
        )

    def close(self) -> None:
        """Gives the locks back; when a thread that appends has ended that."""
        self._is_over = True
        if self._is_in_thread:
            return
        try:
            self._open.close()
        except QueueError as error:  # the queue stops for something else already, or goes on
            _logger.warning("%s", error)


def back_copy_lock(queue: Queue) -> WordLock:
    """The lock that marks the append lock as held for a back copy."""
    return queue.word_lock(_KEY)


def release_dead_back_copy(path: Path | str, opened: Queue | None = None) -> bool:
    """Gives back the locks of a process that was killed while a sink copied back into a queue.

    A lock that is not of a back copy, or whose holder may be alive, is left alone.

    Args:
        opened: the same queue, where it is open: the lock is looked at there.

    Raises:
        QueueError, OSError: as `Queue.open_for_append`.
    """
    look = ChronicleMarks(Path(path) / FILE_NAME).load if opened is None else opened.word
    marked = look(_KEY, UNLOCKED)
    if marked == UNLOCKED or (marked != surroundings().process_id() and is_alive(marked)):
        return False
    with Queue.open_for_append(path) as queue:
        mark, lock = back_copy_lock(queue), queue.append_lock
        was_held = mark.holder() is not None and mark.holder() == lock.holder()
        if was_held:
            lock.release_dead()
        mark.release_dead()
        return was_held and lock.holder() is None
