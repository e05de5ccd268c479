"""Takes what is there for all there is, because a person says so.

Theory of operation. Two faults stop a queue until a person decides, where no copy has better
excerpts. The first is a loss: a closed store file is missing, or holds other excerpts than it did,
or the end is gone. The second is doubt: excerpts behind the synced mark of an earlier start of the
machine read as torn. Here the person says that what is there counts. For the first, the notes of
what those files held are forgotten, and the next source or sink notes what is there anew. All that
tells of the lost end is taken back to where the queue ends: marks too, by which appenders refuse
(`read.lostmarks`). For the second, all of it is brought to the disk, and marked as proved. No
excerpt is changed, and no store file that holds any.
"""

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue.files.closedcycles import UNKNOWN_CHAIN, ClosedCycle
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.filesync import sync_file
from cqrepl.queue.files.fileusers import check_unused
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import WRITE_LOCK_KEY, WordLock
from cqrepl.queue.files.markslots import FORGOTTEN
from cqrepl.queue.files.syncedmark import (
    HAS_FAILED,
    NOTHING_DOUBTFUL,
    load_synced,
    lower_synced,
    store_synced,
)
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.errors import DurabilityLost, QueueDamaged
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    cycle_of,
    index_of,
)
from cqrepl.queue.inspection.closedfiles import wanting
from cqrepl.queue.inspection.lostend import LostEnd, lost_end
from cqrepl.queue.inspection.notedchains import QueueNotes
from cqrepl.queue.queue import Queue
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.count import count_in
from cqrepl.queue.read.lostmarks import LostMark, lost_mark
from cqrepl.queue.read.tornsectors import first_doubtful
from cqrepl.surroundings import sync_path

