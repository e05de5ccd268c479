"""Named tailers: positions that outlive their reader, in the table store where Java has them.

    index.<name>            next index to read; 0: the start
    index.<name>.lock       for names that begin `replicated:` only: held around each move
    index.<name>.version    for those too: -1, then +1 for each move

Theory of operation. A position is read and moved in place, in memory that all processes share. A
plain name is moved by a store, the last one wins. What another process moved meanwhile is taken up
at the next read, so two readers of one name share its excerpts, as two of Java do; nothing keeps
them from giving one excerpt twice, so one reader for a name is the rule.

An excerpt counts as read when the next one is asked for, or at `commit`: a reader that dies in
between gets it again. A queue is not changed by looking at a position; its table store is opened
for writing at the first move.

A name is kept as Java keeps it: the lower half of each of its UTF-16 units.

Names that begin `replicated:` belong to the source of a replication. While a process holds the
append lock the queue is a replica, and such a name cannot be opened; Java refuses it likewise.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue.files import atomics
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WordLock, holder_of
from cqrepl.queue.files.tablestore import TableStore, TableValue
from cqrepl.queue.format.errors import NotAQueue, QueueError, QueueLocked, used_after_close
from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import NEXT_OF_EMPTY
from cqrepl.queue.format.tailerposition import (
    LOCK_SUFFIX,
    TAILER_NAME_MAX,
    VERSION_NONE,
    VERSION_SUFFIX,
    is_companion,
    is_replicated,
)
from cqrepl.queue.read.pauser import Pauser
from cqrepl.queue.read.stall import Repair, Stall
from cqrepl.queue.read.tailer import BYTES_MAX, PAYLOAD_MAX, Tailer
from wire.strings import kept_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cqrepl.queue.read.typeddocuments import Documents
    from wire.errors import FieldError

M = TypeVar("M", bound="DataclassInstance")
TAILER_KEY: Final = "index."
_LOCK_TIMEOUT_S: Final = 15.0  # Java's own patience for this lock


def named_tailers(table: TableStore) -> dict[str, int]:
    """The positions of all named tailers; names as they were written, in the order of adding."""
    found = {}
    for key, value in table.keys().items():
        if key.startswith(TAILER_KEY) and not is_companion(key.removeprefix(TAILER_KEY)):
            found[table.written(key)[len(TAILER_KEY) :]] = value
    return found


def lower_named_tailers(table: TableStore, index: int) -> None:
    """Takes all named tailers back to a next index that lies behind it: what they have read from
    there on is not the queue's any more."""
    for name, at in named_tailers(table).items():
        value = table.find(TAILER_KEY + name)
        if at > index and value is not None:
            value.lower_to(index)
            version = table.find(TAILER_KEY + name + VERSION_SUFFIX)
            if is_replicated(name) and version is not None:
                version.add(1)


class NamedPosition:
    """The stored position of one name."""

    def __init__(self, cycles: Cycles, name: str) -> None:
        """Reads nothing yet and changes nothing.

        Raises:
            QueueError: the name is empty or too long, or names the lock or version of another.
            QueueLocked: the name begins `replicated:`, and the append lock is held.
        """
        self._path = cycles.table_path
        name = kept_name(name)
        if not 0 < len(name.encode()) <= TAILER_NAME_MAX:
            raise QueueError(
                f"expected a name of 1 to {TAILER_NAME_MAX} bytes, found {name!r}", path=self._path
            )
        if is_companion(name):  # as a name it would be moved under a lock that it is itself
            raise QueueError(
                f"expected a name, found what belongs to one: {name!r}", path=self._path
            )
        self.name = name
        self._is_replicated = is_replicated(name)
        self._table: TableStore | None = None  # only read before the first move
        self._value: TableValue | None = None
        self._version: TableValue | None = None  # there when the table store is open for writing
        self._lock: WordLock | None = None
        self._is_writable = False
        if self._is_replicated:
            self._refuse_on_replica()

    def load(self) -> int:
        """The next index to read; 0: the start."""
        if self._value is None:
            self._value = self._find(TAILER_KEY + self.name)
        return NEXT_OF_EMPTY if self._value is None else self._value.load()

    def move(self, index: int) -> None:
        """Stores the next index to read.

        Raises:
            NotAQueue: there is no table store to keep it in.
            AtomicsMissing: a library is missing that writing needs.
            QueueLocked: another process keeps the lock of this name.
            OSError: the table store may not be written.
        """
        if not self._is_writable:
            self._open_for_writing()
        assert self._value is not None
        if self._lock is None or self._version is None:
            self._value.store(index)
            return
        with self._lock.held(_LOCK_TIMEOUT_S):
            self._value.store(index)
            self._version.add(1)

    def version(self) -> int:
        """The number of moves of a `replicated:` name, counted from -1 on; -1 for other names."""
        found = self._find(TAILER_KEY + self.name + VERSION_SUFFIX) if self._is_replicated else None
        return VERSION_NONE if found is None else found.load()

    def close(self) -> None:
        """Closes the table store. The position stays where it is."""
        if self._table is not None:
            self._table.close()
        self._table = self._value = self._version = self._lock = None
        self._is_writable = False

    def _open_for_writing(self) -> None:
        """Finds or adds the keys, in Java's order."""
        atomics.require()
        try:
            table = TableStore(self._path, writable=True)
        except FileNotFoundError as error:
            raise NotAQueue(
                f"expected a table store to keep the position of {self.name} in", path=self._path
            ) from error
        self.close()
        self._table, key = table, TAILER_KEY + self.name
        if self._is_replicated:
            self._lock = WordLock(table, key + LOCK_SUFFIX)
        self._value = table.value(key, NEXT_OF_EMPTY)
        if self._is_replicated:
            self._version = table.value(key + VERSION_SUFFIX, VERSION_NONE)
        self._is_writable = True

    def _find(self, key: str) -> TableValue | None:
        """A key that is there; None when there is no such key, or no table store."""
        if self._table is None:
            try:
                self._table = TableStore(self._path, writable=False)
            except FileNotFoundError:
                return None
        return self._table.find(key)

    def _refuse_on_replica(self) -> None:
        value = self._find(APPEND_LOCK_KEY)
        holder = None if value is None else holder_of(value.load())
        if holder is not None:
            self.close()
            raise QueueLocked(
                f"expected {self.name} on a queue that is no replica, process"
                f" {holder} keeps its append lock",
                holder=holder,
                path=self._path,
            )


