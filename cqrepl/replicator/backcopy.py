"""The source's queue while a sink copies back: locked for everybody else, and written.

A local writer may have used indexes between the offer and the lock. What comes back for those is
compared, in order and without leaving any of ours out; the first difference ends the back copy as
diverged.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import trio

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue import Diverged, Queue
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import format_index
from cqrepl.queue.read.comparer import check_equal
from cqrepl.replicator.backcopylock import back_copy_lock

LOCK_SECONDS: Final = 5.0


class BackCopyTarget:
    """Holds append lock and write lock of a queue from its making until `close`.

    Args:
        offered: the first index that the queue lacked when it was offered to the sink.

    Raises:
        QueueError, OSError: the queue cannot be written or locked.
    """

    def __init__(self, path: Path, offered: int) -> None:
        with ExitStack() as stack:
            queue = stack.enter_context(Queue.open_for_append(path))
            self._appender = queue.appender(payload_max=NO_LIMIT)  # the connection has a limit
            stack.enter_context(back_copy_lock(queue).held(LOCK_SECONDS))
            stack.enter_context(self._appender.exclusive(LOCK_SECONDS))
            self._written = queue.tailer(offered)
            self._path = path
            self._open = stack.pop_all()

    @property
    def next_index(self) -> int:
        """The first index that the queue lacks."""
        return self._appender.next_index

    def compare(self, batch: ExcerptBatch) -> None:
        """Checks that what a local writer put in the way is just what comes back.

        Raises:
            Diverged: other bytes, or ours has an excerpt where the sink has none.
        """
        start = 0
        while start < len(batch):
            mine = self._written.next_batch(count_max=len(batch) - start)
            wanted = batch.index_first + start
            if mine is None or mine.index_first != wanted:
                found = "nothing" if mine is None else format_index(mine.index_first)
                raise Diverged(wanted, f"at {found}", "at this index", path=self._path)
            theirs = batch.part(start, start + len(mine))
            check_equal(mine, theirs, self._path)
            start += len(mine)

    async def append(self, batch: ExcerptBatch) -> None:
        """Appends what came back, at exactly its indexes."""
        if self._appender.space_needed(batch):
            await trio.to_thread.run_sync(self._appender.reserve, batch)
        self._appender.append_at(batch)

    def close(self) -> None:
        """Gives the locks back."""
        self._open.close()
