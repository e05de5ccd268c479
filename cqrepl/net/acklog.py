"""A log of acknowledgements, itself a queue: one excerpt for each (`cqrepl.queue.ackentry`)."""

import time
from pathlib import Path
from typing import Final

from cqrepl.protocol.events import Acknowledged
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.ackentry import ENTRY
from cqrepl.queue.rollcycle import by_name

_ROLL_CYCLE: Final = "FAST_DAILY"


class AckLog:
    """Appends an entry for each acknowledgement; created when it is not there."""

    def __init__(self, path: Path) -> None:
        has_queue = path.is_dir() and any(path.iterdir())
        create = None if has_queue else QueueLayout.of(by_name(_ROLL_CYCLE))
        self._queue = Queue.open_for_append(path, create=create)
        self._appender = self._queue.appender()

    def note(self, event: Acknowledged) -> None:
        """Logs one acknowledgement, now."""
        now_ns = time.monotonic_ns()
        entry = ENTRY.pack(event.index, event.ns, now_ns, event.excerpts, event.payload_bytes)
        self._appender.append([entry], time.time_ns() // 1_000_000)

    def close(self) -> None:
        self._queue.close()
