"""The source's queue while a sink copies back: locked for every other writer, and written.

A local writer may have used indexes between the offer and the lock. What comes back for those is
compared, in order and without leaving any of ours out; the first difference ends the back copy as
diverged.

Meanwhile the append lock and the write lock keep the queue's own writers out. Java never gives back
an append lock by itself: after a kill those writers would stay out for ever. So a third lock of
ours is held with these two; where it names the same dead process as the append lock does, both are
to be given back. A sink's own append lock, which is to stay, has no such mark.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.net.threads import in_thread
from cqrepl.queue import Queue
from cqrepl.queue.files.chroniclemarks import ChronicleMarks
from cqrepl.queue.files.locks import UNLOCKED, WordLock, is_alive
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.write.heldexcerpts import HeldExcerpts
from cqrepl.replicator.consent import ReturnRefused, ReturnSettings
from cqrepl.replicator.firstindex import check_not_ahead
from cqrepl.surroundings import surroundings

LOCK_SECONDS: Final = 5.0
_KEY: Final = "cqrepl.backCopy.lock"


class BackCopyTarget:
    """Holds append lock and write lock of a queue from its making until `close`.

    Args:
        offered: the first index that the queue lacked when it was offered to the sink.
        limits: how much comes back at most.
        proved_end: the next index behind what no power cut has torn here; None: nothing is torn.
        host_id: of the sink.

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
    ) -> None:
        self._limits = limits
        self._host_id = host_id
        self._returned = 0  # excerpts
        with ExitStack() as stack:
            queue = stack.enter_context(Queue.open_for_append(path))
            self._appender = queue.appender(payload_max=NO_LIMIT)  # the connection has a limit
            stack.enter_context(back_copy_lock(queue).held(LOCK_SECONDS))
            stack.enter_context(self._appender.exclusive(LOCK_SECONDS))
            self._held = HeldExcerpts(queue.cycles, offered, proved_end)
            stack.callback(self._held.close)
            self._path = path
            self._layout = queue.layout
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
        """
        count_max = self._limits.excerpts_max
        if self._returned + len(batch) > count_max:
            raise ReturnRefused(
                f"host {self._host_id} has more than this queue by over {count_max:,} excerpts;"
                f" {self._returned:,} were taken (--return-excerpts)",
                path=self._path,
            )
        check_not_ahead(batch.index_last, self._layout, surroundings().wall_ms(), self._path)
        self._returned += len(batch)
        if self._appender.space_needed(batch):
            await in_thread(partial(self._appender.reserve, batch))
        self._appender.append_at(batch)

    def overdue(self) -> ReturnRefused:
        """Why it goes no further, when its time is over."""
        return ReturnRefused(
            f"host {self._host_id} has more than this queue, and takes longer than"
            f" {self._limits.seconds_max:g} s to give it back, which keep writers out;"
            f" {self._returned:,} excerpts were taken (--return-seconds)",
            path=self._path,
        )

    def close(self) -> None:
        """Gives the locks back."""
        self._open.close()


def back_copy_lock(queue: Queue) -> WordLock:
    """The lock that marks append lock and write lock as held for a back copy."""
    return queue.word_lock(_KEY)


def release_dead_back_copy(path: Path | str) -> bool:
    """Gives back the locks of a process that was killed while a sink copied back into a queue.

    A lock that is not of a back copy, or whose holder may be alive, is left alone.

    Raises:
        QueueError, OSError: as `Queue.open_for_append`.
    """
    marked = ChronicleMarks(Path(path) / FILE_NAME).load(_KEY, UNLOCKED)
    if marked == UNLOCKED or (marked != surroundings().process_id() and is_alive(marked)):
        return False
    with Queue.open_for_append(path) as queue:
        mark, lock = back_copy_lock(queue), queue.append_lock
        was_held = mark.holder() is not None and mark.holder() == lock.holder()
        if was_held:
            lock.release_dead()
        mark.release_dead()
        return was_held and lock.holder() is None
