"""Opens a queue directory: for reading, which changes nothing, or for appending.

Theory of operation. A queue is a directory with a table store and one store file per cycle. Opened
for reading, it needs no more than the store files: without a table store their names tell the roll
cycle. No lock is taken, nothing is created, and a read-only directory will do. The one exception is
asked for: `raise_sent` and `raise_acknowledged` raise marks in the table store, which is opened
for writing at the first of these calls, where that is allowed.

Opened for appending, the table store must be there or is created; the directory is listed anew, and
a write lock of a dead process is released, as every writer does.
"""

import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cqrepl.queue import atomics, rollcycle
from cqrepl.queue.appender import WRITE_LOCK_TIMEOUT_S, Appender
from cqrepl.queue.cycles import Cycles, store_names
from cqrepl.queue.errors import LayoutMismatch, NotAQueue
from cqrepl.queue.index import NEXT_OF_EMPTY, index_of
from cqrepl.queue.indexing import Indexing
from cqrepl.queue.layout import QueueLayout
from cqrepl.queue.listing import Listing
from cqrepl.queue.locks import (
    APPEND_LOCK_KEY,
    BACK_COPY_LOCK_KEY,
    UNLOCKED,
    WRITE_LOCK_KEY,
    WordLock,
    is_alive,
)
from cqrepl.queue.marks import ACKNOWLEDGED_KEY, SENT_KEY, SYNCED_KEY, Marks
from cqrepl.queue.storefile import SUFFIX, StoreFile
from cqrepl.queue.tablestore import FILE_NAME, FILE_NAME_V4, TableStore
from cqrepl.queue.tailer import Tailer

_MARK_NONE: Final = -1


class Queue:
    """An open queue. Made by `open` or `open_for_append`."""

    def __init__(self, path: Path, layout: QueueLayout, table: TableStore | None) -> None:
        """Takes over an open table store; one that is writable makes the queue appendable."""
        self.path = path
        self.layout = layout
        self._cycles = Cycles(path, layout.roll_cycle, layout.epoch)
        self._table = table
        self._marks = Marks(path / FILE_NAME)
        self._opened: list[Tailer | Appender] = []
        self._listing: Listing | None = None
        self._append_lock: WordLock | None = None
        self._write_lock: WordLock | None = None

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """The queue in a directory, for reading.

        Raises:
            NotAQueue: nothing there, no queue, or one of a kind that cannot be read.
            QueueDamaged: its table store or a store file's header breaks the format.
        """
        path = Path(path)
        table = _open_table(path, writable=False)
        try:
            layout = _guess_layout(path) if table is None else table.layout
        finally:
            if table is not None:
                table.close()
        return cls(path, _with_indexing(path, layout), None)

    @classmethod
    def open_for_append(cls, path: Path | str, *, create: QueueLayout | None = None) -> Self:
        """The queue in a directory, for appending.

        Args:
            create: the layout of a new queue, if there is none; an existing one must have it.

        Raises:
            NotAQueue: as `open`; or there is none, and `create` was not given.
            LayoutMismatch: there is one of another layout.
            QueueLocked: another process keeps the write lock.
            AtomicsMissing: a library is missing that writing needs.
        """
        atomics.require()
        path = Path(path)
        if create is not None and not path.exists():
            path.mkdir(parents=True)
        table = _open_table(path, writable=True, create=create)
        if table is None:
            raise NotAQueue(f"expected a queue with {FILE_NAME}, found none", path=path)
        try:
            layout = _with_indexing(path, table.layout, create)
            if create is not None and not layout.matches(create):
                raise LayoutMismatch(f"expected {create}, found {layout}", path=path)
            queue = cls(path, layout, table)
            queue._enter()
        except BaseException:
            table.close()
            raise
        return queue

    @property
    def append_lock(self) -> WordLock:
        """The lock that keeps plain writers out; given back by `close` if it is held."""
        assert self._append_lock is not None, "opened for reading"
        return self._append_lock

    def back_copy_lock(self) -> WordLock:
        """The lock that marks append lock and write lock as held for a back copy."""
        assert self._table is not None, "opened for reading"
        return WordLock(self._table, BACK_COPY_LOCK_KEY)

    @classmethod
    def release_dead_back_copy(cls, path: Path | str) -> bool:
        """Gives back the locks of a process that was killed while a sink copied back into a queue.

        Java never gives back an append lock by itself: the queue's own writers would stay out.
        A lock that is not of a back copy, or whose holder may be alive, is left alone.

        Raises:
            QueueError, OSError: as `open_for_append`.
        """
        marked = Marks(Path(path) / FILE_NAME).load(BACK_COPY_LOCK_KEY, UNLOCKED)
        if marked == UNLOCKED or (marked != os.getpid() and is_alive(marked)):
            return False
        with cls.open_for_append(path) as queue:
            mark, lock = queue.back_copy_lock(), queue.append_lock
            was_held = mark.holder() is not None and mark.holder() == lock.holder()
            if was_held:
                lock.release_dead()
            mark.release_dead()
            return was_held and lock.holder() is None

    @property
    def sent_index(self) -> int:
        """The greatest index that was ever sent to a replica; -1 for none."""
        return self._marks.load(SENT_KEY, _MARK_NONE)

    @property
    def acknowledged_index(self) -> int:
        """The greatest index that was ever acknowledged by a replica; -1 for none."""
        return self._marks.load(ACKNOWLEDGED_KEY, _MARK_NONE)

    def raise_sent(self, index: int) -> bool:
        """Records that everything up to `index` was sent; false where that cannot be recorded."""
        return self._marks.raise_to(SENT_KEY, index)

    def raise_acknowledged(self, index: int) -> bool:
        """Records that all up to `index` is acknowledged; false where that cannot be recorded."""
        return self._marks.raise_to(ACKNOWLEDGED_KEY, index)

    def first_index(self) -> int | None:
        """Index of the first excerpt; None when there is none."""
        for cycle in self._cycles.listing():
            if self._count(cycle):
                return index_of(cycle, 0, self._cycles.shift)
        return None

    def last_index(self) -> int | None:
        """Index of the last excerpt; None when there is none."""
        for cycle in reversed(self._cycles.listing()):
            count = self._count(cycle)
            if count:
                return index_of(cycle, count - 1, self._cycles.shift)
        return None

    def next_index(self) -> int:
        """One past the last excerpt; 0 for an empty queue."""
        last = self.last_index()
        return NEXT_OF_EMPTY if last is None else last + 1

    def tailer(self, index: int = NEXT_OF_EMPTY) -> Tailer:
        """A reader that stands before the first excerpt at or after `index`; 0 is the start.

        Raises:
            IndexGap: the queue does not reach from what it holds to `index`.
        """
        tailer = Tailer(self._cycles, index)
        self._keep(tailer)
        return tailer

    def appender(self) -> Appender:
        """A writer, standing at the end; what dead writers left undone there is repaired first.

        Raises:
            QueueDamaged: the end of the queue cannot be trusted.
            QueueLocked: another process keeps the write lock.
        """
        assert self._listing is not None, "opened for reading"
        assert self._write_lock is not None
        appender = Appender(
            self._cycles,
            self.layout,
            self._listing,
            write_lock=self._write_lock,
            append_lock=self.append_lock,
        )
        self._keep(appender)
        return appender

    def close(self) -> None:
        """Gives the append lock back and closes everything opened through this queue."""
        for opened in self._opened:
            opened.close()
        self._opened.clear()
        try:
            if self._append_lock is not None and self._append_lock.is_held:
                self._append_lock.release()
        finally:
            self._marks.close()
            if self._table is not None:
                self._table.close()
            self._table = self._append_lock = self._write_lock = self._listing = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _keep(self, opened: Tailer | Appender) -> None:
        """Remembers what `close` must close, and forgets what is closed."""
        self._opened = [one for one in self._opened if not one.is_closed]
        self._opened.append(opened)

    def _enter(self) -> None:
        """What every writer does on opening: keys, listing, a dead writer's lock."""
        table = self._table
        assert table is not None
        self._listing = Listing(table)  # Java adds its keys in this order
        self._write_lock = WordLock(table, WRITE_LOCK_KEY)
        self._append_lock = WordLock(table, APPEND_LOCK_KEY)
        for key in (SENT_KEY, ACKNOWLEDGED_KEY, SYNCED_KEY):
            table.value(key, _MARK_NONE)
        with self._write_lock.held(WRITE_LOCK_TIMEOUT_S):
            self._listing.renew(self._cycles.listing())

    def _count(self, cycle: int) -> int:
        """Number of excerpts of a cycle."""
        try:
            store = StoreFile.open(self._cycles.path_of(cycle), cycle, writable=False)
        except FileNotFoundError:  # removed since it was listed
            return 0
        if store is None:
            return 0
        try:
            return store.walk(Indexing(store).place_before()).place.sequence
        finally:
            store.close()


