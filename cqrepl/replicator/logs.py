"""A log of what became of a queue's excerpts, itself a queue.

Its entries are those of `cqrepl.replicator.logentry`: one for each acknowledgement at a source, one
for each batch appended at a sink.
"""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cqrepl.queue import Queue, QueueError, QueueLayout
from cqrepl.queue.format.rollcycle import by_name

ROLL_CYCLE: Final = "FAST_DAILY"
_logger = logging.getLogger(__name__)


class EntryLog:
    """Appends entries; the log is created when it is not there. Replication does not end over it.

    Args:
        name: of the queue that it tells of.
        what: is logged, as a complaint names it.

    Raises:
        QueueError: there is something else in its place.
    """

    def __init__(self, path: Path, name: str, what: str) -> None:
        has_queue = path.is_dir() and any(path.iterdir())
        create = None if has_queue else QueueLayout.of(by_name(ROLL_CYCLE))
        self._name = name
        self._what = what
        self._queue: Queue | None = Queue.open_for_append(path, create=create)
        self._appender = self._queue.appender()

    def note(self, entries: Iterable[bytes]) -> None:
        """Logs entries; nothing once that has failed."""
        each = list(entries)
        if self._queue is None or not each:
            return
        try:
            self._appender.append(each, time.time_ns() // 1_000_000)
        except (QueueError, OSError) as error:
            _logger.error("queue %r: %s are logged no more: %s", self._name, self._what, error)
            self.close()

    def close(self) -> None:
        """Closes the log; whatever is noted then is forgotten."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None


def log_paths(log: Path | str | None, names: Iterable[str]) -> dict[str, Path | None]:
    """The directory of each queue's log; one below `log` for each of several queues."""
    names = list(names)
    if log is None:
        return dict.fromkeys(names)
    return {name: Path(log) / name if len(names) > 1 else Path(log) for name in names}
