"""A session: transactions of one program over the maps of a map set.

Theory of operation. A transaction keeps its changes here until it commits, and then sends them at
once, with the versions of all that it has read in that partition: under optimistic locks they are
compared there, so what it has seen is what it changes. Under pessimistic locks each read locks the
entry where the partition is led. A transaction that writes keeps to one partition; one that only
reads need not.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Protocol, Self

from cqrepl.grid.errors import Conflict, CrossPartition, GridRefused
from cqrepl.grid.gridsettings import GridSettings, Locks, MapSettings
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.gridwords import ABSENT, PRESENT, Change, GridEntry, MapOp, Read
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token

_GONE: Final = object()


class Store(Protocol):
    """The partitions, as a session has them: of this process, or of hosts.

    Args:
        settings: of the map set.
        codec: for keys and values.
    """

    settings: GridSettings
    codec: ValueCodec

    def new_owner(self) -> int:
        """A number for the locks of one transaction."""

    def get(
        self, owner: int, partition: int, name: str, key: bytes, *, lock: bool
    ) -> GridEntry | None:
        """An entry; None for none.

        Args:
            lock: it stays locked until `release` or `commit`.

        Raises:
            LockTimeout: another transaction has it.
        """

    def rows(self, partition: int, name: str) -> Iterator[tuple[bytes, GridEntry]]:
        """All entries of a map in a partition, as they were at one time."""

    def commit(self, owner: int, request: TxRequest, *, write_through: bool) -> Token | None:
        """Commits, and gives back all locks; None where nothing was written.

        Raises:
            Conflict, LockTimeout, GridRefused, LoaderError: nothing is committed.
            OutcomeUnknown: that is not known.
        """

    def release(self, owner: int) -> None:
        """Gives back all locks."""


class GridSession:
    """Transactions, one after the other; for one thread at a time. As a context manager it is one
    transaction, which commits at the end of the block, or rolls back where that raises.

    Args:
        write_through: false: loaders are told nothing of the changes, as they come from there.

    Attributes:
        token: of the last commit; None: it has written nothing.
    """

    def __init__(self, store: Store, *, write_through: bool = True) -> None:
        self.token: Token | None = None
        self._store = store
        self._write_through = write_through
        self._owner: int | None = None  # of the transaction that was begun
        self._changes: list[Change] = []
        self._own: dict[tuple[str, bytes], bytes | None] = {}  # as its changes have it
        self._cleared: set[str] = set()
        self._reads: dict[tuple[int, str, bytes], int] = {}
        self._partition: int | None = None  # that it writes to

    def map(self, name: str) -> "GridMap":
        """A map of the map set.

        Raises:
            GridRefused: it has none of this name.
        """
        return GridMap(self, name, self._store.settings.map(name))

    @property
    def store(self) -> Store:
        """The partitions that it works on."""
        return self._store

    @property
    def is_active(self) -> bool:
        """True between `begin` and the end of that transaction."""
        return self._owner is not None

    def begin(self) -> None:
        """Begins a transaction.

        Raises:
            GridRefused: one was begun.
        """
        if self._owner is not None:
            raise GridRefused("expected a session without a transaction, got one with one")
        self._owner = self._store.new_owner()

    def commit(self) -> Token | None:
        """Commits what was begun: returns when each synchronous replica has it. The token for
        readers that are to see it; None where nothing was written.

        Raises:
            Conflict, LockTimeout, LoaderError, GridRefused: nothing is committed.
            OutcomeUnknown: that is not known.
        """
        if self._owner is None:
            raise GridRefused("expected a session with a transaction, got one without")
        owner, changes = self._owner, self._changes
        reads = [
            Read(name, key, version)
            for (partition, name, key), version in self._reads.items()
            if partition == self._partition
        ]
        partition = self._partition
        self._forget()
        if partition is None:
            self._store.release(owner)
            return None
        request = TxRequest(partition, changes, reads)
        token = self._store.commit(owner, request, write_through=self._write_through)
        self.token = token or self.token
        return token

    def rollback(self) -> None:
        """Ends what was begun: nothing of it is written."""
        if self._owner is not None:
            owner = self._owner
            self._forget()
            self._store.release(owner)

    def _forget(self) -> None:
        self._owner = self._partition = None
        self._changes, self._own, self._cleared, self._reads = [], {}, set(), {}

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._owner is None:  # the block has ended it
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    # ---- for maps ------------------------------------------------------------------------------

    def read(self, name: str, partition: int, key: bytes, *, lock: bool) -> bytes | None:
        """The bytes of a value, as this transaction sees it; None for no entry."""
        if partition == self._partition:
            own = self._own.get((name, key), _GONE)
            if own is not _GONE:
                assert own is None or isinstance(own, bytes)
                return own
            if name in self._cleared:
                return None
        owner = self._store.new_owner() if self._owner is None else self._owner
        entry = self._store.get(owner, partition, name, key, lock=lock and self._owner is not None)
        if self._owner is None:
            return None if entry is None else entry.value
        self._check_partition(partition, name, is_write=False)
        version = ABSENT if entry is None else entry.version
        if self._reads.setdefault((partition, name, key), version) not in (version, PRESENT):
            raise Conflict(f"map {name!r}: expected the entry that was read before, got another")
        return None if entry is None else entry.value

    def write(self, partition: int, change: Change, expected: int | None = None) -> None:
        """Takes one change.

        Args:
            expected: the version of the entry that has to be there; None for any or none.
        """
        if self._owner is None:
            with self:
                self.write(partition, change, expected)
            return
        self._check_partition(partition, change.map, is_write=True)
        place = change.map, change.key
        if expected is not None:
            self._expect(partition, place, expected)
        self._changes.append(change)
        if change.op is MapOp.CLEAR:
            self._cleared.add(change.map)
            self._own = {at: own for at, own in self._own.items() if at[0] != change.map}
        else:
            self._own[place] = change.value if change.op is MapOp.PUT else None

    def _expect(self, partition: int, place: tuple[str, bytes], expected: int) -> None:
        if place in self._own or place[0] in self._cleared:
            is_there = self._own.get(place) is not None
            if is_there != (expected == PRESENT):
                raise Conflict(_unexpected(place[0], is_there=is_there), map_name=place[0])
            return
        version = self._reads.setdefault((partition, *place), expected)
        if (version == ABSENT) != (expected == ABSENT):
            is_there = version != ABSENT
            raise Conflict(_unexpected(place[0], is_there=is_there), map_name=place[0])

    def _check_partition(self, partition: int, name: str, *, is_write: bool) -> None:
        others = {self._partition} if self._partition is not None else set()
        if is_write and self._partition is None:
            others = {each for each, _, _ in self._reads}
        if others - {partition}:
            first = min(each for each in others - {partition} if each is not None)
            raise CrossPartition(
                f"expected a transaction in one partition, got partition {first}, and partition"
                f" {partition} with map {name!r}"
            )
        if is_write:
            self._partition = partition


class GridMap:
    """One map, as a session sees it. Made by `GridSession.map`.

    Without a transaction each call is one of its own.
    """

    def __init__(self, session: GridSession, name: str, settings: MapSettings) -> None:
        self.name = name
        self._session = session
        self._store = session.store
        self._is_pessimistic = settings.locks is Locks.PESSIMISTIC

    def get(self, key: object, otherwise: object = None, *, partition: int | None = None) -> object:
        """The value of a key; `otherwise` where there is none.

        Args:
            partition: that it was put to, where its key does not decide.
        """
        at, data = self._place(key, partition)
        value = self._session.read(self.name, at, data, lock=self._is_pessimistic)
        return otherwise if value is None else self._store.codec.loads(value)

    def put(self, key: object, value: object, *, partition: int | None = None) -> None:
        """Sets the value of a key, whether it has one or not."""
        self._write(MapOp.PUT, key, value, partition, None)

    upsert = put

    def insert(self, key: object, value: object, *, partition: int | None = None) -> None:
        """Sets the value of a key that has none; else the commit ends as `Conflict`."""
        self._write(MapOp.PUT, key, value, partition, ABSENT)

    def update(self, key: object, value: object, *, partition: int | None = None) -> None:
        """Sets the value of a key that has one; else the commit ends as `Conflict`."""
        self._write(MapOp.PUT, key, value, partition, PRESENT)

    def remove(self, key: object, *, partition: int | None = None) -> None:
        """Removes a key, if it is there."""
        at, data = self._place(key, partition)
        self._lock(at, data)
        self._session.write(at, Change(MapOp.REMOVE, self.name, data))

    def clear(self, partition: int | None = None) -> None:
        """Removes all keys of a partition; None: of each, by one transaction each.

        Raises:
            GridRefused: of each, within a transaction; or there is no such partition.
        """
        if partition is not None:
            self._check(partition)
            self._session.write(partition, Change(MapOp.CLEAR, self.name))
            return
        if self._session.is_active:
            raise GridRefused("expected the partition to clear in a transaction, got none")
        for each in range(self._store.settings.partitions):
            self._session.write(each, Change(MapOp.CLEAR, self.name))

    def scan(self, partition: int) -> Iterator[tuple[object, object]]:
        """All keys of a partition with their values, as they were committed last, at one time. The
        changes of this transaction are not among them."""
        self._check(partition)
        loads = self._store.codec.loads
        for key, entry in self._store.rows(partition, self.name):
            yield loads(key), loads(entry.value)

    def _write(
        self, op: MapOp, key: object, value: object, partition: int | None, expected: int | None
    ) -> None:
        at, data = self._place(key, partition)
        change = Change(op, self.name, data, self._store.codec.value(value))
        self._lock(at, data)
        self._session.write(at, change, expected)

    def _lock(self, partition: int, key: bytes) -> None:
        if self._is_pessimistic and self._session.is_active:
            self._session.read(self.name, partition, key, lock=True)

    def _place(self, key: object, partition: int | None) -> tuple[int, bytes]:
        if partition is None:
            partition = self._store.settings.partition(self.name, key)
        else:
            self._check(partition)
        return partition, self._store.codec.key(key)

    def _check(self, partition: int) -> None:
        last = self._store.settings.partitions - 1
        if not 0 <= partition <= last:
            raise GridRefused(f"expected a partition from 0 to {last}, got {partition}")


def _unexpected(name: str, *, is_there: bool) -> str:
    found = "one" if is_there else "none"
    return f"map {name!r}: expected {'no' if is_there else 'an'} entry of a key, got {found}"
