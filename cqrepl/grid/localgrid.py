"""A grid in one process: the same partitions, sessions and loaders, without hosts.

It may have a log of its own (`path`), from which it takes its state again: from the last checkpoint
of it, and the records that follow. A policy of copies has no effect, and is no error.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.grid.errors import GridError, LoaderError, LockTimeout, OutcomeUnknown
from cqrepl.grid.gridsettings import GridSettings, MapSettings
from cqrepl.grid.loaders import Loader, LoaderDesk, TransactionCallback
from cqrepl.grid.partition.gridsession import GridSession
from cqrepl.grid.partition.gridvalues import Serializer, ValueCodec
from cqrepl.grid.partition.gridwords import GridEntry, decode_words
from cqrepl.grid.partition.locktable import LockPlace
from cqrepl.grid.partition.partitiongroup import PartitionGroup
from cqrepl.grid.partition.primary import Primary, TxRequest, WrittenTx, opened_record
from cqrepl.grid.partition.token import Token
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.logpos import LogPos
from cqrepl.service.fieldwords import FieldWords
from cqrepl.surroundings import surroundings

_ROLL_CYCLE: Final = "FAST_DAILY"
CHECKPOINT_RECORDS: Final = 100_000
CLOSING_RECORDS: Final = 1_000  # not worth a checkpoint at the end if there are fewer


class LocalGrid:
    """One map set; made by `cqrepl.grid.local`. Any thread may use it.

    Attributes:
        faults: the errors of partitions that have not started, by their numbers.
        replayed: so many records of its log were read at the start.
    """

    def __init__(
        self,
        settings: GridSettings,
        path: Path | None,
        loaders: Mapping[str, Loader],
        callback: TransactionCallback | None,
        serializers: Iterable[Serializer],
    ) -> None:
        self.settings = settings
        self.codec = ValueCodec(serializers)
        self.faults: dict[int, LoaderError] = {}
        self._desk = LoaderDesk(settings, loaders, callback, self.codec)
        self._changed = threading.Condition()  # of all that follows
        self._state = PartitionGroup()
        self._last = 0
        self.replayed = 0
        self._records = 0  # since the last checkpoint
        self._queue = None if path is None else Queue.open_for_append(path, create=_ROLL_CYCLE)
        times = CheckpointSettings(records=CHECKPOINT_RECORDS)
        self._saver = None if path is None else Checkpointer(settings.name, path, times)
        self._owners = count(1)
        self._replay()
        epoch = self._state.openings[-1].epoch + 1 if self._state.openings else 1
        self._epoch = epoch
        counts = settings.partitions, 1
        grid = surroundings().random_bytes(8).hex()
        self._write(opened_record(self._state, epoch, 0, counts, grid))
        self._primary = Primary(self._state, epoch, settings.bytes_max)
        self._recover()
        self._preload()

    def session(self) -> GridSession:
        """A session, for one thread at a time."""
        return GridSession(self)

    def close(self) -> None:
        """Ends it; what it keeps in a path stays."""
        with self._changed:
            if self._queue is not None:
                if self._records >= CLOSING_RECORDS:
                    self._save()
                self._queue.close()
                self._queue = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- for sessions ---------------------------------------------------------------------------

    def new_owner(self) -> int:
        """A number for the locks of one transaction."""
        return next(self._owners)

    def get(
        self, owner: int, partition: int, name: str, key: bytes, *, lock: bool
    ) -> GridEntry | None:
        """An entry; None for none."""
        self._check(partition)
        with self._changed:
            if lock:
                self._lock(owner, [LockPlace(partition, name, key)])
            return self._primary.get(partition, name, key)

    def rows(self, partition: int, name: str) -> Iterator[tuple[bytes, GridEntry]]:
        """All entries of a map in a partition, as they were at one time."""
        self._check(partition)
        with self._changed:
            rows = self._primary.rows(partition, name)
        return iter(rows.items())

    def commit(self, owner: int, request: TxRequest, *, write_through: bool) -> Token:
        """Commits; see `Store.commit`."""
        self._check(request.partition)
        goes_through = write_through and self._desk.concerns(request.changes)
        try:
            with self._changed:
                self._lock(owner, request.places)
                self._primary.check(request)
                written = self._primary.record(request, is_final=not goes_through)
            if goes_through:
                self._desk.flush(request.partition, written.tx, request.changes)
            with self._changed:
                index = self._write(written.words)
                self._primary.answered(written)
                found = self._state.open.get(written.tx)
                self._primary.settle(index)
            failed = None
            if goes_through:
                assert found is not None
                token = Token(self.settings.name, self._state.grid, 0, self._epoch, index)
                failed = self._committed(request.partition, written.tx, token)
                with self._changed:
                    self._primary.decide(found, is_committed=failed is None)
                    self._tell_outcomes()
            if failed is not None:
                raise failed
            return Token(self.settings.name, self._state.grid, 0, self._epoch, index)
        finally:
            self.release(owner)

    def _committed(self, partition: int, tx: int, token: Token) -> LoaderError | None:
        """Commits in the loaders; as `LoaderDesk.commit`.

        Raises:
            OutcomeUnknown: they cannot tell; the next start asks again.
        """
        try:
            return self._desk.commit(partition, tx)
        except LoaderError as error:
            self.faults[partition] = error
            raise OutcomeUnknown(str(error), token) from error

    def release(self, owner: int) -> None:
        """Gives back all locks."""
        with self._changed:
            if self._primary.locks.release(owner):
                self._changed.notify_all()

    # ---- the rest ------------------------------------------------------------------------------

    def _check(self, partition: int) -> None:
        fault = self.faults.get(partition)
        if fault is not None:
            raise GridError(f"partition {partition} has not started: {fault}") from fault

    def _lock(self, owner: int, places: Iterable[LockPlace]) -> None:
        wanted = list(places)
        until = time.monotonic() + self.settings.lock_seconds
        while (taken := self._primary.locks.take(owner, wanted)) is not None:
            if not self._changed.wait(until - time.monotonic()):
                raise LockTimeout(lock_problem(taken, self.settings.lock_seconds))

    def _write(self, words: FieldWords) -> int:
        if self._queue is None:
            self._last += 1
        else:
            self._last = self._queue.append(words.encoded())
        self._state.apply(self._last, words)
        self._records += 1
        if self._records >= CHECKPOINT_RECORDS:
            self._save()
        return self._last

    def _save(self) -> None:
        """Saves the state; that it cannot is logged."""
        if self._saver is not None:
            at = LogPos(0, Index(self._last + 1))
            self._saver.save(at, self._last, self._records, self._state.snapshot)
        self._records = 0

    def _tell_outcomes(self) -> None:
        """Here it costs nothing to tell them at once."""
        told: WrittenTx | None = self._primary.outcome()
        if told is not None:
            self._primary.answered(told)
            self._primary.settle(self._write(told.words))

    def _replay(self) -> None:
        if self._queue is None:
            return
        assert self._saver is not None
        end = self._queue.last_index()
        begin = 0
        saved = None if end is None else self._saver.newest(LogPos(0, Index(end + 1)))
        if saved is not None:
            with saved.source:
                self._state = PartitionGroup.restored(saved.source)
            begin, self._last = saved.pos.index, saved.pos.index - 1
        with closing(self._queue.tailer(begin)) as tailer:
            while (batch := tailer.next_batch()) is not None:
                for index, data in batch:
                    self._last = index
                    self._state.apply(index, decode_words(data))
                    self.replayed += 1
        self._records = self.replayed
        self._state.settle(self._last)

    def _recover(self) -> None:
        for each in self._state.undecided():
            is_committed = self._desk.recover(each.partition, each.tx, each.changes)
            self._primary.decide(each, is_committed=is_committed)
        self._tell_outcomes()

    def _preload(self) -> None:
        if self._desk.is_needed:
            for partition in range(self.settings.partitions):
                try:
                    self._desk.preload(GridSession(self, write_through=False), partition)
                except LoaderError as error:
                    self.faults[partition] = error


def lock_problem(taken: LockPlace, seconds: float) -> str:
    """A sentence on a lock that was waited for in vain."""
    found = f"map {taken.map!r} in partition {taken.partition}"
    whole = "all of it" if taken.key is None else "a key of it"
    return f"{found}: expected {whole} to be let go of within {seconds:g} s, got another owner"


def local(
    path: Path | str | None = None,
    *,
    maps: Mapping[str, MapSettings] | Iterable[str] = (),
    partitions: int = 1,
    settings: GridSettings | None = None,
    loaders: Mapping[str, Loader] | None = None,
    callback: TransactionCallback | None = None,
    serializers: Iterable[Serializer] = (),
) -> LocalGrid:
    """A grid in this process.

    Args:
        path: directory of its log, which outlives the process; None: it has none.
        maps: their names, or their settings too; with neither, any name is a map.
        settings: instead of `maps` and `partitions`.

    Raises:
        GridRefused: settings that do not fit together, or another number of partitions than the
            log has.
        QueueError, OSError: the log cannot be opened.
    """
    if settings is None:
        known = maps if isinstance(maps, Mapping) else {name: MapSettings() for name in maps}
        settings = GridSettings(name="local", partitions=partitions, maps=known or _AnyMap())
    folder = None if path is None else Path(path)
    return LocalGrid(settings, folder, loaders or {}, callback, serializers)


class _AnyMap(dict[str, MapSettings]):
    """Has each map that is asked for."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(name)

    def __missing__(self, name: str) -> MapSettings:
        return MapSettings()
