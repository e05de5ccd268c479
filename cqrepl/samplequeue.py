"""A queue to try things on: what the demonstration replicates, and the benchmarks as well."""

import os
import time
from pathlib import Path
from typing import Final

from cqrepl.console.meter import show_line
from cqrepl.queue import Queue

_ROLL_CYCLE: Final = "FAST_DAILY"
_BATCH_BYTES: Final = 1 << 20


def make_queue(path: Path, count: int, size: int) -> None:
    """A queue of `count` excerpts of `size` bytes, no two alike."""
    with Queue.open(path, create=_ROLL_CYCLE) as queue:
        appender = queue.appender(payload_max=max(size, 1))  # a sink has its own limit
        seed = os.urandom(max(size, 8))
        per_batch = max(1, _BATCH_BYTES // max(size, 1))
        now_ms = time.time_ns() // 1_000_000
        for start in range(0, count, per_batch):
            numbers = range(start, min(count, start + per_batch))
            payloads = [(number.to_bytes(8, "little") + seed)[:size] for number in numbers]
            appender.append(payloads, now_ms)
            show_line(f"{100 * start // count} % of the queue written")
    show_line("")
