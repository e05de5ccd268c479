"""A log of acknowledgements, itself a queue: one 40-byte excerpt for each.

0   last index acknowledged             int64, little-endian, as all five
8   nano time at which it was sent      monotonic clock of the source
16  nano time of the acknowledgement    the same clock: their difference is the round trip
24  excerpts that it acknowledged
32  payload bytes that it acknowledged
"""

import struct
import time
from pathlib import Path
from typing import Final

from cqrepl.protocol.events import Acknowledged
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.rollcycle import by_name

ENTRY: Final = struct.Struct("<5q")
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
