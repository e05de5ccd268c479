"""The files of one queue, and the mark up to where they are on the disk.

Theory of operation. The store files are synced first, and only then the mark says so. Several
threads may want that of one queue; one does it at a time. No mark is written any more once the
queue is given up: another process may have it by then, and cut its end off. So who gives it up
waits for a mark that is being written, but not for the disk: what it says is true by then. Where a
sync of a store file fails the mark never rises in this process: the system may have dropped the
pages. It tells of that once; so the mark tells the next process, where it does not rise either
before the machine is started again (`files.syncedmark`).

It tells of it once for each time that the file was opened; who opens it when another one has been
told hears nothing. So the file that is appended to stays open from one sync to the next: then a
failure of which another program's sync was told, Java's too, is heard of here. Where descriptors
are few it is opened for each sync, and what others of this package were told is in the mark.
"""

import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.mapping import close_file, identity_in, open_at_once, open_to_read
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME
from cqrepl.queue.files.sidefile import open_side_file
from cqrepl.queue.files.syncedmark import (
    NOTHING_DOUBTFUL,
    SyncedMark,
    load_synced,
    lower_synced,
    note_failed_sync,
    store_synced,
)
from cqrepl.queue.format.errors import NO_ROOM, DurabilityLost
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of
from cqrepl.replicator.queuestate.descriptors import are_plenty
from cqrepl.replicator.queuestate.durations import Durations
from cqrepl.surroundings import monotonic, surroundings, sync_path

TABLE_SECONDS: Final = (
    1.0  # between two syncs of the table store, while the store file is waited for
)


