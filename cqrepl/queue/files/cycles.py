"""The store files of a queue directory: which cycles there are, and which comes next.

Theory of operation. Only names that end in `.cq4` count. Cycles without a file are normal: nothing
was written. So the cycle after one is the least greater one that has a file, and finding it means
listing the directory, which writers change meanwhile: a listing may show a file and miss one that
was created before it. Writers go upwards, so everything below a file that has been seen was created
before it was; a second listing, begun after the first one showed a file, misses nothing below.

A directory can be removed and made anew with another roll cycle. Its files would then be read under
wrong indexes, so a reader calls `check_layout` when it opens a further file, and now
and then while it waits: it looks at the table store again when that is another file than before.
"""

import os
from contextlib import closing
from pathlib import Path

from cqrepl.queue.files.chroniclemarks import BEGIN_KEY
from cqrepl.queue.files.closedcycles import FETCH, LET_GO, PUT_BACK, ClosedCycles
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.storefile import SUFFIX, StoreFile
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.errors import (
    LayoutMismatch,
    NotAQueue,
    QueueDamaged,
    QueueError,
    cannot_open,
)
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of
from cqrepl.queue.format.rollcycle import Cycle, RollCycle


class Cycles:
    """The cycles of one queue directory."""

    def __init__(self, path: Path, roll_cycle: RollCycle, epoch: int) -> None:
        self.path = path
        self.roll_cycle = roll_cycle
        self.shift = roll_cycle.shift
        self.closed = ClosedCycles(path)
        self._epoch = epoch
        self._known: dict[str, Cycle] = {}
        self._names: dict[Cycle, str] = {}  # the same the other way; a cycle has one name
        self._table_seen = self._table_identity()
        self._header_seen = b""  # of a table store that named the roll cycle; not looked at yet
        self._begin: Index | None = None  # not looked up yet

    @property
    def table_path(self) -> Path:
        """The path of the queue's table store, which need not be there."""
        return self.path / FILE_NAME

    @property
    def begin(self) -> Index:
        """The first index that belongs to the queue, 0 for all: the first store file of a
        quarantine is a whole one, and holds what stayed in its queue as well.

        Raises:
            QueueDamaged: the table store cannot be read.
        """
        if self._begin is None:
            self._begin = NEXT_OF_EMPTY
            try:
                table = TableStore(self.table_path, writable=False)
            except FileNotFoundError:
                return self._begin
            with closing(table):
                self._begin = self.note_begin(table)
        return self._begin

    def note_begin(self, table: TableStore) -> Index:
        """Takes `begin` from the table store, where that is open: it is not opened for it again."""
        found = table.find(BEGIN_KEY) if table.has_early(BEGIN_KEY) else None
        self._begin = Index(max(found.load(), NEXT_OF_EMPTY)) if found else NEXT_OF_EMPTY
        return self._begin

    def not_before_begin(self, index: int) -> Index:
        """This index, or that where the queue begins, if that lies above and its file is there."""
        begin = self.begin
        is_before = index < begin and self.has(cycle_of(begin, self.shift))
        return begin if is_before else Index(index)

    def path_of(self, cycle: Cycle) -> Path:
        """The path of a cycle's store file, which need not be there.

        Raises:
            QueueError: no file can be named for this cycle.
        """
        name = self._names.get(cycle)
        if name is None:
            try:
                name = self.roll_cycle.file_name(cycle, self._epoch) + SUFFIX
            except ValueError as error:
                raise QueueError(str(error), path=self.path) from error
        return self.path / name

    def has(self, cycle: Cycle) -> bool:
        """True when the cycle has a store file, ready or not."""
        return os.path.exists(self.path_of(cycle))

    def open(self, cycle: Cycle) -> StoreFile | None:
        """A cycle's store file, for reading; None when it is not there, or not ready yet.

        Raises:
            QueueDamaged: it is not one, or not what it was.
            OSError: it cannot be opened, or what it held is not known.
        """
        path = self.path_of(cycle)
        try:
            store = StoreFile.open(path, cycle, writable=False)
        except FileNotFoundError:
            return None
        if store is None:
            self.closed.check_unready(cycle, path)
        return store

    def has_ended(self, cycle: Cycle) -> bool:
        """True when the cycle has a store file, and that is closed."""
        store = self.open(cycle)
        if store is None:
            return False
        try:
            return store.has_end_mark()
        finally:
            store.close()

    def cycle_of(self, stem: str) -> Cycle | None:
        """The cycle whose files have this name without what follows; None when none has."""
        return self.roll_cycle.cycle_of_name(stem, self._epoch)

    def ends_ms(self, cycle: Cycle) -> int:
        """The moment at which the cycle ends by the clock, in milliseconds since 1970."""
        return (cycle + 1) * self.roll_cycle.length_ms + self._epoch

    def check_layout(self) -> None:
        """Does nothing while the table store names the roll cycle that these cycles have.

        Raises:
            LayoutMismatch: the queue was made anew with another one.
        """
        seen = self._table_identity()
        if seen in (None, self._table_seen):
            return
        if self._has_seen_header():
            self._table_seen = seen
            return
        try:
            table = TableStore(self.table_path, writable=False)
        except FileNotFoundError:  # it is just being made anew; asked again later
            return
        found, header = table.layout, table.header()
        table.close()
        if (found.roll_cycle.name, found.epoch) != (self.roll_cycle.name, self._epoch):
            raise LayoutMismatch(
                f"expected {self.roll_cycle.name} epoch {self._epoch},"
                f" found {found.roll_cycle.name} epoch {found.epoch}",
                path=self.path,
            )
        self._table_seen, self._header_seen = seen, header

    def listing(self) -> list[Cycle]:
        """All cycles that have a store file, ascending.

        Raises:
            NotAQueue: a store file's name names no cycle of this queue, or the directory has gone.
        """
        known = {name: self._cycle(name) for name in store_names(self.path)}
        if known != self._known:  # forgets what has been removed
            self._known, self._names = known, {cycle: name for name, cycle in known.items()}
        return sorted(known.values())

    def files_from(self, first: Cycle) -> list[Path]:
        """The table store, and the store files from a cycle on.

        Raises:
            QueueDamaged, NotAQueue: as `listing`.
        """
        return [self.table_path, *(self.path_of(each) for each in self.listing() if each >= first)]

    def following(self, cycle: Cycle) -> Cycle | None:
        """The least cycle above this one that has a store file; None while there is none."""
        if not any(there > cycle for there in self.listing()):
            return None
        # the second listing: see the theory of operation
        return min((there for there in self.listing() if there > cycle), default=None)

    def check_between(self, first: Cycle, last: Cycle) -> None:
        """Does nothing when no store file is missing between those of two cycles.

        Raises:
            QueueDamaged: one is, of a cycle that is known to have had excerpts.
            OSError: what is known cannot be read.
        """
        noted = sorted(
            record
            for record in self.closed.load().values()
            if first < record.cycle < last and record.excerpts and not self.has(record.cycle)
        )
        # retention goes upwards: what it has taken meanwhile is below all that is listed now
        lowest = min(self.listing(), default=last) if noted else last
        for record in noted:
            if record.cycle > lowest:
                raise QueueDamaged(
                    f"expected {record.excerpts} excerpts, the store file is not there; {PUT_BACK}",
                    path=self.path_of(record.cycle),
                )

    def check_closed(self, cycle: Cycle, count: int, *, is_closed: bool) -> None:
        """Does nothing when a store file holds as much as it is known to have held when it was
        closed.

        Args:
            count: number of its excerpts now.
            is_closed: whether it has its end-of-file mark.

        Raises:
            QueueDamaged: it has fewer excerpts, or is open again.
            OSError: what is known cannot be read.
        """
        noted = self.closed.load().get(cycle)
        if noted is not None and (count < noted.excerpts or not is_closed):
            found = f", found {count}" if count < noted.excerpts else " and its end, found it open"
            raise QueueDamaged(
                f"expected {noted.excerpts} excerpts{found}, as in an older store file;"
                f" put the right one back, from a backup or a copy: {FETCH}; {LET_GO}",
                path=self.path_of(cycle),
            )

    def check_counted(self, cycle: Cycle, count: int) -> None:
        """As `check_closed`, for a caller that passes a cycle by without caring for its end. Its
        file may be removed meanwhile: retention, or `check_between` tells."""
        noted = self.closed.load().get(cycle)
        if noted is not None and count < noted.excerpts and self.has(cycle):
            self.check_closed(cycle, count, is_closed=True)

    def _has_seen_header(self) -> bool:
        """True while the table store begins with the header that was found to name the roll cycle.
        Its time of change tells little: each mark that is stored in it changes that."""
        if not self._header_seen:
            return False
        try:
            with FileBytes(self.table_path) as table:
                return table.read(0, len(self._header_seen)) == self._header_seen
        except (OSError, QueueDamaged):
            return False  # to be told as where none was seen

    def _table_identity(self) -> tuple[int, ...] | None:
        """The device, inode number and time of change of the table store: another one differs in
        them. The number alone would not do, as that of a removed file may be used again."""
        try:
            status = os.stat(self.table_path)
        except OSError:  # none, or it is just being made anew
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def _cycle(self, name: str) -> Cycle:
        cycle = self._known.get(name)
        if cycle is None:
            cycle = self.cycle_of(name.removesuffix(SUFFIX))
        if cycle is None:
            reason = foreign_name(name, self.roll_cycle.name, self._epoch)
            raise NotAQueue(reason, path=self.path)
        return cycle


def foreign_name(name: str, roll_cycle_name: str, epoch: int) -> str:
    """Says that a file has the suffix of store files, and no name that the roll cycle gives."""
    which = f"{roll_cycle_name} with epoch {epoch}"
    return f"expected a store file of {which}, found {name}: move it away"


def store_names(path: Path) -> list[str]:
    """The names of the store files in a directory, in the order of their cycles.

    Raises:
        NotAQueue: it is no directory.
        QueueError: it cannot be read now.
    """
    try:
        return sorted(name for name in os.listdir(path) if name.endswith(SUFFIX))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotAQueue(f"expected a queue directory: {error.strerror}", path=path) from error
    except OSError as error:
        raise cannot_open(error, path) from error
