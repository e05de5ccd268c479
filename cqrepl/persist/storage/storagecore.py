"""The part below sequences and queues: what numbers, writes and reads, replicated or local."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from cqrepl.persist.storage.records import StorageRecord
from cqrepl.persist.storage.storagenumbers import Head, Numberer
from cqrepl.replicator.leadership import Leading


class WrittenRecord(NamedTuple):
    """A record that is in the log.

    Args:
        ref: the index of its excerpt.
        leading: that it was written with; waits go there.
    """

    record: StorageRecord
    ref: int
    leading: Leading | None


class StorageCore(Protocol):
    """The log of storages, and their state. All without `_task` is for threads."""

    def write(self, make: Callable[[Numberer], StorageRecord | None]) -> WrittenRecord | None:
        """Appends the record that `make` numbers; None where it makes none.

        Raises:
            NotLeader: this host does not lead, or leads no longer.
            QueueError, OSError: it could not be appended, or that is not known.
            PersistError, ValueError: as `make`.
        """

    def settle(self, written: WrittenRecord, name: str, timeout_s: float) -> bool:
        """Waits until backups have applied a record; False where the time is over.

        Raises:
            NotLeader: this host leads no longer, and it is not known whether hosts have it.
        """

    async def settle_task(self, written: WrittenRecord, name: str, timeout_s: float) -> bool:
        """The same in a task."""

    def head(self, id_: int) -> Head | None:
        """The numbers of a storage; None where there is none.

        Raises:
            StorageDamaged: it takes no more.
        """

    def read(self, id_: int, first: int, last: int) -> list[bytes]:
        """Items, by their logical indexes.

        Raises:
            Gone: one of them is not there.
            QueueError, OSError: the log cannot be read.
        """

    async def read_task(self, id_: int, first: int, last: int) -> list[bytes]:
        """The same in a task."""

    def note_timeout(self, id_: int, timeout_s: float) -> None:
        """A program has opened a storage, whose writes wait so long."""

    def now(self) -> int:
        """The time of a reset, ms since 1970."""
