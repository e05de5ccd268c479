"""Takes a tail off a queue, into a queue of its own beside it, so that the queue can follow again.

Theory of operation. Two copies that hold different excerpts under one index both stop, and only a
person can say which of them is wrong. From that one the tail is taken: its store files go whole
into a new directory below `quarantine/`, which is a queue that every reader opens, with a report of
what is in it. Nothing is deleted. Of the first file, what comes before the cut is needed here as
well: it is appended to a new file, which takes the place of the old one in one step. The old one
still holds it, so the new queue's table store names the index at which that queue begins, before
any file is in it: readers of this package, not Java's, go by it.

A kill at any step leaves a queue, and doing it again completes it. What tells of the tail is taken
back first, since a mark that says too little does no harm: what was sent, acknowledged and synced,
the records of closed cycles, the positions of named tailers and registered readers. Then the last
file goes first, and the one with the cut last.

No other process may have the queue open: it would go on in files that are not the queue's any more.
Appenders are kept out by both locks; a reader that opens the queue in the midst of it may see the
old tail.
"""

import json
import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.kernel.chain import has_chains
from cqrepl.queue.files.beneath import make_beneath, open_beneath
from cqrepl.queue.files.chroniclemarks import BEGIN_KEY
from cqrepl.queue.files.cutreports import FOLDER_NAME, REPORT_NAME
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.filesync import sync_file
from cqrepl.queue.files.fileusers import check_unused
from cqrepl.queue.files.keptmarks import HostLevels
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WRITE_LOCK_KEY, WordLock
from cqrepl.queue.files.markslots import FORGOTTEN
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.errors import IndexGap, QueueError
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Sequence,
    cycle_of,
    format_index,
    index_of,
    sequence_of,
)
from cqrepl.queue.queue import Queue
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.count import count_in, last_index_before
from cqrepl.queue.read.namedtailer import lower_named_tailers
from cqrepl.queue.read.registration import lower_readers
from cqrepl.surroundings import surroundings, sync_path

