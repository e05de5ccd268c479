"""Logs of what became of a queue's excerpts, each itself a queue, and the layout of their entries.

A source's log has one entry for each acknowledgement, 40 bytes:

    0   last index acknowledged             int64, little-endian, as all five
    8   nano time at which it was sent      monotonic clock of the source
    16  nano time of the acknowledgement    the same clock: their difference is the round trip
    24  excerpts that it acknowledged
    32  payload bytes that it acknowledged

A sink's log has one for each batch appended, with what was appended in place of what was
acknowledged, and at 16 the time on its own clock just after readers could see it. One batch holds
what was there together: it may have been sent in several, and then the time at 8 is that of the
last.

A log is told from other queues by the key `cqrepl.log` of its table store, 1 for a source's and 2
for a sink's. One from before that key counts when its first excerpt is as long as an entry.

A replicator writes them; programs that read a log as a queue need their layout too, so nothing here
needs a network. The monotonic clock starts anew with the machine: times never fall within one run
of it.
"""

import logging
import struct
from collections.abc import Iterable
from contextlib import closing
from enum import IntEnum
from pathlib import Path
from typing import Final

from cqrepl.protocol.events import Acknowledged
from cqrepl.queue import LayoutMismatch, Queue, QueueError, QueueLayout
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.errors import NO_ROOM
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.queuestate.descriptors import is_none_left
from cqrepl.surroundings import surroundings

ENTRY: Final = struct.Struct("<5q")
ROLL_CYCLE: Final = "FAST_DAILY"
WAITING_BYTES_MAX: Final = 25_000 * ENTRY.size  # 1 MB; kept for a log that finds no room now
_KEY: Final = "cqrepl.log"
_logger = logging.getLogger(__name__)


class LogKind(IntEnum):
    """The subject of a log; the value is that of its key in the table store."""

    ACKNOWLEDGEMENTS = 1
    APPENDED = 2

    def __str__(self) -> str:
        return "acknowledgements" if self is LogKind.ACKNOWLEDGEMENTS else "appended excerpts"


class EntryLog:
    """Appends entries; the log is created when it is not there. Replication does not end over it.

    Where the machine has no room for an entry now (no descriptors, a full disk), it waits with
    those that follow, in memory, up to a limit, and `retry` has them logged. Any other error ends
    the log.

    Args:
        path: directory of the log; None where no log is wanted, and then nothing is noted.
        name: of the queue that it tells of.
        kind: what is logged.
        waiting: entries that are to be logged first.

    Raises:
        LayoutMismatch: there is another queue in its place, to which nothing was written.
        QueueError: there is something else in its place.
    """

    def __init__(self, path: Path | None, name: str, kind: LogKind, waiting: bytes = b"") -> None:
        self.is_wanted = path is not None
        self._name = name
        self._kind = kind
        self._queue: Queue | None = None
        self._waiting = waiting
        self._dropped = 0  # entries for which there was no room in memory either
        if path is not None:
            has_queue = holds_queue(path)
            if has_queue:
                _check_log(path, name, kind)
            create = None if has_queue else QueueLayout.of(by_name(ROLL_CYCLE))
            self._queue = Queue.open_for_append(path, create=create)
            try:
                self._appender = self._queue.appender()
                with closing(TableStore(path / FILE_NAME, writable=True)) as table:
                    table.value(_KEY, kind)
            except BaseException:
                self.close()  # the caller never gets it
                raise

    def note(self, entries: bytes) -> None:
        """Logs entries, which stand side by side; nothing once that has failed for good."""
        if self._queue is None or not entries:
            return
        if self._waiting:
            self._keep(entries)
        else:
            self._log(entries)

    def retry(self) -> None:
        """Logs what waits for that."""
        if self._queue is None or not self._waiting:
            return
        entries, self._waiting = self._waiting, b""
        self._log(entries, is_news=False)
        if self._queue is not None and not self._waiting:
            lost = f"; entries lost: {self._dropped:,}" if self._dropped else ""
            _logger.warning("queue %r: %s are logged again%s", self._name, self._kind, lost)
            self._dropped = 0

    def rest(self) -> bytes:
        """Closes the log for a while: the entries that are to be logged when it is opened again."""
        waiting, self._waiting = self._waiting, b""
        self.close()
        return waiting

    def close(self) -> None:
        """Closes the log; entries that are noted after that are forgotten."""
        self.retry()
        if self._queue is not None:
            lost = self._dropped + len(self._waiting) // ENTRY.size
            if lost:
                _logger.error("queue %r: %s: entries lost: %d", self._name, self._kind, lost)
            self._queue.close()
            self._queue = None

    def _log(self, entries: bytes, *, is_news: bool = True) -> None:
        """Appends entries; those that cannot be now wait."""
        assert self._queue is not None
        each = [entries[at : at + ENTRY.size] for at in range(0, len(entries), ENTRY.size)]
        try:
            self._appender.append(each, surroundings().wall_ms())
        except (QueueError, OSError) as error:
            if _has_no_room(error):
                self._keep(entries)
                if is_news:
                    _logger.error(
                        "queue %r: %s are not logged for now: %s", self._name, self._kind, error
                    )
                return
            _logger.error("queue %r: %s are logged no more: %s", self._name, self._kind, error)
            self._queue.close()
            self._queue = None

    def _keep(self, entries: bytes) -> None:
        room = WAITING_BYTES_MAX - len(self._waiting)
        self._waiting += entries[:room]
        self._dropped += len(entries[room:]) // ENTRY.size


def _has_no_room(error: QueueError | OSError) -> bool:
    """True for an error over too few descriptors, or no space, for now."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return is_none_left(error) or (isinstance(cause, OSError) and cause.errno in NO_ROOM)


def _check_log(path: Path, name: str, kind: LogKind) -> None:
    """Raises LayoutMismatch for a queue that is no such log."""
    found = _kind_of(path)
    if found is None:
        with Queue.open(path) as queue:
            first = queue.tailer().next_batch(count_max=1)
            is_usual = queue.layout.roll_cycle.name == ROLL_CYCLE
        is_log = is_usual and (first is None or first.lengths[0] == ENTRY.size)
    else:
        is_log = found == kind
    if not is_log:
        raise LayoutMismatch(
            f"a log of {kind} expected for queue {name!r}, another queue is there", path=path
        )


def _kind_of(path: Path) -> int | None:
    try:
        with closing(TableStore(path / FILE_NAME, writable=False)) as table:
            key = table.find(_KEY)
            return None if key is None else key.load()
    except FileNotFoundError:
        return None


def named_logs(
    ack_log: Path | None, sources: Iterable[str], append_log: Path | None, sinks: Iterable[str]
) -> dict[str, Path]:
    """The directory of each log of a host, by what it is, for people."""
    kinds = (
        (LogKind.ACKNOWLEDGEMENTS, log_paths(ack_log, sources)),
        (LogKind.APPENDED, log_paths(append_log, sinks)),
    )
    return {
        f"the log of {kind} of queue {name!r}": path
        for kind, logs in kinds
        for name, path in logs.items()
        if path is not None
    }


def log_paths(log: Path | str | None, names: Iterable[str]) -> dict[str, Path | None]:
    """The directory of each queue's log; one below `log` for each of several queues."""
    names = list(names)
    if log is None:
        return dict.fromkeys(names)
    return {name: Path(log) / name if len(names) > 1 else Path(log) for name in names}


def acknowledgement_entry(event: Acknowledged, now_ns: int) -> bytes:
    """The entry of an acknowledgement that came at this time."""
    return ENTRY.pack(event.index, event.ns, now_ns, event.excerpts, event.payload_bytes)
