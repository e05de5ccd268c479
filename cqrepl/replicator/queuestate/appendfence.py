"""Keeps the writers of this machine out of a queue that is to go another way.

Theory of operation. From the moment that no program may write here any more, the append lock has to
be held without a break: in a break a writer would append what the new leader does not have. So the
sink takes over the very queue that the fence has open, with its lock held. Writers of this process
look, beside the lock, at whether the queue is a copy, which is noted as long as the fence stands.
"""

from pathlib import Path
from typing import Final

from cqrepl.queue import Queue
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED, holder_of, is_alive
from cqrepl.replicator.queuestate.appendhold import AppendHold
from cqrepl.surroundings import surroundings

WRITER_SECONDS: Final = 5.0  # that a writer may have the write lock for, to end its append


class AppendFence:
    """Stands before one queue: nothing is appended to it until it is lifted, or given to what
    appends from then on. One that has begun to append has ended.

    Args:
        hold: that keeps other processes out; it is given back, and taken again by `lift`.

    Raises:
        QueueLocked: another process has one of the locks.
        QueueError, OSError: it cannot be opened.
    """

    def __init__(self, path: Path, hold: AppendHold | None = None) -> None:
        self._queue: Queue | None = None
        self._hold = hold
        if hold is not None:
            hold.give_back()
        try:
            queue = Queue.open_for_append(path)
            try:
                queue.append_lock.acquire()
                queue.begin_following(WRITER_SECONDS)
            except BaseException:
                queue.close()
                raise
        except BaseException:
            if hold is not None:
                hold.take_again()
            raise
        self._queue = queue

    def give(self) -> Queue:
        """The queue, with its append lock held. It is the caller's from now on."""
        assert self._queue is not None
        queue, self._queue = self._queue, None
        return queue

    def lift(self) -> None:
        """Writers may append again; nothing where the queue was given on."""
        if self._queue is not None:
            queue = self.give()
            queue.note_follower(is_follower=False)
            queue.close()
            if self._hold is not None:
                self._hold.take_again()

    def end(self) -> None:
        """The lock is free again, and the queue a copy; nothing where it was given on."""
        if self._queue is not None:
            self.give().close()


def release_dead_fence(opened: Queue) -> bool:
    """Frees the append lock of a queue that this host leads, where its holder has died: the process
    was killed as it gave up the lead, or the queue was a copy then, and a power cut has brought
    back the page that has the lock. True where it was so.

    Args:
        opened: the queue; no more than its path and the lock's word are asked of it.

    Raises:
        QueueError, OSError: as `Queue.open_for_append`.
    """
    holder = holder_of(opened.word(APPEND_LOCK_KEY, UNLOCKED))
    if holder is None or (holder != surroundings().process_id() and is_alive(holder)):
        return False
    with Queue.open_for_append(opened.path) as queue:
        queue.append_lock.release_dead()
        return queue.append_lock.holder() is None
