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

A replicator writes them; programs that read a log as a queue need their layout too, so nothing here
needs a network. The monotonic clock starts anew with the machine: times never fall within one run
of it.
"""

import logging
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cqrepl.queue import Queue, QueueError, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.surroundings import surroundings

ENTRY: Final = struct.Struct("<5q")
ROLL_CYCLE: Final = "FAST_DAILY"
_NOTED: Final = 2  # place of the time of the acknowledgement
_logger = logging.getLogger(__name__)


def ack_time(payload: memoryview) -> int | None:
    """Nano time of an acknowledgement, for `seek_time`; None when it is no entry of the log."""
    if len(payload) != ENTRY.size:
        return None
    noted_ns: int = ENTRY.unpack(payload)[_NOTED]
    return noted_ns


class EntryLog:
    """Appends entries; the log is created when it is not there. Replication does not end over it.

    Args:
        path: directory of the log; None where no log is wanted, and then nothing is noted.
        name: of the queue that it tells of.
        what: is logged, as a complaint names it.

    Raises:
        QueueError: there is something else in its place.
    """

    def __init__(self, path: Path | None, name: str, what: str) -> None:
        self.is_wanted = path is not None
        self._name = name
        self._what = what
        self._queue: Queue | None = None
        if path is not None:
            has_queue = path.is_dir() and any(path.iterdir())
            create = None if has_queue else QueueLayout.of(by_name(ROLL_CYCLE))
            self._queue = Queue.open_for_append(path, create=create)
            self._appender = self._queue.appender()

    def note(self, entries: bytes) -> None:
        """Logs entries, which stand side by side; nothing once that has failed."""
        if self._queue is None or not entries:
            return
        each = [entries[at : at + ENTRY.size] for at in range(0, len(entries), ENTRY.size)]
        try:
            self._appender.append(each, surroundings().wall_ms())
        except (QueueError, OSError) as error:
            _logger.error("queue %r: %s are logged no more: %s", self._name, self._what, error)
            self.close()

    def close(self) -> None:
        """Closes the log; entries that are noted after that are forgotten."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None


def log_paths(log: Path | str | None, names: Iterable[str]) -> dict[str, Path | None]:
    """The directory of each queue's log; one below `log` for each of several queues."""
    names = list(names)
    if log is None:
        return dict.fromkeys(names)
    return {name: Path(log) / name if len(names) > 1 else Path(log) for name in names}
