"""Sequences and queues as a program has them.

All calls are for threads, and may wait; those that end in `_task` are for tasks of trio.
"""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from cqrepl.net.threads import in_thread
from cqrepl.persist.errors import Gone, NotNext
from cqrepl.persist.storage.records import StorageRecord
from cqrepl.persist.storage.storagecore import StorageCore, WrittenRecord
from cqrepl.persist.storage.storagenumbers import Head, Numberer
from cqrepl.protocol.programfault import Contained

_AT_ONCE: Final = 32  # items, of up to 16 MiB, that are read in one step
_logger: Final = logging.getLogger(__name__)
T = TypeVar("T")


class ItemSerializer(Protocol[T]):
    """Turns items into bytes and back."""

    def encode(self, item: T, /) -> bytes:
        """The bytes of an item."""

    def decode(self, data: bytes, /) -> T:
        """The item of these bytes."""


class StringSerializer:
    """Texts, as UTF-8."""

    def encode(self, item: str, /) -> bytes:
        """The bytes of an item."""
        return item.encode()

    def decode(self, data: bytes, /) -> str:
        """The item of these bytes."""
        return data.decode()


class BytesSerializer:
    """Bytes, as they are."""

    def encode(self, item: bytes, /) -> bytes:
        """The bytes of an item."""
        return item

    def decode(self, data: bytes, /) -> bytes:
        """The item of these bytes."""
        return data


class JsonSerializer:
    """Values as JSON has them."""

    def encode(self, item: Any, /) -> bytes:
        """The bytes of an item."""
        return json.dumps(item, separators=(",", ":")).encode()

    def decode(self, data: bytes, /) -> Any:
        """The item of these bytes."""
        return json.loads(data)


class StoredIndex(int):
    """The logical index of what an append or a removal was about.

    Attributes:
        is_acked: as many backups as the policy of the group wants have applied it. False where that
            is not known: the time is over, or the storage is asynchronous.
    """

    is_acked: bool

    def __new__(cls, index: int, *, is_acked: bool) -> "StoredIndex":
        stored = super().__new__(cls, index)
        stored.is_acked = is_acked
        return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAt(Generic[T]):
    """The place of a storage.

    Args:
        timeout_s: so long a write waits for backups; 0: not at all.
    """

    core: StorageCore
    id: int
    name: str
    serializer: ItemSerializer[T]
    timeout_s: float = 0.0

    def head(self) -> Head:
        """Its numbers now."""
        head = self.core.head(self.id)
        assert head is not None, "it was created first"
        return head

    def encoded(self, item: T) -> bytes:
        """The bytes of an item.

        Raises:
            TypeError: the serializer gives no bytes.
        """
        data: object = self.serializer.encode(item)
        if not isinstance(data, bytes):
            given = type(data).__name__
            raise TypeError(f"storage {self.name!r}: expected bytes of its serializer, got {given}")
        return data

    def write(
        self, make: Callable[[Numberer], StorageRecord | None], index: int = 0
    ) -> StoredIndex:
        """Writes what `make` numbers, and waits."""
        written = self.core.write(make)
        if written is None:
            return StoredIndex(index, is_acked=False)
        waits = self.timeout_s > 0
        return self._stored(written, waits and self.core.settle(written, self.name, self.timeout_s))

    async def write_task(
        self, make: Callable[[Numberer], StorageRecord | None], index: int = 0
    ) -> StoredIndex:
        """The same in a task."""
        written = await in_thread(partial(self.core.write, make))
        if written is None:
            return StoredIndex(index, is_acked=False)
        is_acked = self.timeout_s > 0 and await self.core.settle_task(
            written, self.name, self.timeout_s
        )
        return self._stored(written, is_acked)

    @staticmethod
    def _stored(written: WrittenRecord, is_acked: bool) -> StoredIndex:
        return StoredIndex(written.record.index, is_acked=is_acked)

    def items(self, first: int, last: int) -> list[T]:
        """Items by their logical indexes."""
        return [self.serializer.decode(each) for each in self.core.read(self.id, first, last)]


class PersistentQueue(Generic[T]):
    """Items in order: added at the end, removed at the front. Made by a factory."""

    def __init__(self, at: StorageAt[T]) -> None:
        self.name = at.name
        self.timeout_s = at.timeout_s
        self._at = at

    def __len__(self) -> int:
        return len(self._at.head())

    def append(self, item: T) -> StoredIndex:
        """Adds an item; its logical index.

        Raises:
            NotLeader: this host does not lead, or no longer: then it is not known whether it is
                there.
            TypeError: the serializer gives no bytes.
            ValueError: they are too many.
            StorageDamaged, QueueError, OSError: the log takes it not, or that is not known.
        """
        return self._at.write(self._adding(item))

    async def append_task(self, item: T) -> StoredIndex:
        """The same in a task."""
        return await self._at.write_task(self._adding(item))

    def remove(self, up_to: int) -> StoredIndex:
        """Items up to this logical index go, as far as they are there.

        Raises:
            Gone: some are yet to come.
            NotLeader, StorageDamaged, QueueError, OSError: as `append`.
        """
        return self._at.write(self._removing(up_to), up_to)

    async def remove_task(self, up_to: int) -> StoredIndex:
        """The same in a task."""
        return await self._at.write_task(self._removing(up_to), up_to)

    def peek(self) -> tuple[int, T] | None:
        """The first item that is there, with its logical index; None where there is none."""
        head = self._at.head()
        return (head.first, self._at.items(head.first, head.first)[0]) if len(head) else None

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """All items that are there now, with their logical indexes; those that are removed
        meanwhile are passed over."""
        head = self._at.head()
        at = head.first
        while at < head.next:
            last = min(at + _AT_ONCE, head.next) - 1
            try:
                found = self._at.items(at, last)
            except Gone as gone:
                at = max(at + 1, gone.first)
                continue
            yield from enumerate(found, at)
            at = last + 1

    def _adding(self, item: T) -> Callable[[Numberer], StorageRecord]:
        data = self._at.encoded(item)
        return lambda numbering: numbering.append(self._at.id, data)

    def _removing(self, up_to: int) -> Callable[[Numberer], StorageRecord | None]:
        return lambda numbering: numbering.remove(self._at.id, up_to)


