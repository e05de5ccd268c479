"""Tells readers whether a queue has lost its end. Knows nothing of Spark.

Theory of operation. A queue without its last file, or with a shorter one, looks like one that is
behind. The notes of writers and replication tell the difference (`inspection.lostend`). A reader
that is to read all of such a queue must not end as if that were all. A process that takes a tail
off a queue in use changes files and notes one after the other, so a lost end is looked at once more
after a while. A repair that gives up the last file leaves `synced.cqmark` as it was: that mark
alone tells of no file.
"""

import time
from typing import Final

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME
from cqrepl.queue.format.index import INDEX_MAX, Index
from cqrepl.queue.inspection.lostend import LostEnd, lost_end

_LOOK_PAUSE_S: Final = 0.5


def confirmed_lost_end(cycles: Cycles) -> LostEnd | None:
    """The end that a queue is known to have had and has lost; None where nothing is lost. A last
    store file that a writer is just making is no lost end.

    Raises:
        QueueError: the last store file is damaged, or the directory cannot be read.
        OSError: the notes of the queue cannot be read.
    """
    if _found(cycles) is None:
        return None
    time.sleep(_LOOK_PAUSE_S)
    return _found(cycles)


def check_end(queue: Queue, index_to: int = INDEX_MAX) -> None:
    """Does nothing where a queue has lost nothing at its end, up to an index.

    Raises:
        QueueDamaged: it has.
    """
    lost = confirmed_lost_end(queue.cycles)
    if lost is not None and lost.index <= index_to:
        raise QueueDamaged(
            f"{lost.what}; what was there from {lost.index:#x} on is unknown",
            path=lost.path,
            index=Index(lost.index),
        )


def _found(cycles: Cycles) -> LostEnd | None:
    lost = lost_end(cycles, making_s=0, if_promised=True)
    is_of_repair = lost is not None and SYNCED_FILE_NAME in lost.what and not cycles.has(lost.cycle)
    return None if is_of_repair else lost