_LOCK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCycle:
    """A closed cycle that does not hold what it held.

    Args:
        path: of its store file, there or not.
        noted: number of excerpts that it had when it was closed.
        found: number of those that are there; None where there is no file, or it cannot be read.
    """

    cycle: Cycle
    path: Path
    noted: int
    found: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The first excerpt of a queue, before which it may lack some that its source has.

    Args:
        cycle: the lowest one that has a store file.
        path: of that.
    """

    index: Index
    cycle: Cycle
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproved:
    """The excerpts that a power cut may have torn, and that no copy has proved.

    Args:
        start, end: the first index, and the next one behind the last; alike where there is none.
        excerpts: the number of them.
        torn: the indexes of those that read as torn.
    """

    path: Path
    start: Index
    end: Index
    excerpts: int
    torn: tuple[Index, ...]


def lost_cycles(path: Path) -> list[LostCycle]:
    """The closed cycles that do not hold what was noted when they were closed. Reads all of them.

    Raises:
        QueueError: the directory is no queue, or cannot be read.
        OSError: what they held is not known.
    """
    with Queue.open(path) as queue:
        cycles = queue.cycles
        return [_lost(cycles, record) for record in wanting(cycles)]


def accept_missing(path: Path) -> list[LostCycle]:
    """Forgets what those held; they, as they were found.

    A source or sink that has the queue open goes on complaining until it is started again.

    Raises:
        QueueError, OSError: as `lost_cycles`; or the notes cannot be written. Nothing was changed.
    """
    lost = lost_cycles(path)
    if lost:
        with Queue.open(path) as queue:
            for each in lost:  # before the note: it tells of what was there
                QueueNotes.side_file(each.path).unlink(missing_ok=True)
            queue.cycles.closed.forget({each.cycle for each in lost})
            sync_path(path)
    return lost


def begin_to_accept(path: Path) -> Begin | None:
    """The first excerpt of a queue that may lack some before it; None where its notes tell that
    earlier store files were taken off, or where it has no excerpts.

    Raises:
        QueueError: the directory is no queue, or cannot be read.
        OSError: what is noted cannot be read.
    """
    with Queue.open(path) as queue:
        return _begin(queue)


def accept_begin(path: Path) -> Begin | None:
    """Notes that all below the first excerpt of a copy was taken off it: its source is not to bring
    it, nor to take it for lost; what it was. No file of the queue is changed, and a sink that runs
    says it with its next connection.

    Raises:
        QueueError, OSError: as `begin_to_accept`; or it cannot be noted. Nothing was changed.
    """
    with Queue.open(path) as queue:
        found = _begin(queue)
        if found is not None:
            closed = queue.cycles.closed
            closed.remember(ClosedCycle(Cycle(found.cycle - 1), 0, UNKNOWN_CHAIN))
            closed.note_below(found.cycle)
            sync_path(path)
        return found


def _begin(queue: Queue) -> Begin | None:
    cycles, index = queue.cycles, queue.first_index()
    if index is None:
        return None
    first = min(cycles.listing())
    if cycles.closed.holds_from(first) >= first:
        return None
    return Begin(index=index, cycle=first, path=cycles.path_of(first))


def lost_end_of(path: Path) -> LostEnd | None:
    """The loss of the end, where a note or a mark tells that the queue had more; else None.

    Raises:
        QueueError: the directory is no queue, or cannot be read.
        OSError: what is noted cannot be read.
    """
    with Queue.open(path) as queue:
        return _lost_end(queue)


def lost_mark_of(path: Path) -> LostMark | None:
    """The greatest mark above the end of the queue, by which appends are refused; None for none.

    Raises:
        QueueError, OSError: as `lost_end_of`.
    """
    with Queue.open(path) as queue:
        return lost_mark(queue.cycles)


def accept_lost_end(path: Path) -> LostEnd | None:
    """Takes that back to where the queue ends; what it was.

    Raises:
        QueueLocked: another process has the queue open, or one of its locks. Nothing was changed.
        QueueError, OSError: as `lost_end_of`; or what tells of it cannot be written. Done again, it
            goes on.
    """
    if (planned := lost_end_of(path)) is not None:
        _check_closed(path, Index(planned.index))
    with Queue.open_for_append(path, wait_for_seconds=0) as queue:
        with queue.append_lock.held(_LOCK_SECONDS):
            cycles = queue.cycles
            found = _lost_end(queue)
            if found is None:
                return None
            check_unused(path, cycles.files_from(found.cycle))
            cycles.closed.forget({each for each in cycles.closed.load() if each >= found.cycle})
            QueueNotes.side_file(found.path).unlink(missing_ok=True)
            # a file that never had a header gets another name, and the highest cycle is what is
            # there
            queue.appender(payload_max=NO_LIMIT).close()
            with closing(TableStore(path / FILE_NAME, writable=True)) as table:
                with WordLock(table, WRITE_LOCK_KEY).held(_LOCK_SECONDS):
                    Listing(table).renew(cycles.listing())
                end = queue.next_index()
                queue.lower_marks(end - 1 if end else FORGOTTEN)
                queue.host_marks.lower_all(end - 1 if end else FORGOTTEN)
                table.sync()
            mark = load_synced(path)
            if mark is not None and mark.end > end:
                lower_synced(path, mark, end)
            sync_path(path)
            return found


def unproved(path: Path) -> Unproved:
    """The excerpts behind the synced mark of an earlier start of the machine. Reads all of them.

    Raises:
        QueueError: the directory is no queue, or cannot be read.
        OSError: the mark cannot be read.
    """
    with Queue.open(path) as queue:
        return _unproved(queue)


def accept_unproved(path: Path) -> Unproved:
    """Brings that to the disk as it is, and marks it as proved; what it was.

    Raises:
        QueueLocked: another process has the queue open, or one of its locks. Nothing was changed.
        QueueError, OSError: as `unproved`; or it may not be on the disk. The mark stays.
        DurabilityLost: a sync has failed in this start of the machine. Nothing was changed.
    """
    if (planned := unproved(path)).excerpts:
        _check_closed(path, planned.start)
    with Queue.open_for_append(path, wait_for_seconds=0) as queue:
        with queue.append_lock.held(_LOCK_SECONDS):
            found = _unproved(queue)
            mark = load_synced(path)
            if mark is not None and mark.has_failed:
                raise DurabilityLost(HAS_FAILED, path=path)
            if found.excerpts:
                cycles = queue.cycles
                files = cycles.files_from(cycle_of(found.start, cycles.shift))
                check_unused(path, files)
                # an end that a power cut has taken may be recorded still: a writer mends that
                queue.appender(payload_max=NO_LIMIT).close()
                for file in files[::-1]:
                    sync_file(path, file)
                sync_path(path)
                store_synced(path, queue.next_index(), NOTHING_DOUBTFUL)
        return found


def _check_closed(path: Path, start: Index) -> None:
    """As `check_unused`, while the queue is not open here: see `fileusers`."""
    with Queue.open(path) as queue:
        files = queue.cycles.files_from(cycle_of(start, queue.cycles.shift))
    check_unused(path, files)


def _lost_end(queue: Queue) -> LostEnd | None:
    cycles = queue.cycles
    found, lost = lost_end(cycles), lost_mark(cycles)
    if found is not None or lost is None:
        return found
    cycle = cycle_of(lost.end or Index(lost.last), cycles.shift)
    start = lost.end or index_of(cycle, SEQUENCE_FIRST, cycles.shift)
    return LostEnd(cycle=cycle, index=start, path=cycles.path_of(cycle), what=str(lost))


def _lost(cycles: Cycles, record: ClosedCycle) -> LostCycle:
    found = None
    if cycles.has(record.cycle):
        with suppress(QueueDamaged):
            found = count_in(cycles, record.cycle)
    return LostCycle(
        cycle=record.cycle, path=cycles.path_of(record.cycle), noted=record.excerpts, found=found
    )


def _unproved(queue: Queue) -> Unproved:
    mark = load_synced(queue.path)
    end = Chains(queue.cycles).readable_end()
    if mark is not None:
        doubtful = mark.doubtful_before(end)
    elif queue.is_follower and not queue.is_of_this_boot:
        doubtful = range(end)
    else:
        doubtful = NOTHING_DOUBTFUL
    start = max(doubtful.start, queue.first_index() or NEXT_OF_EMPTY)
    if not start < doubtful.stop:
        return Unproved(path=queue.path, start=end, end=end, excerpts=0, torn=())
    return _read(queue, Index(start), Index(doubtful.stop))


def _read(queue: Queue, start: Index, end: Index) -> Unproved:
    count, torn = 0, []
    tailer = queue.tailer(start)
    try:
        while (
            batch := tailer.next_batch(payload_max=NO_LIMIT)
        ) is not None and batch.index_first < end:
            here = min(len(batch), end - batch.index_first)
            place = first_doubtful(batch, 0)
            while place < here:
                torn.append(Index(batch.index_first + place))
                place = first_doubtful(batch, place + 1)
            count += here
    finally:
        tailer.close()
    return Unproved(path=queue.path, start=start, end=end, excerpts=count, torn=tuple(torn))