class SyncedFiles:
    """Those of an open queue.

    Args:
        mark: as it was found; None for none.
        end: the queue's next index. A mark beyond it tells of excerpts that are gone: what comes in
            their place is not on the disk by that, and so it is lowered.
        keeps_lost: such a mark is lowered before something comes in their place, and stays until
            then: appenders see by it what is missing.

    Attributes:
        end: everything before this next index is on the disk.
        doubtful: but for these, of which that is not known, says the mark.
        is_of_this_boot: the mark is, or there was none.
        has_failed: nothing more is known to get there.
        times: how long syncs took.
    """

    def __init__(
        self, queue: Queue, mark: SyncedMark | None, end: Index, *, keeps_lost: bool = False
    ) -> None:
        self._queue = queue
        if mark is not None and mark.end > end:
            if not keeps_lost:
                self.lower_to(end)
            mark = mark.lowered(end)
        self.end = NEXT_OF_EMPTY if mark is None else mark.end
        self.doubtful = NOTHING_DOUBTFUL if mark is None else mark.doubtful
        self.is_of_this_boot = mark is None or mark.is_of_this_boot
        self.has_failed = mark is not None and mark.has_failed
        self._turn = threading.Lock()  # of one thread after the other
        self._marking = threading.Lock()
        self._is_given_up = False
        self.times = Durations()
        self._table_due = -math.inf  # by the monotonic clock
        self._last: _OpenFile | None = None  # that was synced last

    def lower_to(self, end: Index) -> None:
        """New excerpts from `end` on take the place of lost ones."""
        with suppress(OSError):  # the next sync writes it, or meets the error
            mark = load_synced(self._queue.path)
            if mark is not None and mark.end > end:
                lower_synced(self._queue.path, mark, end)

    def lacks(self, end: Index, doubtful: range) -> bool:
        """True when a sync up to this end would let the mark say more."""
        return end > self.end or doubtful != self.doubtful or not self.is_of_this_boot

    def give_up(self) -> None:
        """No mark is written from now on."""
        with self._marking:
            self._is_given_up = True
        self._close_if_idle()

    def sync(self, end: Index, doubtful: range, *, is_at_once: bool) -> QueueError | OSError | None:
        """Syncs the files and marks that; what was in the way, if that may pass. In any thread.

        Args:
            end: the queue's next index, or one before.
            doubtful: indexes before that may be torn by an earlier power cut.
            is_at_once: a source waits for what is in the store file.

        Raises:
            QueueError, OSError: of the files, or the mark, nothing is known any more.
        """
        try:
            with self._turn:
                if self._is_given_up or self.has_failed or not self.lacks(end, doubtful):
                    return None
                try:
                    with self.times.measured():
                        return self._sync(end, is_at_once=is_at_once) or self._mark(end, doubtful)
                except (QueueError, OSError):
                    self.has_failed = True
                    self._close_last()
                    raise
        finally:
            if self._is_given_up:  # meanwhile
                self._close_if_idle()

    def keep_none_open(self) -> None:
        """Others need the descriptor; what is synced now keeps it for that long."""
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        """Else the thread that syncs does it when it has ended."""
        if self._turn.acquire(blocking=False):
            try:
                self._close_last()
            finally:
                self._turn.release()

    def _close_last(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None

    def _sync(self, end: Index, *, is_at_once: bool) -> QueueError | OSError | None:
        try:
            self._sync_files(end, is_at_once=is_at_once)
        except (QueueError, OSError) as error:
            if _is_of_a_name(error):
                return error
            if isinstance(error, OSError):  # else nothing was synced, as where a name is strange
                self._mark_failed()
            raise
        return None

    def _sync_files(self, end: Index, *, is_at_once: bool) -> None:
        cycles, shift = self._queue.cycles, self._queue.layout.roll_cycle.shift
        start = self.doubtful.start if self.doubtful else self.end  # what was mended, too
        first, last = cycle_of(Index(start), shift), cycle_of(end, shift)
        for cycle in cycles.listing() if first < last else [last]:
            if first <= cycle <= last:
                self._sync_store(cycles.path_of(cycle), is_last=cycle == last)
        # what waits for the store file does not wait for the marks of hosts, which change with it
        if first < last or not is_at_once or monotonic() >= self._table_due:
            self._table_due = monotonic() + TABLE_SECONDS
            _sync_file(cycles.table_path, open_at_once)
            _sync_file(self._queue.path / SLOTS_FILE_NAME, open_side_file)
        if first < last:
            sync_path(self._queue.path)

    def _sync_store(self, path: Path, *, is_last: bool) -> None:
        if self._last is not None and self._last.is_at(path):
            surroundings().sync(self._last.descriptor)
            return
        if not is_last or not are_plenty():
            _sync_file(path, open_at_once)
            return
        try:
            opened = _OpenFile(path)
        except FileNotFoundError:
            return  # there was none, or retention has taken it
        self._close_last()
        self._last = opened
        surroundings().sync(opened.descriptor)

    def _mark_failed(self) -> None:
        """For the next process. That need not get to the disk: to another start of the machine the
        mark that is there tells the same."""
        with suppress(OSError):
            note_failed_sync(self._queue.path)

    def _mark(self, end: Index, doubtful: range) -> OSError | None:
        try:
            is_stored = store_synced(self._queue.path, end, doubtful, self._while_wanted)
        except DurabilityLost:
            with suppress(OSError):  # as when it was read last
                mark = load_synced(self._queue.path)
                self.end = self.end if mark is None else min(self.end, mark.end)
            raise
        except OSError as error:
            if error.errno in NO_ROOM or _is_of_a_name(error):
                return error
            raise
        if is_stored:
            self.end, self.doubtful, self.is_of_this_boot = end, doubtful, True
        return None

    @contextmanager
    def _while_wanted(self) -> Iterator[bool]:
        """Gives true when a mark may be written, for the length of a block."""
        with self._marking:
            yield not self._is_given_up


def _is_of_a_name(error: QueueError | OSError) -> bool:
    """True for an error of a call that takes a name, as opening does: only calls that sync tell of
    pages that the system may have dropped, and they take a descriptor."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.filename is not None


def _sync_file(path: Path, opened: Callable[[Path, int], int]) -> None:
    try:
        descriptor = opened(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # there was none, or retention has taken it
    try:
        surroundings().sync(descriptor)
    finally:
        close_file(descriptor)


class _OpenFile:
    """A store file that stays open, until it is closed or this object is gone."""

    def __init__(self, path: Path) -> None:
        self.descriptor = open_to_read(path)
        self.close = weakref.finalize(self, close_file, self.descriptor)
        self._identity = identity_in(os.fstat(self.descriptor))

    def is_at(self, path: Path) -> bool:
        """False where the path leads to another file, or to none."""
        try:
            return identity_in(os.stat(path)) == self._identity
        except FileNotFoundError:
            return False