class PersistentSequence(Generic[T]):
    """Items by their index, all of which go by a reset. Made by a factory.

    Args:
        indexer: the logical index that an item says it has; None: it says none.
        on_gap: an item that says another one than is next is refused; or, with `report`, taken as
            the next one, and then `on_report` is called with what was expected and what came. One
            that raises is logged: the item is there.
    """

    def __init__(
        self,
        at: StorageAt[T],
        indexer: Callable[[T], int] | None = None,
        on_gap: Literal["refuse", "report"] = "refuse",
        on_report: Callable[[int, int], None] = lambda expected, got: None,
    ) -> None:
        self.name = at.name
        self.timeout_s = at.timeout_s
        self._at = at
        self._indexer = indexer
        self._refuses = on_gap == "refuse"
        self._on_report = on_report

    def __len__(self) -> int:
        return len(self._at.head())

    @property
    def next_index(self) -> int:
        """The logical index of the next item."""
        return self._at.head().next

    @property
    def first_index(self) -> int:
        """The logical index of the first item that is there; that of the next one for none."""
        return self._at.head().first

    @property
    def generation(self) -> int:
        """So many resets there were."""
        return self._at.head().gen

    @property
    def reset_at(self) -> int:
        """The time of the last one, ms since 1970; 0 for none."""
        return self._at.head().at

    def append(self, item: T) -> StoredIndex:
        """Adds an item; its logical index.

        Raises:
            NotNext: the item says another index than the next one.
            NotLeader, TypeError, ValueError, StorageDamaged, QueueError, OSError: as
                `PersistentQueue.append`.
        """
        make, others = self._appending(item)
        stored = self._at.write(make)
        self._report(others)
        return stored

    async def append_task(self, item: T) -> StoredIndex:
        """The same in a task."""
        make, others = self._appending(item)
        stored = await self._at.write_task(make)
        if others:
            await in_thread(partial(self._report, others))
        return stored

    def reset(self, next_index: int = 1) -> StoredIndex:
        """All items go; the next one has this logical index.

        Raises:
            ValueError: it is no index.
            NotLeader, StorageDamaged, QueueError, OSError: as `append`.
        """
        return self._at.write(self._resetting(next_index))

    async def reset_task(self, next_index: int = 1) -> StoredIndex:
        """The same in a task."""
        return await self._at.write_task(self._resetting(next_index))

    def read(self, index: int) -> T:
        """One item.

        Raises:
            Gone: it is not there.
            QueueError, OSError: the log cannot be read.
        """
        return self._at.items(index, index)[0]

    def read_range(self, first: int, last: int) -> list[T]:
        """The items from `first` to `last`, with it; none where `last` is below.

        Raises:
            Gone, QueueError, OSError: as `read`.
        """
        return self._at.items(first, last) if first <= last else []

    async def read_task(self, first: int, last: int) -> list[T]:
        """The same in a task."""
        found = await self._at.core.read_task(self._at.id, first, last)
        return [self._at.serializer.decode(each) for each in found]

    def _report(self, others: list[tuple[int, int]]) -> None:
        """The items are there, and no lock is held: the program may call what it likes."""
        told = partial(_logger.error, "storage %r: its on_report has failed: %r", self.name)
        for expected, got in others:
            with Contained(told):
                self._on_report(expected, got)

    def _appending(
        self, item: T
    ) -> tuple[Callable[[Numberer], StorageRecord], list[tuple[int, int]]]:
        """Numbers an item; and the other index that it says, once it has been numbered."""
        data = self._at.encoded(item)
        said = None if self._indexer is None else self._indexer(item)
        others: list[tuple[int, int]] = []

        def make(numbering: Numberer) -> StorageRecord:
            record = numbering.append(self._at.id, data)
            if said is not None and said != record.index:
                if self._refuses:
                    raise NotNext(self.name, record.index, said)
                others.append((record.index, said))
            return record

        return make, others

    def _resetting(self, next_index: int) -> Callable[[Numberer], StorageRecord]:
        now = self._at.core.now()
        return lambda numbering: numbering.reset(self._at.id, next_index, now)
