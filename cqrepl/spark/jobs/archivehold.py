"""Retention waits for an archive: a queue names it among its readers. Knows nothing of Spark.

The reader `archive DIRECTORY` stands at the first excerpt that is not in the archive for good, so
that `cqrepl gc` keeps its cycle and all behind it. A cycle counts when it is archived as closed.
"""

from collections.abc import Sequence

from cqrepl.queue import Queue
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.index import INDEX_MAX, Index, cycle_of
from cqrepl.queue.read.registration import Readers, registered_readers
from cqrepl.spark.jobs.archivefiles import ArchivedCycle
from cqrepl.spark.ranges import present


def reader_name(archive: str) -> str:
    """The name of the registered reader that stands for an archive in the queue's table store."""
    return f"archive {archive}"


def is_held(queue: Queue, archive: str) -> bool:
    """True when the queue names the archive."""
    try:
        table = TableStore(queue.cycles.table_path, writable=False)
    except FileNotFoundError:
        return False
    try:
        return reader_name(archive) in registered_readers(table)
    finally:
        table.close()


def hold(queue: Queue, archive: str, cycles: Sequence[ArchivedCycle]) -> int:
    """Has retention keep what is not in an archive that holds these cycles; the first such index.

    An archive that was begun anew holds less than before, so the position may go back, too.

    Raises:
        QueueError: the archive's path is too long for a reader's name, or there is no room for it.
        OSError: the queue's table store may not be written.
    """
    wanted = _first_missing(queue, cycles)
    readers, name = Readers(queue.cycles), reader_name(archive)
    if readers.register(name, wanted) > wanted:
        readers.unregister(name)
        readers.register(name, wanted)
    readers.advance(name, wanted)
    return wanted


def release(queue: Queue, archive: str) -> bool:
    """Retention waits for the archive no longer; false when it did not.

    Raises:
        OSError: the queue's table store may not be written.
    """
    return is_held(queue, archive) and Readers(queue.cycles).unregister(reader_name(archive))


def _first_missing(queue: Queue, cycles: Sequence[ArchivedCycle]) -> int:
    closed = {cycle.cycle: cycle.index_last for cycle in cycles if cycle.is_closed}
    for one in present(queue, 0, INDEX_MAX):
        cycle = cycle_of(Index(one.index_first), queue.cycles.shift)
        if closed.get(cycle, -1) < one.index_last:
            return one.index_first
    return queue.next_index()
