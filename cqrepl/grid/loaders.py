"""Loaders: they fill the maps of a map set from a back end, and keep that up to date.

Theory of operation. Each map may have a loader. It fills the map (`preload_map`) in the primary
alone; replicas get what it puts by the log. Later changes go to it before the record is written
(`apply`), and are committed there once the replicas have the record (`TransactionCallback.commit`).

A host that comes to lead goes through these steps in each partition:

    open transactions, first in first out: `apply`, then `commit`, each on its own; one that fails
    is rolled back and leaves the others alone
    `check_preload_status` of each map that has a loader with it, in declared order; then, by its
    answer: nothing; a clear and `preload_map`; `preload_map` alone

So a loader that is told to `apply` before it was asked for its status knows that it is recovery.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, runtime_checkable

from cqrepl.grid.errors import GridRefused, LoaderError
from cqrepl.grid.gridsettings import RECOVERY_MAP, GridSettings, PreloadStatus
from cqrepl.grid.partition.gridsession import GridMap, GridSession
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.gridwords import Change, MapOp
from cqrepl.protocol.programfault import Contained

COMPLETE: Final = "COMPLETE"
_logger: Final = logging.getLogger(__name__)


class LoaderChange(NamedTuple):
    """One change of a transaction, for a loader.

    Args:
        op: a value was put, a key removed, or the map cleared in this partition.
    """

    op: MapOp
    key: object
    value: object


@dataclass(frozen=True, slots=True)
class LoaderTx:
    """One transaction, for loaders. A transaction that is recovered has the same number again."""

    map_set: str
    partition: int
    tx: int
    num_of_partitions: int = 1


class PartitionManager(NamedTuple):
    """The number of partitions of a map set."""

    num_of_partitions: int


@dataclass(frozen=True, slots=True)
class BackingMap:
    """One map in one partition, for a loader.

    Args:
        partition_id: from 0 to `num_of_partitions` - 1.
    """

    name: str
    map_set: str
    partition_id: int
    num_of_partitions: int

    def get_partition_manager(self) -> PartitionManager:
        """The number of partitions."""
        return PartitionManager(self.num_of_partitions)

    def get_partition_id(self) -> int:
        """The number of this one."""
        return self.partition_id


class Loader(Protocol):
    """Fills a map from a back end, and writes its changes there. Called in threads."""

    def preload_map(self, session: GridSession, backing_map: BackingMap) -> None:
        """Puts the rows of the map's partition, by transactions of the session.

        Raises:
            Exception: the partition does not start, and tells this cause.
        """

    def apply(self, tx: LoaderTx, changes: Sequence[LoaderChange]) -> None:
        """Writes changes to the back end, which does not commit them yet. May come twice for one
        transaction, on two hosts.

        Raises:
            Exception: the transaction is rolled back.
        """


@runtime_checkable
class ReplicaPreloadController(Protocol):
    """A loader that knows how far its preload has come."""

    def check_preload_status(self, session: GridSession, backing_map: BackingMap) -> PreloadStatus:
        """Called before `preload_map`, whether or not that is called then."""


class TransactionCallback(Protocol):
    """Ends transactions of loaders. Called in threads."""

    def begin(self, tx: LoaderTx) -> None:
        """A transaction is about to be applied."""

    def commit(self, tx: LoaderTx) -> None:
        """Commits it in the back end.

        Raises:
            Exception: it is rolled back, unless `was_committed` says that it was committed.
        """

    def rollback(self, tx: LoaderTx) -> None:
        """Takes it back."""

    def was_committed(self, tx: LoaderTx) -> bool:
        """True where the back end has committed it, by this host or another one. Asked where that
        is not known: after a commit that failed, and in recovery, before it is applied again.

        Raises:
            Exception: that cannot be told; the host gives up the lead.
        """


class RecoveryMap:
    """The progress of preloads, in a map of the same map set: one entry for each map and partition.

    Raises:
        GridRefused: the session's map set has no such map.
    """

    def __init__(self, session: GridSession, name: str = RECOVERY_MAP) -> None:
        self._map: GridMap = session.map(name)

    def progress(self, backing_map: BackingMap) -> object:
        """The value of the last `advance`; None before the first."""
        key = _recovery_key(backing_map)
        return self._map.get(key, partition=backing_map.partition_id)

    def status(self, backing_map: BackingMap) -> PreloadStatus:
        """The status that this says: no entry, complete, or something in between."""
        progress = self.progress(backing_map)
        if progress is None:
            return PreloadStatus.FULL_PRELOAD_NEEDED
        if progress == COMPLETE:
            return PreloadStatus.PRELOADED_ALREADY
        return PreloadStatus.PARTIAL_PRELOAD_NEEDED

    def advance(self, backing_map: BackingMap, progress: object) -> None:
        """Notes how far it has come; in the transaction that has the rows."""
        key = _recovery_key(backing_map)
        self._map.put(key, progress, partition=backing_map.partition_id)

    def complete(self, backing_map: BackingMap) -> None:
        """Notes that all is there."""
        self.advance(backing_map, COMPLETE)


def _recovery_key(backing_map: BackingMap) -> object:
    return (backing_map.name, backing_map.partition_id)


class LoaderDesk:
    """All loaders of a map set.

    Args:
        loaders: by the names that its maps have them by.
        callback: ends the transactions of all of them; None: no loader has anything to end.

    Raises:
        GridRefused: a map has a loader that was not given.
    """

    def __init__(
        self,
        settings: GridSettings,
        loaders: Mapping[str, Loader],
        callback: TransactionCallback | None,
        codec: ValueCodec,
    ) -> None:
        self._settings = settings
        self._callback = callback
        self.codec = codec
        self._by_map: dict[str, Loader] = {}
        for name, each in settings.maps.items():
            if not each.loader:
                continue
            if each.loader not in loaders:
                known = ", ".join(sorted(loaders)) or "none"
                wanted = f"expected one of the loaders {known} for map {name!r}"
                raise GridRefused(f"{wanted} of {settings.name!r}, got {each.loader!r}")
            self._by_map[name] = loaders[each.loader]

    @property
    def is_needed(self) -> bool:
        """True where a map has a loader."""
        return bool(self._by_map)

    def concerns(self, changes: Iterable[Change]) -> bool:
        """True where a loader has to be told of them."""
        return bool(self._by_map) and any(each.map in self._by_map for each in changes)

    def flush(self, partition: int, tx: int, changes: Sequence[Change]) -> None:
        """Gives changes to the loaders of their maps, in declared order.

        Raises:
            LoaderError: one has failed; all of it was taken back.
        """
        told = self._tx(partition, tx)

        def apply() -> None:
            if self._callback is not None:
                self._callback.begin(told)
            for name, loader in self._by_map.items():
                mine = [self._change(each) for each in changes if each.map == name]
                if mine:
                    loader.apply(told, mine)

        error = _fault_of(apply)
        if error is not None:
            self.rollback(partition, tx)
            text = f"partition {partition}: the loader has not taken a transaction: {error!r}"
            raise LoaderError(text) from error

    def commit(self, partition: int, tx: int) -> LoaderError | None:
        """Commits; the error of a back end that has not, None where it has.

        Raises:
            LoaderError: it is not known whether it has.
        """
        if self._callback is None:
            return None
        told = self._tx(partition, tx)
        error = _fault_of(partial(self._callback.commit, told))
        if error is None or self._was_committed(told):
            return None
        self.rollback(partition, tx)
        failed = LoaderError(f"partition {partition}: the loader has not committed: {error!r}")
        failed.__cause__ = error
        return failed

    def rollback(self, partition: int, tx: int) -> None:
        """Takes a transaction back; that it fails is logged."""
        if self._callback is None:
            return
        error = _fault_of(partial(self._callback.rollback, self._tx(partition, tx)))
        if error is not None:
            told = "map set %r, partition %d: the loader has failed in a rollback: %r"
            _logger.warning(told, self._settings.name, partition, error)

    def recover(self, partition: int, tx: int, changes: Sequence[Change]) -> bool:
        """Runs an open transaction of an earlier primary again; true where it is committed.

        Raises:
            LoaderError: that cannot be told.
        """
        if self._was_committed(self._tx(partition, tx)):
            return True
        try:
            self.flush(partition, tx, changes)
        except LoaderError as error:
            if self._was_committed(self._tx(partition, tx)):
                return True
            _logger.warning("map set %r: rolled back: %s", self._settings.name, error)
            return False
        return self.commit(partition, tx) is None

    def _was_committed(self, told: LoaderTx) -> bool:
        callback = self._callback
        if callback is None:
            return False
        found: list[bool] = []
        error = _fault_of(lambda: found.append(callback.was_committed(told)))
        if error is not None:
            text = f"partition {told.partition}: the loader cannot tell whether transaction"
            raise LoaderError(f"{text} {told.tx:#x} is committed: {error!r}") from error
        return found[0]

    def preload(self, session: GridSession, partition: int) -> None:
        """Fills the maps of a partition, one after the other, as their loaders say.

        Args:
            session: that writes through to no loader.

        Raises:
            LoaderError: one has failed.
        """
        for name, loader in self._by_map.items():
            if not self._settings.maps[name].preload:
                continue
            backing = BackingMap(name, self._settings.name, partition, self._settings.partitions)
            error = _fault_of(partial(_preload, loader, session, backing))
            session.rollback()  # what it has left open
            if error is not None:
                text = f"map {name!r}, partition {partition}: the preload has failed: {error!r}"
                raise LoaderError(text) from error

    def _tx(self, partition: int, tx: int) -> LoaderTx:
        return LoaderTx(self._settings.name, partition, tx, self._settings.partitions)

    def _change(self, change: Change) -> LoaderChange:
        loads = self.codec.loads
        key = loads(change.key) if change.op is not MapOp.CLEAR else None
        value = loads(change.value) if change.op is MapOp.PUT else None
        return LoaderChange(change.op, key, value)


def _preload(loader: Loader, session: GridSession, backing: BackingMap) -> None:
    status = PreloadStatus.FULL_PRELOAD_NEEDED
    if isinstance(loader, ReplicaPreloadController):
        status = loader.check_preload_status(session, backing)
    if status is PreloadStatus.PRELOADED_ALREADY:
        return
    if status is PreloadStatus.FULL_PRELOAD_NEEDED:
        session.map(backing.name).clear(backing.partition_id)
    loader.preload_map(session, backing)


def _fault_of(call: Callable[[], None]) -> Exception | None:
    """The error of a program's own code; None where it has none."""
    faults: list[Exception] = []
    with Contained(faults.append):
        call()
    return faults[0] if faults else None