_KEPT_NAME: Final = "kept"
_LOCK_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedCycle:
    """The excerpts that one store file loses.

    Args:
        kept: number of its excerpts that stay in the queue.
        excerpts: number of its excerpts that go; None where they cannot be read.
        chain: over all of its excerpts, kept ones included; None where there is none.
    """

    cycle: Cycle
    path: Path
    kept: int
    excerpts: int | None
    chain: bytes | None

    def fields(self, shift: int) -> dict[str, object]:
        """Of the report, for JSON."""
        first = index_of(self.cycle, Sequence(self.kept), shift)
        return {
            "file": self.path.name,
            "first": format_index(first),
            "last": format_index(first + self.excerpts - 1) if self.excerpts else None,
            "excerpts": self.excerpts,
            "kept": self.kept,
            "chain": None if self.chain is None else self.chain.hex(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A tail that goes, or has gone.

    Args:
        start: the index from which on everything goes; None: all there is.
        end: the queue's next index afterwards.
        cycles: what goes, the lowest first.
        hosts: the marks of each host that lie behind the cut: who was sent, or acknowledged, what.
        folder: where the tail is.
    """

    path: Path
    start: int | None
    end: Index
    cycles: tuple[QuarantinedCycle, ...]
    hosts: HostLevels
    folder: Path

    @property
    def excerpts(self) -> int | None:
        """The number of excerpts that go; None where they cannot be counted."""
        counts = [each.excerpts for each in self.cycles]
        return None if None in counts else sum(count or 0 for count in counts)

    def fields(self, shift: int) -> dict[str, object]:
        """The report, for JSON."""
        return {
            "v": 1,
            "kind": "quarantine",
            "path": str(self.path),
            "folder": str(self.folder),
            "next_index": format_index(self.end),
            "excerpts": self.excerpts,
            "cycles": [each.fields(shift) for each in self.cycles],
            "hosts": {
                str(host): {str(level): format_index(at) for level, at in levels.items()}
                for host, levels in self.hosts.items()
            },
        }


def first_behind(queue: Queue, index: int) -> tuple[Index, Index] | None:
    """The two indexes at which a tail is cut off that is to be put aside.

    Args:
        index: everything from there on goes. Its cycle may end before it, and the queue may have
            later cycles.

    Returns:
        The first index that goes, and the next index of what stays; None where nothing goes.

    Raises:
        QueueError: a store file cannot be read.
    """
    cycles = queue.cycles
    first, sequence = cycle_of(Index(index), cycles.shift), sequence_of(Index(index), cycles.shift)
    for cycle in sorted(each for each in cycles.listing() if each >= first):
        kept = sequence if cycle == first else SEQUENCE_FIRST
        if count_in(cycles, cycle) > kept:
            start = index_of(cycle, Sequence(kept), cycles.shift)
            if kept:
                return start, start
            last = last_index_before(cycles, start)
            if last is None:
                return start, NEXT_OF_EMPTY
            end = Index(last + 1)  # the mark that ends its cycle goes too: more may come there
            return end, end
    return None


def plan_quarantine(path: Path, index: int | None) -> Quarantine:
    """The plan of a quarantine: what would go, from `index` on; None: everything. Changes nothing.

    Raises:
        NotAQueue: there is no queue, or no table store.
        IndexGap: the queue does not reach to `index`, or has nothing from there on.
        QueueError: what stays cannot be read.
    """
    with Queue.open(path) as queue:
        return _plan(queue, index)


def quarantine(path: Path, index: int | None) -> Quarantine:
    """Takes everything from `index` on off the queue; None: all there is. What has gone.

    Raises:
        QueueLocked: another process has the queue open, or one of its locks.
        IndexGap, QueueError: as `plan_quarantine`. Nothing was changed.
        OSError: no space, or a file may not be moved. Done again, it goes on.
    """
    with Queue.open(path) as queue:
        first = Cycle(0) if index is None else cycle_of(Index(index), queue.cycles.shift)
        files = queue.cycles.files_from(first)
    check_unused(path, files)  # while it is not open here: see `fileusers`
    with Queue.open(path) as queue, closing(TableStore(path / FILE_NAME, writable=True)) as table:
        append_lock, write_lock = (
            WordLock(table, key) for key in (APPEND_LOCK_KEY, WRITE_LOCK_KEY)
        )
        with append_lock.held(_LOCK_TIMEOUT_S), write_lock.held(_LOCK_TIMEOUT_S):
            going = _plan(queue, index)
            check_unused(path, [path / FILE_NAME, *(each.path for each in going.cycles)])
            _take(queue, table, going)
            return going


def _plan(queue: Queue, index: int | None) -> Quarantine:
    cycles = queue.cycles
    first, kept, end = Cycle(0), Sequence(0), NEXT_OF_EMPTY
    if index is not None:
        first = cycle_of(Index(index), cycles.shift)
        kept = sequence_of(Index(index), cycles.shift)
        last = last_index_before(cycles, index_of(first, SEQUENCE_FIRST, cycles.shift))
        end = Index(index) if kept else NEXT_OF_EMPTY if last is None else Index(last + 1)
    listed = [cycle for cycle in cycles.listing() if cycle >= first]
    if kept and (first not in listed or count_in(cycles, first) < kept):
        raise IndexGap(
            index or 0, queue.next_index(), "the queue has no such index", path=queue.path
        )
    chains = Chains(cycles)
    found = [_cycle(cycles, chains, each, kept if each == first else 0) for each in listed]
    if not any(each.excerpts != 0 for each in found):
        wanted = end if index is None else index
        raise IndexGap(
            wanted, queue.next_index(), "there is nothing from there on", path=queue.path
        )
    folder = queue.path / FOLDER_NAME
    name = "all" if index is None else format_index(index)
    nth = next(n for n in range(1, 1 << 31) if not (folder / f"{name}-{n}").exists())
    hosts = {
        host: {level: at for level, at in levels.items() if at >= max(end, 1)}
        for host, levels in queue.host_marks.load().items()
    }
    return Quarantine(
        path=queue.path,
        start=index,
        end=end,
        cycles=tuple(found),
        hosts={host: levels for host, levels in hosts.items() if levels},
        folder=folder / f"{name}-{nth}",
    )


def _cycle(cycles: Cycles, chains: Chains, cycle: Cycle, kept: int) -> QuarantinedCycle:
    count, chain = None, None
    try:
        count = count_in(cycles, cycle)
        if has_chains() and count:
            chain = chains.at(index_of(cycle, Sequence(count), cycles.shift))
    except QueueError:
        if kept:
            raise  # what stays is read
    return QuarantinedCycle(
        cycle=cycle,
        path=cycles.path_of(cycle),
        kept=kept,
        excerpts=None if count is None else count - kept,
        chain=chain,
    )


def _take(queue: Queue, table: TableStore, going: Quarantine) -> None:
    cycles, folder = queue.cycles, going.folder
    make_beneath(queue.path, folder)
    with Queue.open_for_append(folder, create=queue.layout):
        pass
    if going.cycles[0].kept:
        _note_begin(
            folder, index_of(going.cycles[0].cycle, Sequence(going.cycles[0].kept), cycles.shift)
        )
    for file in (folder / FILE_NAME, *(each.path for each in going.cycles)):
        sync_file(queue.path, file)  # perhaps the only copy of what goes: no power cut may take it
    kept = _keep(queue, going)
    shift = cycles.shift
    report = json.dumps(going.fields(shift), indent=1) + "\n"
    _write(queue.path, folder / REPORT_NAME, report.encode())
    _lower(queue, table, going)
    for each in reversed(going.cycles):
        aside = folder / each.path.name
        if each.kept:
            assert kept is not None
            surroundings().link(each.path, aside)
            surroundings().rename(kept, each.path)
        else:
            surroundings().rename(each.path, aside)
    for directory in (folder, folder.parent, queue.path):
        sync_path(directory)
    Listing(table).renew(cycles.listing())
    table.sync()
    with closing(TableStore(folder / FILE_NAME, writable=True)) as aside_table:
        Listing(aside_table).renew([each.cycle for each in going.cycles])
        aside_table.sync()
    if kept is not None:
        for left in kept.parent.iterdir():
            surroundings().unlink(left)
        kept.parent.rmdir()


def _note_begin(folder: Path, begin: Index) -> None:
    """Readers of the folder begin there: before any file is in it that holds more."""
    with closing(TableStore(folder / FILE_NAME, writable=True)) as table:
        table.value(BEGIN_KEY, begin)


def _keep(queue: Queue, going: Quarantine) -> Path | None:
    """A new store file with what stays of the first cycle, on the disk; None where nothing does."""
    cut = going.cycles[0]
    if not cut.kept:
        return None
    made = going.folder / _KEPT_NAME
    start = index_of(cut.cycle, SEQUENCE_FIRST, queue.cycles.shift)
    with Queue.open_for_append(made, create=queue.layout) as short:
        appender = short.appender(payload_max=NO_LIMIT)
        tailer = queue.tailer(start)
        left = cut.kept
        while left:
            batch = tailer.next_batch(count_max=left, payload_max=NO_LIMIT)
            if batch is None or batch.index_last >= going.end:
                raise IndexGap(going.end, tailer.next_index, "the queue does not reach to it")
            appender.append_at(batch)
            left -= len(batch)
        path = short.cycles.path_of(cut.cycle)
    sync_file(queue.path, path)
    return path


def _lower(queue: Queue, table: TableStore, going: Quarantine) -> None:
    """Takes back all that tells of what is going."""
    last = going.end - 1 if going.end else FORGOTTEN
    queue.lower_marks(last)
    queue.host_marks.lower_all(last)
    if going.start is not None:  # else the same excerpts may come again, and they have read them
        lower_named_tailers(table, going.end)
        lower_readers(table, going.end)
    synced = load_synced(queue.path)
    if synced is not None and synced.end > going.end:
        boot = synced.boot if synced.has_failed else None
        store_synced(queue.path, going.end, synced.doubtful_before(going.end), boot=boot)
    first = going.cycles[0].cycle
    queue.cycles.closed.forget_from(first)
    Listing(table).open_from(first)
    table.sync()


def _write(queue: Path, path: Path, data: bytes) -> None:
    descriptor = open_beneath(queue, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        surroundings().write(descriptor, data, 0)
        surroundings().sync(descriptor)
    finally:
        os.close(descriptor)
