"""Keeps the writers of this machine out of a queue that is to go another way."""

from pathlib import Path
from typing import Final

from cqrepl.queue import Queue
from cqrepl.queue.files.locks import WRITE_LOCK_KEY

WRITER_SECONDS: Final = 5.0  # that a writer may have the write lock for, to end its append


def append_fence(path: Path) -> Queue:
    """The queue in a directory, with its append lock: as long as it is open other processes append
    nothing. One that has begun to has ended.

    Raises:
        QueueLocked: another process has one of the locks.
        QueueError, OSError: it cannot be opened.
    """
    queue = Queue.open_for_append(path)
    try:
        queue.append_lock.acquire()
        with queue.word_lock(WRITE_LOCK_KEY).held(WRITER_SECONDS):
            return queue
    except BaseException:
        queue.close()
        raise
