"""Lets what a power cut may have torn be compared with a copy before something is appended behind.

Theory of operation. After another start of the machine what lay behind the synced mark may be torn
or gone, and a sink may have it whole. A source that runs gets it back, but only until somebody
appends there: then the two copies differ. So the first append in another start waits, where a sink
is known, until a source has compared the two, which its mark tells, and not for long: there may be
no source. It is waited for in vain once in each start of the machine, by whichever process is the
first; the table store says so. Java's appenders wait for nothing.

A mark may also lie behind the end: the queue has lost excerpts that were on the disk, and may have
been repaired since. What is appended now takes their indexes, and is not on the disk. So the first
append lowers the mark, as a host does that opens the queue; who compares copies hears no more of
the lost end from then on, and so it is warned of.
"""

import logging
import threading
from typing import Final

from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.keptmarks import KeptMarks
from cqrepl.queue.files.listing import boot_digest
from cqrepl.queue.files.markslots import FORGOTTEN
from cqrepl.queue.files.syncedmark import load_synced, lower_synced
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.index import format_index
from cqrepl.queue.read.count import end_index
from cqrepl.surroundings import monotonic, surroundings

WAIT_FOR_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_WAITED_KEY: Final = "cqrepl.waited"
_logger: Final = logging.getLogger(__name__)


class TailWait:
    """Of one open queue, for its local writers; any thread.

    Args:
        marks: of the queue's replicas.
        seconds: the longest wait; 0: none.
    """

    def __init__(self, cycles: Cycles, marks: KeptMarks, seconds: float) -> None:
        self._cycles = cycles
        self._path = cycles.table_path.parent
        self._marks = marks
        self._seconds = seconds
        self._guard = threading.Lock()
        # where no start is told from another one, each process would wait for its own source
        self._may_wait = seconds > 0 and bool(surroundings().boot_id())
        self._is_over = False

    def wait(self, table: TableStore) -> None:
        """Returns at once but for the first append in another start of the machine, and then when
        the tail has been compared, or after the time that was given for that.

        Raises:
            OSError: a mark that is behind the end cannot be lowered.
        """
        if self._is_over:
            return
        with self._guard:
            if not self._is_over:
                self._lower_mark()
                if self._may_wait:
                    self._wait(table)
                self._is_over = True

    def _lower_mark(self) -> None:
        try:
            mark = load_synced(self._path)
            if mark is None:
                return
            end = end_index(self._cycles)  # asked for later: an end goes on, and never back
        except (QueueError, OSError):
            return  # who writes meets it, and says so
        if mark.end > end:
            lower_synced(self._path, mark, end)
            _logger.warning(
                "%s: it was on the disk before %s, and ends at %s: what was between is gone, and"
                " what is appended takes its indexes",
                self._path,
                format_index(mark.end),
                format_index(end),
            )

    def _wait(self, table: TableStore) -> None:
        if not self._is_uncertain() or not self._has_sinks():
            return
        waited = table.value(_WAITED_KEY, FORGOTTEN)
        if waited.load() == boot_digest():
            return
        deadline = monotonic() + self._seconds
        while monotonic() < deadline:
            surroundings().sleep(_LOOK_SECONDS)
            if not self._is_uncertain():
                return
        waited.store(boot_digest())
        _logger.warning(
            "%s: the machine was started again, or a sync failed, and within %g s no source"
            " has compared it with its copies, which may have more: what comes is appended at %s",
            self._path,
            self._seconds,
            self._end(),
        )

    def _is_uncertain(self) -> bool:
        """True until a source of this start of the machine has compared all of it with a copy."""
        try:
            mark = load_synced(self._path)
            if mark is None or (mark.is_of_this_boot and not mark.doubtful):
                return False
            end = end_index(self._cycles)
        except (QueueError, OSError):
            return False  # who writes meets it, and says so
        return not mark.is_of_this_boot or bool(mark.doubtful_before(end))

    def _end(self) -> str:
        try:
            return format_index(end_index(self._cycles))
        except (QueueError, OSError) as error:
            return str(error)

    def _has_sinks(self) -> bool:
        try:
            known = self._marks.load()
        except (QueueError, OSError):
            return False
        return any(at > FORGOTTEN for levels in known.values() for at in levels.values())