class NamedTailer:
    """A tailer that goes on where the last one of its name stopped."""

    def __init__(
        self,
        cycles: Cycles,
        name: str,
        *,
        pauser: Pauser | None = None,
        repair: Repair | None = None,
    ) -> None:
        """Stands at the stored position; a new name at the start.

        Raises:
            IndexGap: the queue does not hold the stored position any more; `NamedPosition.move`
                decides where to go on.
            QueueError, QueueLocked: as `NamedPosition`.
        """
        self._cycles = cycles
        self._pauser = Pauser() if pauser is None else pauser
        self._repair = repair
        self._place = NamedPosition(cycles, name)
        self._stored = self._place.load()
        try:
            self._tailer = self._at(self._stored)
        except BaseException:
            self._place.close()
            raise
        self._given = False

    @property
    def name(self) -> str:
        return self._place.name

    @property
    def next_index(self) -> int:
        """Index of the next excerpt that it will give, or wait for."""
        return self._tailer.next_index

    @property
    def stored_index(self) -> int:
        """The index at which a reader of this name would start now."""
        return self._place.load()

    @property
    def stalled(self) -> Stall | None:
        """As that of `Tailer`."""
        return self._tailer.stalled

    @property
    def is_closed(self) -> bool:
        return self._tailer.is_closed

    def next_batch(
        self,
        *,
        count_max: int = NO_LIMIT,
        bytes_max: int = BYTES_MAX,
        payload_max: int = PAYLOAD_MAX,
    ) -> ExcerptBatch | None:
        """As `Tailer.next_batch`; the batch before counts as read now."""
        self._take_up()
        batch = self._tailer.next_batch(
            count_max=count_max, bytes_max=bytes_max, payload_max=payload_max
        )
        self._given = batch is not None
        return batch

    def next_excerpt(self) -> Excerpt | None:
        """As `Tailer.next_excerpt`; the excerpt before counts as read now."""
        self._take_up()
        excerpt = self._tailer.next_excerpt()
        self._given = excerpt is not None
        return excerpt

    def __iter__(self) -> Iterator[Excerpt]:
        """The excerpts that are there; each counts as read when the next is asked for."""
        while (excerpt := self.next_excerpt()) is not None:
            yield excerpt

    def wait(self, timeout_s: float | None = None) -> bool:
        """As `Tailer.wait`; what was given before counts as read now."""
        self._take_up()
        return self._tailer.wait(timeout_s)

    def follow(self) -> Iterator[Excerpt]:
        """As `Tailer.follow`; each excerpt counts as read when the next is asked for."""
        while self.wait():
            yield from self

    def documents(
        self,
        *kinds: "type[M]",
        follow: bool = False,
        on_misfit: "Callable[[FieldError], object] | None" = None,
    ) -> "Documents[M]":
        """As `Tailer.documents`; each counts as read when the next is asked for."""
        from cqrepl.queue.read.typeddocuments import Documents  # loaded by those that read objects

        return Documents(self.follow() if follow else iter(self), kinds, on_misfit)

    def commit(self) -> None:
        """Stores that everything given so far is read."""
        if self._given:
            self._given = False
            self._store(self._tailer.next_index)

    def move(self, index: int) -> None:
        """Goes to an index, as `Tailer` takes it, and stores that.

        Raises:
            IndexGap: the queue does not reach from what it holds to `index`. Nothing was stored.
        """
        tailer = self._at(index)
        self._tailer.close()
        self._tailer, self._given = tailer, False
        self._store(index)

    def close(self) -> None:
        """Closes the files. What was given last is not read but by `commit` or a further read."""
        self._tailer.close()
        self._place.close()

    def _take_up(self) -> None:
        """Stores what was read, or goes where another process has moved the name meanwhile."""
        if self.is_closed:
            raise used_after_close("reader", self._cycles.path)
        moved = self._place.load()
        if moved == self._stored:
            self.commit()
            return
        self._tailer.close()
        self._stored, self._given = moved, False
        self._tailer = self._at(moved)

    def _store(self, index: int) -> None:
        self._place.move(index)
        self._stored = index

    def _at(self, index: int) -> Tailer:
        index = self._cycles.not_before_begin(index)
        return Tailer(self._cycles, index, pauser=self._pauser, repair=self._repair)
