"""Storages in one directory of this machine, without any network: the same records, one log."""

import fcntl
import logging
import os
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from cqrepl.net.threads import in_thread
from cqrepl.persist.errors import PersistError
from cqrepl.persist.factory import PersistenceFactory
from cqrepl.persist.storage.logreader import LogReader
from cqrepl.persist.storage.records import StorageRecord, decode_record, id_in
from cqrepl.persist.storage.storagecore import WrittenRecord
from cqrepl.persist.storage.storagenumbers import Head, Numberer, head_of
from cqrepl.persist.storage.storageservice import item_of
from cqrepl.persist.storage.storagetable import Storage, StorageTable
from cqrepl.queue import ExcerptTooLarge, Queue
from cqrepl.surroundings import surroundings
from wire import WireError

LOCK_NAME: Final = "storages.lock"
ROLL_CYCLE: Final = "FAST_DAILY"
_logger: Final = logging.getLogger(__name__)


class LocalCore:
    """The `StorageCore` of one directory, which one process has at a time.

    Raises:
        PersistError: another process has it.
        QueueError, OSError: it cannot be opened, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._queue = Queue.open_for_append(path, create=ROLL_CYCLE)
        except BlockingIOError:
            os.close(self._lock)
            raise PersistError(f"{path}: another process has these storages open") from None
        except BaseException:
            os.close(self._lock)
            raise
        self._guard = threading.Lock()
        self._is_open = True
        self._table = StorageTable()
        self._log = LogReader(path)
        self._is_unsure = True
        self._numbering: Numberer

    def _load(self) -> None:
        """Makes the state of all that the log has."""
        self._table = StorageTable()
        with closing(self._queue.tailer()) as tailer:
            while (batch := tailer.next_batch()) is not None:
                for index, data in batch:
                    self._take(index, data)
        self._numbering = Numberer(self._table.storages.get, 0)
        self._is_unsure = False

    def _take(self, index: int, data: memoryview | bytes) -> None:
        """Takes a record; one that cannot be read, or does not follow, stops its storage alone."""
        try:
            applied = self._table.apply(index, decode_record(data, with_item=False))
        except WireError as error:
            if not self._table.storages:  # it is the log of something else
                text = f"excerpt {index:#x}: {error}"
                raise PersistError(f"{self._queue.path}: {text}") from error
            storage = self._table.storages.get(id_in(data))
            if storage is not None:
                self._table.damage(storage, str(error), index)
            _log_damage(storage, index, str(error))
            return
        if applied.is_news:
            _log_damage(applied.storage, index, applied.refused)

    def _known(self) -> Numberer:
        if self._is_unsure:
            self._load()
        return self._numbering

    def write(self, make: Callable[[Numberer], StorageRecord | None]) -> WrittenRecord | None:
        """Appends the record that `make` numbers."""
        with self._guard:
            record = make(self._known())
            if record is None:
                return None
            data = record.encoded()
            self._is_unsure = True  # an append that fails may have landed
            try:
                ref = self._queue.append(data)
            except ExcerptTooLarge as error:
                raise ValueError(str(error)) from error
            self._table.apply(ref, record)
            self._numbering.take(record, ref)
            self._is_unsure = False
            return WrittenRecord(record, ref, None)

    def settle(self, written: WrittenRecord, name: str, timeout_s: float) -> bool:
        """There is no backup: it is written, and not known to be anywhere else."""
        return False

    async def settle_task(self, written: WrittenRecord, name: str, timeout_s: float) -> bool:
        """The same in a task."""
        return False

    def head(self, id_: int) -> Head | None:
        """The numbers of a storage; None where there is none."""
        with self._guard:
            self._known()
            storage = self._table.storages.get(id_)
            return None if storage is None else head_of(storage)

    def read(self, id_: int, first: int, last: int) -> list[bytes]:
        """Items, by their logical indexes."""
        with self._guard:
            self._known()
            storage = self._table.storages[id_]
            storage.check(first, last)
            found = self._log.read(storage.refs(first, last))
            return [item_of(data, id_, first + n, storage.name) for n, data in enumerate(found)]

    async def read_task(self, id_: int, first: int, last: int) -> list[bytes]:
        """The same in a task."""
        return await in_thread(partial(self.read, id_, first, last))

    def note_timeout(self, id_: int, timeout_s: float) -> None:
        """Nothing asks for it here."""

    def now(self) -> int:
        """The time of a reset, ms since 1970."""
        return surroundings().wall_ms()

    def close(self) -> None:
        """Lets go of the directory."""
        with self._guard:
            if self._is_open:
                self._is_open = False
                self._log.close()
                self._queue.close()
                os.close(self._lock)


def _log_damage(storage: Storage | None, index: int, why: str) -> None:
    name = "of no storage that is known" if storage is None else f"of {storage.name!r}"
    _logger.error("a record %s cannot be taken, excerpt %#x: %s", name, index, why)


class LocalPersistenceFactory(PersistenceFactory):
    """Sequences and queues in one directory; nothing is sent anywhere.

        factory = LocalPersistenceFactory("storages")
        orders = factory.get_or_create_queue("orders", StringSerializer())
        orders.append("buy 100")

    Raises:
        PersistError: another process has the directory open.
        QueueError, OSError: it cannot be opened, or holds something else.
    """

    def __init__(self, path: Path | str) -> None:
        self._local = LocalCore(Path(path))
        super().__init__(self._local)

    def close(self) -> None:
        """Lets go of the directory; its storages are not used any more."""
        self._local.close()

    def __enter__(self) -> "LocalPersistenceFactory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
