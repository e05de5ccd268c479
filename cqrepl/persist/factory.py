"""The factory of storages, and the holder that a program gets it from."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar

from cqrepl.persist.errors import NoRole, StorageDamaged
from cqrepl.persist.storage.records import StorageKind, check_storage_name, correlation_id
from cqrepl.persist.storage.storagecore import StorageCore
from cqrepl.persist.storage.storagenumbers import check_same
from cqrepl.persist.storage.storages import (
    ItemSerializer,
    PersistentQueue,
    PersistentSequence,
    StorageAt,
)

TIMEOUT_MAX_SECONDS: Final = 3600.0
T = TypeVar("T")


class PersistenceFactory:
    """Makes sequences and queues by their names; a name gives the same one each time.

    Args:
        timeout_s: of storages that are given none.
    """

    def __init__(self, core: StorageCore, timeout_s: float = 0.0) -> None:
        self._core = core
        self._timeout_s = _checked(timeout_s)
        self._guard = threading.Lock()
        self._made: dict[str, PersistentQueue[Any] | PersistentSequence[Any]] = {}

    def set_sync_mode(self, timeout: float) -> None:
        """Storages that are made from now on wait so many seconds for a backup; 0: not at all.

        Raises:
            ValueError: it is no such time.
        """
        self._timeout_s = _checked(timeout)

    def get_or_create_queue(
        self, name: str, serializer: ItemSerializer[T], timeout: float | None = None
    ) -> PersistentQueue[T]:
        """The queue of a name.

        Args:
            timeout: seconds that each write waits for a backup; 0: not at all; None: as
                `set_sync_mode` says.

        Raises:
            OtherKind: the name is that of a sequence.
            NotLeader: it is not there, and this host, which does not lead, cannot make it.
            ValueError: bad name or time.
            QueueError, OSError: it could not be written.
        """
        with self._guard:
            found = self._made.get(name)
            if not isinstance(found, PersistentQueue):
                found = PersistentQueue(self._at(StorageKind.QUEUE, name, serializer, timeout))
                self._made[name] = found
            return found

    def get_or_create_sequence(
        self,
        name: str,
        indexer: Callable[[T], int] | None,
        serializer: ItemSerializer[T],
        timeout: float | None = None,
        *,
        on_gap: Literal["refuse", "report"] = "refuse",
        on_report: Callable[[int, int], None] = lambda expected, got: None,
    ) -> PersistentSequence[T]:
        """The sequence of a name.

        Args:
            indexer, on_gap, on_report: see `PersistentSequence`.
            timeout: as of a queue.

        Raises:
            OtherKind, NotLeader, ValueError, QueueError, OSError: as `get_or_create_queue`.
        """
        with self._guard:
            found = self._made.get(name)
            if not isinstance(found, PersistentSequence):
                at = self._at(StorageKind.SEQUENCE, name, serializer, timeout)
                found = PersistentSequence(at, indexer, on_gap, on_report)
                self._made[name] = found
            return found

    def build_queue(self, name: str, serializer: ItemSerializer[T]) -> PersistentQueue[T]:
        """The queue of a name, as `set_sync_mode` says."""
        return self.get_or_create_queue(name, serializer)

    def build_sequence(
        self, name: str, indexer: Callable[[T], int] | None, serializer: ItemSerializer[T]
    ) -> PersistentSequence[T]:
        """The sequence of a name, as `set_sync_mode` says."""
        return self.get_or_create_sequence(name, indexer, serializer)

    def _at(
        self, kind: StorageKind, name: str, serializer: ItemSerializer[T], timeout: float | None
    ) -> StorageAt[T]:
        check_storage_name(name)
        timeout_s = self._timeout_s if timeout is None else _checked(timeout)
        id_ = correlation_id(name)
        with suppress(StorageDamaged):  # each call but a reset will say so
            head = self._core.head(id_)
            if head is None:
                self._core.write(lambda numbering: numbering.create(kind, name))
            else:
                check_same(head, kind, name)
        self._core.note_timeout(id_, timeout_s)
        return StorageAt(
            core=self._core, id=id_, name=name, serializer=serializer, timeout_s=timeout_s
        )


class ReplicatedPersistenceFactory(PersistenceFactory):
    """The factory of one group of a host."""


class ReplicatedPersistenceFactoryHolder:
    """The factory of this process, once a host of it has begun with its group."""

    _factories: Final[dict[str, PersistenceFactory]] = {}

    @classmethod
    def get_factory(cls, group: str | None = None) -> PersistenceFactory:
        """The factory of a group; of the only one, where none is named.

        Raises:
            NoRole: there is none yet, or several and none was named.
        """
        factories = dict(cls._factories)
        if group is None and len(factories) == 1:
            return next(iter(factories.values()))
        if group is None:
            known = ", ".join(sorted(factories)) or "none"
            raise NoRole(f"expected one group with storages in this process, got {known}")
        if group not in factories:
            raise NoRole(f"group {group!r}: no host of this process has begun with it")
        return factories[group]

    @classmethod
    def put(cls, group: str, factory: PersistenceFactory) -> None:
        """A host has begun with a group.

        Raises:
            ValueError: another one of this process has it.
        """
        if group in cls._factories:
            raise ValueError(f"group {group!r}: expected one host of it in a process, got two")
        cls._factories[group] = factory

    @classmethod
    def take_back(cls, group: str) -> None:
        """It has ended."""
        cls._factories.pop(group, None)


def _checked(timeout: float) -> float:
    if not 0 <= timeout <= TIMEOUT_MAX_SECONDS:
        raise ValueError(f"expected 0 to {TIMEOUT_MAX_SECONDS:g} seconds, got {timeout!r}")
    return float(timeout)
