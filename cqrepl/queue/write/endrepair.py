"""Closes a cycle that a dead writer left open, for a tailer that waits in it.

A repair takes the write lock, which a busy writer holds, looks again, and closes the file behind
its true end as an appender does. While another living process keeps the append lock, the queue is
a replica that its sink completes, and is left alone.
"""

from typing import Final

from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WRITE_LOCK_KEY, WordLock, is_held_elsewhere
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.errors import QueueLocked
from cqrepl.queue.read.stall import Stall, with_excerpts_above
from cqrepl.queue.write.storewriter import StoreWriter
from cqrepl.queue.write.writerterms import WriterTerms

_LOCK_TIMEOUT_S: Final = 0.1  # a repair blocks the reader: writers take the lock only for moments


class EndRepair:
    """The permission to close cycles that dead writers left open, for one queue."""

    def __init__(self, cycles: Cycles) -> None:
        self._cycles = cycles

    def __call__(self, stall: Stall) -> bool:
        """Closes the cycle; false when that is not to be done now.

        Raises:
            QueueDamaged: the end of the file cannot be trusted.
        """
        if is_held_elsewhere(self._cycles.table_path, APPEND_LOCK_KEY):
            return False
        try:
            table = TableStore(self._cycles.table_path, writable=True)
        except (FileNotFoundError, PermissionError):
            return False
        try:
            with WordLock(table, WRITE_LOCK_KEY).held(_LOCK_TIMEOUT_S):
                return self._end(stall, table)
        except (QueueLocked, FileNotFoundError, PermissionError):
            return False
        finally:
            table.close()

    def _end(self, stall: Stall, table: TableStore) -> bool:
        """The same, under the write lock."""
        if with_excerpts_above(self._cycles, stall.cycle) is None:
            return False
        terms = WriterTerms(
            sequence_end=1 << self._cycles.shift,
            commits=None,
            is_restarted=False,
            synced=-1,
            closed=self._cycles.closed,
        )
        writer = StoreWriter.open(stall.path, stall.cycle, terms)
        if writer is None:  # it never had a header, and has been renamed
            Listing(table).renew(self._cycles.listing())
            return True
        try:
            writer.end()
        finally:
            writer.close()
        return True
