"""Access that all writers of one open queue share: the table store, its listing and its locks."""

from typing import Final

from cqrepl.queue.files.chroniclemarks import ACKNOWLEDGED_KEY, SENT_KEY, SYNCED_KEY
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WRITE_LOCK_KEY, WordLock
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.write.appender import WRITE_LOCK_TIMEOUT_S

_MARK_NONE: Final = -1


class Writing:
    """A queue's table store, open for writing."""

    def __init__(self, table: TableStore, cycles: Cycles) -> None:
        """Does what every writer does first: keys, listing, a dead writer's lock.

        Raises:
            QueueLocked: another process keeps the write lock.
        """
        self.listing = Listing(table)  # Java adds its keys in this order
        self.write_lock = WordLock(table, WRITE_LOCK_KEY)
        self.append_lock = WordLock(table, APPEND_LOCK_KEY)
        for key in (SENT_KEY, ACKNOWLEDGED_KEY, SYNCED_KEY):
            table.value(key, _MARK_NONE)
        with self.write_lock.held(WRITE_LOCK_TIMEOUT_S):
            self.listing.renew(cycles.listing())
        self.table = table

    def close(self) -> None:
        """Gives back what locks are held, and closes the table store.

        An append that a signal ended just as it had the write lock has not given that back.

        Raises:
            QueueError: another process took a lock away by force.
        """
        try:
            for lock in (self.write_lock, self.append_lock):
                if lock.is_held:
                    lock.release()
        finally:
            self.table.close()
