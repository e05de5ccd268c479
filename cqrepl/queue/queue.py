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
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from cqrepl.queue.files.chroniclemarks import (
    ACKNOWLEDGED_KEY,
    COPY_OF_KEY,
    FILE_KEY,
    FIRST_KEY,
    FOLLOWER_KEY,
    FOLLOWS,
    LEADS_KEY,
    OWN_SYNCED_KEY,
    SENT_KEY,
    SYNCED_KEY,
    ChronicleMarks,
)
from cqrepl.queue.files.cycles import Cycles, store_names
from cqrepl.queue.files.keptidentity import KeptIdentity
from cqrepl.queue.files.keptmarks import KEY_END_MAX, KeptMarks
from cqrepl.queue.files.listing import BOOT_KEY, boot_digest
from cqrepl.queue.files.locks import WordLock
from cqrepl.queue.files.mapping import check_name, named_identity
from cqrepl.queue.files.queuedirectory import (
    guess_layout,
    open_for_writing,
    open_table,
    with_indexing,
)
from cqrepl.queue.files.tablestore import FILE_NAME, TableValue
from cqrepl.queue.format.block import BLOCK_BYTES
from cqrepl.queue.format.errors import (
    LayoutMismatch,
    QueueDamaged,
    knows_no_host,
    used_after_close,
)
from cqrepl.queue.format.index import INDEX_MAX, NEXT_OF_EMPTY, Cycle, Index, number_of
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.read import count as counting
from cqrepl.queue.read.backward import BackwardTailer
from cqrepl.queue.read.columns import MAX_BYTES, MAX_ROWS, ColumnReader, Columns
from cqrepl.queue.read.namedtailer import NamedPosition, NamedTailer
from cqrepl.queue.read.pauser import Pauser
from cqrepl.queue.read.tailer import M, OnMisfit, Tailer
from cqrepl.queue.read.tailerpositions import TailerPositions
from cqrepl.queue.read.timesearch import ReadTime, seek_time
from cqrepl.queue.write.appender import Appender
from cqrepl.queue.write.endrepair import EndRepair
from cqrepl.queue.write.groupcommit import Durability, GroupCommit
from cqrepl.queue.write.pretoucher import PageToucher
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS, TailWait
from cqrepl.queue.write.writeraccess import Writing
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from cqrepl.queue.read.methodreader import MethodReader, MethodWriter
    from cqrepl.queue.read.typeddocuments import Documents

_MARK_NONE: Final = -1
_DIGEST_BITS: Final = 32


class _Opened(Protocol):
    """A tailer, appender or other part that a queue closes when it is closed itself."""

    @property
    def is_closed(self) -> bool: ...

    def close(self) -> None: ...


