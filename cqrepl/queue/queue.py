"""A queue directory, opened: what is read from it and written to it goes through here.

Theory of operation. A queue is a directory with a table store and one store file per cycle. Opening
and reading need no more than the store files: without a table store their names tell the roll
cycle. No lock is taken, nothing is created, and a read-only directory will do. The table store is
opened for writing at the first call that writes (an append, a mark, a named tailer's move), where
that is allowed; before the first append the directory is listed anew, and a write lock of a dead
process is released, as every writer does.

    with cqrepl.Queue.open("data/orders") as queue:
        index = queue.append(b"...")
        for excerpt in queue.tailer():
            ...
"""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cqrepl.queue.appender import Appender
from cqrepl.queue.columns import MAX_BYTES, MAX_ROWS, ColumnReader, Columns
from cqrepl.queue.cycles import Cycles
from cqrepl.queue.errors import LayoutMismatch, QueueError
from cqrepl.queue.index import NEXT_OF_EMPTY, index_of
from cqrepl.queue.indexing import Indexing
from cqrepl.queue.layout import QueueLayout
from cqrepl.queue.locks import BACK_COPY_LOCK_KEY, UNLOCKED, WordLock, is_alive
from cqrepl.queue.marks import ACKNOWLEDGED_KEY, SENT_KEY, Marks
from cqrepl.queue.opening import guess_layout, open_for_writing, open_table, with_indexing
from cqrepl.queue.storefile import StoreFile
from cqrepl.queue.tablestore import FILE_NAME
from cqrepl.queue.tailer import Tailer
from cqrepl.queue.writing import Writing

_MARK_NONE: Final = -1


class Queue:
    """An open queue. Made by `open`, or `open_for_append`.

    One queue may be shared by threads, but each tailer and each appender belongs to one of them.
    """

    def __init__(self, path: Path, layout: QueueLayout) -> None:
        self.path = path
        self.layout = layout
        self._cycles = Cycles(path, layout.roll_cycle, layout.epoch)
        self._marks = Marks(path / FILE_NAME)
        self._guard = threading.Lock()  # of the two that follow
        self._opened: list[Tailer | Appender | ColumnReader] = []
        self._columns: ColumnReader | None = None
        self._writing: Writing | None = None
        self._own = threading.local()  # the appender that `append` uses in each thread
        self._is_closed = False

    @classmethod
    def open(cls, path: Path | str, *, create: QueueLayout | None = None) -> Self:
        """The queue in a directory. Nothing there is changed before the first call that writes.

        Args:
            create: the layout of a new queue, if there is none; an existing one must have it.

        Raises:
            NotAQueue: nothing there, no queue, or one of a kind that cannot be read.
            LayoutMismatch: there is one of another layout than `create`.
            QueueDamaged: its table store or a store file's header breaks the format.
        """
        if create is not None:
            return cls.open_for_append(path, create=create)
        path = Path(path)
        table = open_table(path, writable=False)
        try:
            layout = guess_layout(path) if table is None else table.layout
        finally:
            if table is not None:
                table.close()
        return cls(path, with_indexing(path, layout))

    @classmethod
    def open_for_append(cls, path: Path | str, *, create: QueueLayout | None = None) -> Self:
        """The queue in a directory, made ready for appending at once.

        Args:
            create: as for `open`.

        Raises:
            NotAQueue: as `open`; or there is none, and `create` was not given.
            LayoutMismatch: there is one of another layout.
            QueueLocked: another process keeps the write lock.
            AtomicsMissing: a library is missing that writing needs.
        """
        path = Path(path)
        if create is not None and not path.exists():
            path.mkdir(parents=True)
        table = open_for_writing(path, create)
        try:
            layout = with_indexing(path, table.layout, create)
            if create is not None and not layout.matches(create):
                raise LayoutMismatch(f"expected {create}, found {layout}", path=path)
            queue = cls(path, layout)
            queue._writing = Writing(table, queue._cycles)
        except BaseException:
            table.close()
            raise
        return queue

    @property
    def append_lock(self) -> WordLock:
        """The lock that keeps plain writers out; given back by `close` if it is held."""
        return self._for_writing().append_lock

    def back_copy_lock(self) -> WordLock:
        """The lock that marks append lock and write lock as held for a back copy."""
        return WordLock(self._for_writing().table, BACK_COPY_LOCK_KEY)

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

    def read_columns(
        self,
        index_from: int,
        index_to: int,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> Columns:
        """The excerpts from `index_from` to `index_to`, both included, side by side in one buffer.

        A call that begins at the `next_index` of the last one goes on where that ended.

        Args:
            index_from: as for `tailer`.
            max_rows: as many at most.
            max_bytes: of payload in more than one row; a longer payload comes alone.

        Raises:
            IndexGap: the queue does not reach from what it holds to `index_from`.
            QueueDamaged: a file cannot be followed.
        """
        if self._columns is None:
            self._columns = ColumnReader(self._cycles)
            self._keep(self._columns)
        return self._columns.read(index_from, index_to, max_rows, max_bytes)

    def append(self, payload: bytes | memoryview, *, now_ms: int | None = None) -> int:
        """Appends one excerpt at the end; its index. May be called from any thread.

        Args:
            now_ms: what decides the cycle, milliseconds since 1970; by default the clock's time.

        Raises:
            QueueLocked, QueueError, OSError: as `append_many`.
        """
        return self.append_many((payload,), now_ms=now_ms)

    def append_many(
        self, payloads: Sequence[bytes | memoryview], *, now_ms: int | None = None
    ) -> int:
        """Appends excerpts at the end under one lock; the index of the last. From any thread.

        Raises:
            QueueLocked: another process keeps the write lock, or does not let others append.
            QueueError: the cycle has no room for them, or one is too long. Nothing was changed.
            OSError: no space. What was appended before it is whole.
        """
        appender: Appender | None = getattr(self._own, "appender", None)
        if appender is None:
            self._own.appender = appender = self.appender()
        return appender.append(payloads, time.time_ns() // 1_000_000 if now_ms is None else now_ms)

    def appender(self) -> Appender:
        """A writer, standing at the end; what dead writers left undone there is repaired first.

        Raises:
            NotAQueue: there is no table store, which writing needs.
            QueueDamaged: the end of the queue cannot be trusted.
            QueueLocked: another process keeps the write lock.
            AtomicsMissing: a library is missing that writing needs.
        """
        writing = self._for_writing()
        appender = Appender(
            self._cycles,
            self.layout,
            writing.listing,
            write_lock=writing.write_lock,
            append_lock=writing.append_lock,
        )
        self._keep(appender)
        return appender

    def close(self) -> None:
        """Gives the append lock back and closes everything opened through this queue."""
        with self._guard:
            self._is_closed = True
            opened, self._opened = self._opened, []
            writing, self._writing = self._writing, None
        for one in opened:
            one.close()
        try:
            if writing is not None:
                writing.close()
        finally:
            self._marks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _keep(self, opened: Tailer | Appender | ColumnReader) -> None:
        """Remembers what `close` must close, and forgets what is closed."""
        with self._guard:
            self._opened = [one for one in self._opened if not one.is_closed]
            self._opened.append(opened)

    def _for_writing(self) -> Writing:
        """What writers share; the table store is opened for writing by the first of them."""
        with self._guard:
            if self._is_closed:
                raise QueueError("expected an open queue, it was closed", path=self.path)
            if self._writing is None:
                table = open_for_writing(self.path)
                try:
                    self._writing = Writing(table, self._cycles)
                except BaseException:
                    table.close()
                    raise
            return self._writing

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