def _open_table(
    path: Path, *, writable: bool, create: QueueLayout | None = None
) -> TableStore | None:
    """The table store in a directory; None when there is none, and none is to be created."""
    if not path.is_dir():
        raise NotAQueue("expected a queue directory, found none", path=path)
    file = path / FILE_NAME
    try:
        if not file.exists():
            _check_names(path, create)
            if create is None:
                return None
        if create is not None:
            return TableStore.create(file, create)  # also one that its creator died over
        return TableStore(file, writable=writable)
    except PermissionError as error:
        raise NotAQueue(f"expected a queue: {error.strerror}", path=path) from error


def _guess_layout(path: Path) -> QueueLayout:
    """The layout that the names of store files tell, where there is no table store."""
    names = store_names(path)
    if not names:
        raise NotAQueue(f"expected a queue, found no {FILE_NAME} and no store file", path=path)
    try:
        return QueueLayout.of(rollcycle.by_file_name(names[0].removesuffix(SUFFIX)), 0)
    except ValueError as error:
        raise NotAQueue(str(error), path=path) from error


def _check_names(path: Path, create: QueueLayout | None) -> None:
    """Refuses a version 4 queue, and a table store beside store files of another roll cycle."""
    if (path / FILE_NAME_V4).exists():
        raise NotAQueue(
            f"expected a queue of version 5, found {FILE_NAME_V4} of version 4", path=path
        )
    if create is None:
        return
    for name in store_names(path):
        if create.roll_cycle.cycle_of_name(name.removesuffix(SUFFIX), create.epoch) is None:
            raise LayoutMismatch(f"expected {create}, found {name}", path=path)


def _with_indexing(
    path: Path, layout: QueueLayout, create: QueueLayout | None = None
) -> QueueLayout:
    """The layout with the indexing numbers of the newest store file, else those of `create`."""
    cycles = Cycles(path, layout.roll_cycle, layout.epoch)
    for cycle in reversed(cycles.listing()):
        try:
            store = StoreFile.open(cycles.path_of(cycle), cycle, writable=False)
        except FileNotFoundError:  # removed since it was listed
            continue
        except PermissionError as error:
            raise NotAQueue(f"expected a queue: {error.strerror}", path=path) from error
        if store is not None:
            store.close()
            numbers = store.header
            return replace(
                layout, index_count=numbers.index_count, index_spacing=numbers.index_spacing
            )
    if create is None:
        return layout
    return replace(layout, index_count=create.index_count, index_spacing=create.index_spacing)