class Queue:
    """An open queue. Made by `open`, or `open_for_append`.

    One queue may be shared by threads, and so may appenders; each tailer belongs to one of them.
    Once it is closed, a call that reads or writes excerpts raises `QueueError`.
    """

    def __init__(self, path: Path, layout: QueueLayout) -> None:
        self.path = path
        self.layout = layout
        self._commits: GroupCommit | None = None
        self._block_bytes = BLOCK_BYTES
        self._cycles = Cycles(path, layout.roll_cycle, layout.epoch)
        self._table_file = named_identity(path / FILE_NAME)
        self._table_path = path / FILE_NAME
        self._marks = ChronicleMarks(self._table_path)
        self.host_marks = KeptMarks(path, self._marks)  # of each replica, as far as they are kept
        self.identity = KeptIdentity(path / FILE_NAME)  # which queue it is
        self.tailer_positions = TailerPositions(self._marks)  # of named tailers, for its copies
        self._guard = threading.Lock()  # of the two that follow
        self._opened: list[_Opened] = []
        self._columns: ColumnReader | None = None
        self._writing: Writing | None = None
        self._wait_for_seconds = WAIT_FOR_SECONDS
        # what `append` uses, in every thread: for copies too, or not
        self._appenders: dict[bool, Appender | None] = {False: None, True: None}
        self._is_closed = False

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<{type(self).__name__} {str(self.path)!r}, {self.layout.roll_cycle.name}{state}>"

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        create: QueueLayout | str | None = None,
        durability: Durability = Durability.NONE,
        block_bytes: int = BLOCK_BYTES,
        wait_for_seconds: float = WAIT_FOR_SECONDS,
    ) -> Self:
        """The queue in a directory. Nothing there is changed before the first call that writes.

        Args:
            create: the layout of a new queue, or its roll cycle's name, if there is none; an
                existing one must have it.
            durability: what is true of an excerpt when its append returns.
            block_bytes: what this process's Java readers map at a time; the longest excerpt that
                is appended is a quarter of it.
            wait_for_seconds: after another start of the machine, the first append waits so long for
                a source to compare a queue that is replicated with its copies, and to take back
                what a power cut has taken.

        Raises:
            NotAQueue: nothing there, no queue, or one of a kind that cannot be read.
            LayoutMismatch: there is one of another layout than `create`.
            QueueDamaged: its table store or a store file's header breaks the format.
        """
        path = Path(path)
        if create is not None:
            queue = cls.open_for_append(path, create=create, wait_for_seconds=wait_for_seconds)
        else:
            table = open_table(path, writable=False)
            with closing(table) if table is not None else nullcontext():
                layout = guess_layout(path, store_names(path)) if table is None else table.layout
                queue = cls(path, with_indexing(path, layout))
                if table is not None:
                    queue._cycles.note_begin(table)
            queue._wait_for_seconds = wait_for_seconds
        queue._block_bytes = block_bytes
        if durability is Durability.SYNCED:
            queue._commits = GroupCommit(path)
        return queue

    @classmethod
    def open_for_append(
        cls,
        path: Path | str,
        *,
        create: QueueLayout | str | None = None,
        wait_for_seconds: float = WAIT_FOR_SECONDS,
    ) -> Self:
        """The queue in a directory, made ready for appending at once.

        Args:
            create, wait_for_seconds: as for `open`.

        Raises:
            NotAQueue: as `open`; or there is none, and `create` was not given.
            LayoutMismatch: there is one of another layout.
            QueueLocked: another process keeps the write lock.
            AtomicsMissing: a library is missing that writing needs.
        """
        path = Path(path)
        if isinstance(create, str):
            create = QueueLayout.of(by_name(create))
        if create is not None and not path.exists():
            path.mkdir(parents=True)
        table = open_for_writing(path, create)
        try:
            layout = with_indexing(path, table.layout, create)
            if create is not None and not layout.matches(create):
                raise LayoutMismatch(f"expected {create}, found {layout}", path=path)
            queue = cls(path, layout)
            queue._wait_for_seconds = wait_for_seconds
            queue._writing = Writing(table, queue._cycles)
        except BaseException:
            table.close()
            raise
        return queue

    @property
    def cycles(self) -> Cycles:
        """The store files of the queue; for what works on them as such, as `retention` does."""
        return self._cycles

    @property
    def append_lock(self) -> WordLock:
        """The lock that keeps plain writers out; given back by `close` if it is held."""
        return self._for_writing().append_lock

    def word_lock(self, key: str) -> WordLock:
        """A lock of this name in the table store."""
        return WordLock(self._for_writing().table, key)

    def word(self, key: str, default: int) -> int:
        """The value of a key of the table store now; `default` where there is none."""
        return self._marks.load(key, default)

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

    def acknowledged_word(self) -> TableValue | None:
        """The acknowledged mark in memory, until `close`: native threads raise it. None where it
        cannot be kept."""
        return self._marks.word(ACKNOWLEDGED_KEY)

    def raise_synced(self, index: int) -> bool:
        """Records for Java that everything up to `index` is on the disk; false where that cannot be
        recorded."""
        return self._marks.raise_to(SYNCED_KEY, index)

    def keep_marks_open(self) -> bool:
        """Opens the table store for all marks that are read and raised from now on; false where it
        cannot be written to. Without it each mark that is read opens it anew."""
        return self._marks.table() is not None

    @property
    def is_of_this_boot(self) -> bool:
        """True when one of our writers has opened the queue since the machine was started. Else a
        power cut may have taken some of it, as where the machine does not tell which start it is
        in."""
        if not surroundings().boot_id():
            return False
        return self._marks.load(BOOT_KEY, _MARK_NONE) == boot_digest()

    def lower_marks(self, index: int, *, keeps_synced: bool = False) -> None:
        """Records that nothing beyond `index` was sent, acknowledged or synced: the queue has lost
        what was there. Nothing where that cannot be recorded.

        Args:
            keeps_synced: it has lost nothing, but hosts may not have what comes next.
        """
        self._marks.lower_to(SENT_KEY, index)
        self._marks.lower_to(ACKNOWLEDGED_KEY, index)
        if keeps_synced:
            return
        self._marks.lower_to(SYNCED_KEY, index)
        if self._marks.load(OWN_SYNCED_KEY, _MARK_NONE) > index:
            self._marks.lower_to(OWN_SYNCED_KEY, index)

    @property
    def is_follower(self) -> bool:
        """True when the queue is a copy that a sink has taken in."""
        return self._marks.load(FOLLOWER_KEY, _MARK_NONE) == FOLLOWS

    def note_follower(self, *, is_follower: bool) -> None:
        """Records that the queue is such a copy, or no more. Nothing where that cannot be
        recorded."""
        if is_follower:
            self._marks.raise_to(FOLLOWER_KEY, FOLLOWS)
        elif self.is_follower:
            self._marks.lower_to(FOLLOWER_KEY, _MARK_NONE)

    def note_leads(self, until_ns: int) -> None:
        """Records for programs of this machine until when its host leads the queue by an election;
        0: it does not. Nothing where that cannot be recorded.

        Args:
            until_ns: by CLOCK_MONOTONIC, which is Java's `System.nanoTime()` on Linux.
        """
        self._marks.store_within(LEADS_KEY, until_ns, KEY_END_MAX)

    def note_file(self, cycle: Cycle) -> None:
        """Records which file has the name of a cycle's in this start of the machine: as long as it
        has, nothing of that file was lost, nor of those below, which are noted as they are closed.
        Nothing where that cannot be recorded."""
        seen = self._file_seen(cycle)
        if seen != self._marks.load(FILE_KEY, _MARK_NONE):
            self._marks.store(FILE_KEY, seen)

    @property
    def has_noted_file(self) -> bool:
        """True while the file that was recorded is there, in the same start of the machine."""
        noted = self._marks.load(FILE_KEY, _MARK_NONE)
        return noted != _MARK_NONE and noted == self._file_seen(Cycle(noted >> _DIGEST_BITS))

    def note_first(self, cycle: Cycle) -> None:
        """Records the lowest cycle that a source has streamed, or would have: one below it that
        appears has been passed. Nothing where that cannot be recorded."""
        if cycle != self.first_noted:
            self._marks.store(FIRST_KEY, cycle)

    @property
    def first_noted(self) -> int:
        """The cycle that `note_first` has recorded; -1 where none was recorded."""
        return self._marks.load(FIRST_KEY, _MARK_NONE)

    def _file_seen(self, cycle: Cycle) -> int:
        try:
            paths = self._cycles.path_of(cycle), self._table_path
            numbers = [
                os.stat(path).st_ino for path in paths
            ]  # one of a file that went may come again
        except OSError:
            return _MARK_NONE
        boot = surroundings().boot_id()
        digest = zlib.crc32(b"%d %d" % tuple(numbers), zlib.crc32(boot))
        return (cycle << _DIGEST_BITS) | digest if boot else _MARK_NONE

    @property
    def copy_of(self) -> int | None:
        """The id of the host that the queue was taken in from last; None where it is no copy, or
        that is not known."""
        host_id = self._marks.load(COPY_OF_KEY, _MARK_NONE)
        return host_id if self.is_follower and host_id != _MARK_NONE else None

    def note_copy_of(self, host_id: int) -> None:
        """Records whose copy it is. Nothing where that cannot be recorded, or is not known."""
        if host_id and self._marks.load(COPY_OF_KEY, _MARK_NONE) != host_id:
            self._marks.store(COPY_OF_KEY, host_id)

    def begin_following(self, timeout_s: float) -> None:
        """Records that the queue is such a copy, and keeps every other writer out, those of this
        process too. The append lock is held.

        Raises:
            QueueLocked: another process keeps the write lock: it is in its append.
        """
        writing, was_follower = self._for_writing(), self.is_follower
        if self._marks.load(FILE_KEY, _MARK_NONE) != _MARK_NONE:
            self._marks.store(FILE_KEY, _MARK_NONE)  # what it had is its leader's matter
        self.note_follower(is_follower=True)  # writers of this process look at that
        try:
            with writing.write_lock.held(timeout_s):
                writing.listing.note_change()  # and those that append with a pen do so now
        except BaseException:
            self.note_follower(is_follower=was_follower)
            raise

    def first_index(self) -> Index | None:
        """Index of the first excerpt; None when there is none."""
        return counting.first_index(self._readable())

    def last_index(self) -> Index | None:
        """Index of the last excerpt; None when there is none."""
        return counting.last_index(self._readable())

    def last_index_before(self, index: Index) -> Index | None:
        """Index of the last excerpt before `index`, which is one of ours, one past the last of a
        cycle, or the first of a cycle; None when there is none."""
        return counting.last_index_before(self._readable(), index)

    def next_index(self) -> Index:
        """One past the last excerpt; 0 for an empty queue."""
        return counting.end_index(self._readable())

    def count(self, first: int = NEXT_OF_EMPTY, last: int | None = None) -> int:
        """The number of excerpts from index `first` to index `last`, both included; None: all.

        Costs time for each cycle, not for each excerpt.
        """
        return counting.count(self._readable(), first, INDEX_MAX if last is None else last)

    def tailer(
        self, index: int = NEXT_OF_EMPTY, *, pauser: Pauser | None = None, repair: bool = False
    ) -> Tailer:
        """A reader that stands before the first excerpt at or after `index`; 0 is the start.

        `tailer(queue.next_index())` reads only what is still to come.

        Args:
            pauser: how it waits for more.
            repair: whether it may close a cycle that a dead writer left open, which it would wait
                in for ever. That writes to the queue.

        Raises:
            IndexGap: the queue does not reach from what it holds to `index`.
            TypeError: `index` is no number.
        """
        cycles = self._readable()
        index = number_of(index, "queue.next_index() for what is still to come")
        index = cycles.not_before_begin(index)
        tailer = Tailer(cycles, index, pauser=pauser, repair=EndRepair(cycles) if repair else None)
        self._keep(tailer)
        return tailer

    def documents(self, *kinds: type[M], on_misfit: OnMisfit = None) -> "Documents[M]":
        """The excerpts that are there as objects of a dataclass: `tailer().documents(...)`."""
        return self.tailer().documents(*kinds, on_misfit=on_misfit)

    def method_reader(self, handler: object, index: int = NEXT_OF_EMPTY) -> "MethodReader":
        """A reader that calls the methods of an object for the calls that the queue holds."""
        from cqrepl.queue.read.methodreader import MethodReader  # loaded by those that make calls

        return MethodReader(self.tailer(index), handler)

    def method_writer(self, kind: type) -> "MethodWriter":
        """An object with the public methods of a class or a protocol: a call appends what a Java
        method reader takes for it, and gives the index."""
        from cqrepl.queue.read.methodreader import MethodWriter  # loaded by those that make calls

        return MethodWriter(self.append, kind)

    def backward(self, index: int | None = None) -> BackwardTailer:
        """A reader that goes down from the last excerpt at or below `index`; None: from the end.

        Raises:
            TypeError: `index` is something else.
        """
        if index is not None:
            index = number_of(index, "None for the last one")
        tailer = BackwardTailer(self._readable(), index)
        self._keep(tailer)
        return tailer

    def named_tailer(
        self, name: str, *, pauser: Pauser | None = None, repair: bool = False
    ) -> NamedTailer:
        """A reader whose position is kept in the queue, where Java's reader of that name has it.

        Args:
            pauser, repair: as for `tailer`.

        Raises:
            IndexGap: the queue does not hold the stored position any more.
            QueueLocked: a name that begins `replicated:`, on a replica.
            QueueError: the name is empty or too long.
        """
        cycles = self._readable()
        tailer = NamedTailer(
            cycles, name, pauser=pauser, repair=EndRepair(cycles) if repair else None
        )
        self._keep(tailer)
        return tailer

    def named_position(self, name: str) -> NamedPosition:
        """The stored position of a name, to be read, moved and closed by hand.

        Raises:
            QueueLocked, QueueError: as `named_tailer`.
        """
        return NamedPosition(self._readable(), name)

    def seek_time(self, time: int, read_time: ReadTime) -> int:
        """Index of the first excerpt with a time at or after `time`; one past the last if none has.

        Two binary searches; excerpts must stand in the order of their times. A single one with a
        wrong time among them does no harm.

        Args:
            read_time: the time of a payload, in the unit of `time`; None, or NaN, if it has none.

        Raises:
            QueueDamaged: a store file cannot be followed.
        """
        return seek_time(self._readable(), time, read_time)

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
            self._columns = ColumnReader(self._readable())
            self._keep(self._columns)
        index_from = self._cycles.not_before_begin(index_from)
        return self._columns.read(index_from, index_to, max_rows, max_bytes)

    def append(
        self,
        payload: bytes | memoryview,
        *,
        now_ms: int | None = None,
        policy: None = None,
        to_copy: bool = False,
    ) -> int:
        """Appends one excerpt at the end; its index. May be called from any thread.

        Args:
            now_ms: what decides the cycle, milliseconds since 1970; by default the clock's time.
            policy, to_copy: as for `append_many`.

        Raises:
            QueueLocked, QueueError, OSError, ValueError: as `append_many`.
        """
        if policy is not None:
            raise knows_no_host(self.path, policy)
        appender = self._appenders[to_copy] or self._shared_appender(to_copy)
        try:
            return appender.append_one(payload, now_ms)
        except QueueDamaged:
            if not appender.is_out_of_date:
                raise
            return self._unshared(appender, to_copy).append_one(payload, now_ms)

    def append_many(
        self,
        payloads: Sequence[bytes | memoryview],
        *,
        now_ms: int | None = None,
        policy: None = None,
        to_copy: bool = False,
    ) -> int:
        """Appends excerpts at the end under one lock; the index of the last. From any thread.

        Args:
            policy: none is taken here. Which hosts have an excerpt is known where one streams it:
                `cqrepl.HostQueue.open` gives a queue that takes one.
            to_copy: also where the queue is a copy, whose leader then has less than it.

        Raises:
            AppendsToCopy: the queue is a copy, and `to_copy` was not given. Nothing was changed.
            QueueLocked: another process keeps the write lock, or the append lock.
            QueueError: the cycle has no room for them, or one is too long. Nothing was changed.
            OSError: no space. What was appended before it is whole.
            ValueError: a policy came. Nothing was changed.
        """
        if policy is not None:
            raise knows_no_host(self.path, policy)
        appender = self._appenders[to_copy] or self._shared_appender(to_copy)
        try:
            return appender.append(payloads, now_ms)
        except QueueDamaged:
            if not appender.is_out_of_date:
                raise
            return self._unshared(appender, to_copy).append(payloads, now_ms)

    def append_document(self, message: object, *, now_ms: int | None = None) -> int:
        """Appends a message to a queue that is no copy; its index. As `append_documents`."""
        return self.append_documents([message], now_ms=now_ms)

    def append_documents(
        self, messages: Iterable[object], *, now_ms: int | None = None, to_copy: bool = False
    ) -> int:
        """Appends messages under one lock, each as `wire.encode` makes it; the index of the last.

        An object of a dataclass is laid out as Java's binary wire lays out the same class: as its
        fields, or as the call of the method that the class names as its `wire_event`.

        Raises:
            TypeError, ValueError: a message has no form on the wire. Nothing was appended.
            QueueLocked, QueueError, OSError: as `append_many`.
        """
        from wire.objects.documents import encode  # loaded by those that append objects

        made = [encode(message) for message in messages]
        return self.append_many(made, now_ms=now_ms, to_copy=to_copy)

    def appender(
        self,
        *,
        payload_max: int | None = None,
        toucher: PageToucher | None = None,
        is_sole: bool = False,
        to_copy: bool = False,
    ) -> Appender:
        """A writer, standing at the end; what dead writers left undone there is repaired first.

        Args:
            payload_max: the longest excerpt in bytes, where another limit than that of the blocks
                has been kept already.
            toucher: brings pages into memory ahead of it; closed by the caller, before the queue.
            is_sole: the append lock is held, and no other writer is to append: see `Appender`.
            to_copy: `append` appends to a copy, too.

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
            commits=self._commits,
            block_bytes=self._block_bytes,
            payload_max=payload_max,
            toucher=toucher,
            tail_wait=self._tail_wait(),
            is_sole=is_sole,
            to_copy=to_copy,
        )
        self._keep(appender)
        return appender

    def check_name(self) -> None:
        """Does nothing while the table store is the one that was there when the queue was opened.

        Raises:
            QueueDamaged: it was removed, or another one has taken its name: this is another queue.
        """
        if self._table_file is None:
            self._table_file = named_identity(self._table_path)
        else:
            check_name(self._table_path, self._table_file)

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
            self.host_marks.close()
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

    def _shared_appender(self, to_copy: bool) -> Appender:
        try:
            appender = self.appender(to_copy=to_copy)
        except QueueDamaged as error:  # marks may tell what is missing
            self._tail_wait().check_marks(error)
            raise
        with self._guard:
            self._appenders[to_copy] = shared = self._appenders[to_copy] or appender
        if shared is not appender:
            appender.close()  # another thread was faster
        return shared

    def _tail_wait(self) -> TailWait:
        table, seconds = self._for_writing().table, self._wait_for_seconds
        return TailWait(table, self._cycles, self.host_marks, seconds)

    def _unshared(self, appender: Appender, to_copy: bool) -> Appender:
        """Another one than this, which goes no further; threads may have it."""
        with self._guard:
            if self._appenders[to_copy] is appender:
                self._appenders[to_copy] = None
        return self._shared_appender(to_copy)

    def _readable(self) -> Cycles:
        """The store files, for what reads them."""
        if self._is_closed:
            raise used_after_close("queue", self.path)
        return self._cycles

    def _keep(self, opened: _Opened) -> None:
        """Remembers what `close` must close, and forgets what is closed."""
        with self._guard:
            if not self._is_closed:
                self._opened = [one for one in self._opened if not one.is_closed]
                self._opened.append(opened)
                return
        opened.close()  # another thread has closed the queue meanwhile
        raise used_after_close("queue", self.path)

    def _for_writing(self) -> Writing:
        """The table store and locks that all writers share; the first writer opens them."""
        with self._guard:
            if self._is_closed:
                raise used_after_close("queue", self.path)
            if self._writing is None:
                table = open_for_writing(self.path)
                try:
                    self._writing = Writing(table, self._cycles)
                except BaseException:
                    table.close()
                    raise
            return self._writing
