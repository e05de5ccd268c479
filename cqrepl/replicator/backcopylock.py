"""The mark that tells a back copy's locks from a sink's, and their release after a kill.

While a sink copies back what a source lost, the source's queue is kept from its own writers by the
append lock and the write lock. Java never gives back an append lock by itself: after a kill those
writers would stay out for ever. So a third lock of ours is held with the other two; where it names
the same dead process as the append lock does, both are to be given back. A sink's own append lock,
which is to stay, has no such mark.
"""

import os
from pathlib import Path
from typing import Final

from cqrepl.queue.files.chroniclemarks import ChronicleMarks
from cqrepl.queue.files.locks import UNLOCKED, WordLock, is_alive
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.queue import Queue

_KEY: Final = "cqrepl.backCopy.lock"


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
    if marked == UNLOCKED or (marked != os.getpid() and is_alive(marked)):
        return False
    with Queue.open_for_append(path) as queue:
        mark, lock = back_copy_lock(queue), queue.append_lock
        was_held = mark.holder() is not None and mark.holder() == lock.holder()
        if was_held:
            lock.release_dead()
        mark.release_dead()
        return was_held and lock.holder() is None
