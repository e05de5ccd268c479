"""The replication marks in a table store: the greatest indexes sent, acknowledged and synced.

Java's readers may wait for them (`readAfterReplicaAcknowledged`). That of what is synced is for
Java alone: Java raises it for what it has only passed to the system, so nothing here believes it
(`syncedmark`, and `listing` for what our appenders have made durable). They are raised by
compare-and-set, and lowered only where the queue has lost its end. The queue of a source is
otherwise only read, so its table store is opened for writing here, at the first mark; where that is
not possible, marks are not kept, and the answer is false: replication goes on without.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cqrepl.queue.files import atomics
from cqrepl.queue.files.tablestore import TableStore, TableValue
from cqrepl.queue.format.errors import QueueError

SENT_KEY: Final = "chronicle.lastIndexReplicated"
ACKNOWLEDGED_KEY: Final = "chronicle.lastAcknowledgedIndexReplicated"
SYNCED_KEY: Final = "chronicle.lastIndexMSynced"
OWN_SYNCED_KEY: Final = "cqrepl.synced"  # what our appenders have made durable
FOLLOWER_KEY: Final = "cqrepl.follower"  # 1: it is taken in from a source; -1: it is not
FOLLOWS: Final = 1
FILE_KEY: Final = "cqrepl.lastFile"  # which store file its host saw last; see `Queue.note_file`
BEGIN_KEY: Final = "cqrepl.begin"  # of a quarantine: the first index that was taken off
FIRST_KEY: Final = "cqrepl.firstCycle"  # the lowest cycle that its source knew; see `latecycles`
COPY_OF_KEY: Final = "cqrepl.copyOf"  # the id of the host that it was taken in from last
LEADS_KEY: Final = "cqrepl.leads"  # until when its host leads it by an election; 0: it does not
_INITIAL: Final = -1


class ChronicleMarks:
    """The marks of one queue."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: TableStore | None = None
        self._is_writable = True
        self._values: dict[str, TableValue] = {}

    def load(self, key: str, default: int) -> int:
        """The mark now; `default` where it is not kept."""
        if key in self._values:
            return self._values[key].load()
        with self.read() as table:
            value = None if table is None else table.find(key)
            return default if value is None else value.load()

    def raise_to(self, key: str, index: int) -> bool:
        """Makes the mark at least `index`; false where marks cannot be kept."""
        value = self._value(key)
        if value is None:
            return False
        value.raise_to(index)
        return True

    def word(self, key: str) -> TableValue | None:
        """The mark where it stands, until `close`; None where marks cannot be kept."""
        return self._value(key)

    def store(self, key: str, number: int) -> bool:
        """Makes a number what it is to be; false where marks cannot be kept."""
        value = self._value(key)
        if value is None:
            return False
        value.store(number)
        return True

    def store_within(self, key: str, number: int, end_max: int) -> bool:
        """The same of a number that is 0 where it is not kept; false also where its key would end
        behind `end_max`."""
        if key not in self._values and (table := self.table()) is not None:
            with suppress(OSError, QueueError):  # it is full, or another process keeps its lock
                value = table.value_within(key, 0, end_max) if number else table.find(key)
                if value is not None:
                    self._values[key] = value
        return key in self._values and self.store(key, number)

    def lower_to(self, key: str, index: int) -> bool:
        """Makes the mark at most `index`; false where marks cannot be kept."""
        value = self._value(key)
        if value is None:
            return False
        value.lower_to(index)
        return True

    @contextmanager
    def read(self) -> Iterator[TableStore | None]:
        """The table store for the length of a block: that which is open for writing, else opened
        anew; None where there is none.

        Raises:
            OSError, QueueError: it cannot be opened.
        """
        if self._table is not None:
            yield self._table
            return
        try:
            table = TableStore(self._path, writable=False)
        except FileNotFoundError:
            yield None
            return
        try:
            yield table
        finally:
            table.close()

    def table(self) -> TableStore | None:
        """The table store, opened for writing; None where marks cannot be kept."""
        if self._table is None and self._is_writable:
            try:
                atomics.require()
                self._table = TableStore(self._path, writable=True)
            except (OSError, QueueError):
                self._is_writable = False  # no table store, read-only, or no atomics
        return self._table

    def close(self) -> None:
        """Closes the table store; from now on no mark is raised or lowered."""
        self._is_writable = False
        if self._table is not None:
            self._table.close()
        self._table = None
        self._values.clear()

    def _value(self, key: str) -> TableValue | None:
        if key not in self._values and self._is_writable and (table := self.table()) is not None:
            try:
                self._values[key] = table.value(key, _INITIAL)
            except (OSError, QueueError):
                self._is_writable = False  # it is full, or another process keeps its lock
        return self._values.get(key)
