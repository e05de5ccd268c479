"""Holds appends back until what a power cut may have torn has been compared with a copy.

Theory of operation. After another start of the machine what lay behind the synced mark may be torn
or gone, and a sink may have it whole. A source that runs gets it back, but only until a writer
appends there: then the two copies differ. So the first append in another start waits, where a sink
is known, until a source has compared the two, which its mark tells. It does not wait for long, as
there may be no source. Only the first process in each start of the machine waits in vain: the table
store tells the others that it has. Java's appenders wait for nothing.

A mark may also be above the end: the queue has lost excerpts that hosts know (`read.lostmarks`),
and what is appended now would get their indexes. So the first append of each appender refuses then,
until a copy has given back what is missing, or a person accepts the loss. So does an append that
finds its store file exchanged. A synced mark that tells of no excerpt is lowered to the end.
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
from cqrepl.queue.read.lostmarks import lost_mark
from cqrepl.surroundings import monotonic, surroundings

WAIT_FOR_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_WAITED_KEY: Final = "cqrepl.waited"
_logger: Final = logging.getLogger(__name__)


class TailWait:
    """Of one appender, for all threads that append with it.

    Args:
        table: the queue's, open for writing.
        marks: of the queue's replicas.
        seconds: the longest wait; 0: none.
    """

    def __init__(self, table: TableStore, cycles: Cycles, marks: KeptMarks, seconds: float) -> None:
        self._table = table
        self._cycles = cycles
        self._path = cycles.table_path.parent
        self._marks = marks
        self._seconds = seconds
        self._guard = threading.Lock()
        # where no start is told from another one, each process would wait for its own source
        self._may_wait = seconds > 0 and bool(surroundings().boot_id())
        self._is_over = False

    def wait(self) -> None:
        """Returns at once but for the first append in another start of the machine, and then when
        the tail has been compared, or after the time that was given for that.

        Raises:
            QueueDamaged: a mark is above the end.
            OSError: a synced mark that is behind the end cannot be lowered.
        """
        if self._is_over:
            return
        with self._guard:
            if not self._is_over:
                if self._may_wait:
                    self._wait()
                self.check_marks()
                self._lower_mark()
                self._is_over = True

    def check_marks(self, met: QueueError | None = None) -> None:
        """Does nothing while no mark is above the end.

        Args:
            met: the error of an append, which the answer is an explanation of.

        Raises:
            QueueDamaged: one is.
        """
        try:
            lost = lost_mark(self._cycles, self._table.keys())
        except (QueueError, OSError):
            return  # who writes meets it, and says so
        if lost is not None:
            raise lost.refusal(self._cycles, met) from met

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

    def _wait(self) -> None:
        if not self._is_uncertain() or not self._has_sinks():
            return
        waited = self._table.value(_WAITED_KEY, FORGOTTEN)
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
