"""A writer at a fixed pace, as a process of its own: `python -m cqrepl.bench.pacer ...`.

It keeps to its schedule in any case: a batch that cannot go out in time goes out late, but
carries the time at which it should have, and the next one is due when it was due before. So a stall
anywhere shows in all excerpts that it delayed (no "coordinated omission"). Each batch begins with

    0   nano time at which it was due     monotonic clock, little-endian int64, as both
    8   nano time just before the append

It sleeps until shortly before a batch is due, then polls the clock: waking up takes the system
longer than what is measured here. It may poll all the time, as a program does that sends such
excerpts and never sleeps; another thread that wants its processor gets it all the same.
"""

import gc
import os
import struct
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from cqrepl.queue import Queue

STAMPS: Final = struct.Struct("<qq")
MODULE: Final = "cqrepl.bench.pacer"
POLLED_NS: Final = 120_000
_REST_S: Final = 0.1  # ending takes time of a processor: not while the last excerpt is on its way
_LEAD_NS: Final = 100_000_000  # before the first batch: this process is warm by then


class Pace(NamedTuple):
    """The size of excerpts, and the size, count and interval of batches to append; `now_ms` keeps
    all of them in one cycle.

    The clock is polled the last `polled_ns` before a batch is due.
    """

    size: int
    batches: int
    batch: int
    interval_ns: int
    now_ms: int
    polled_ns: int = POLLED_NS


def write(path: Path, pace: Pace) -> None:
    """Appends all of it, each batch when it is due."""
    rest = [bytes(pace.size)] * (pace.batch - 1)
    filler = bytes(pace.size - STAMPS.size)
    with Queue.open(path) as queue:
        began_ns = time.monotonic_ns() + _LEAD_NS
        for number in range(pace.batches):
            due_ns = began_ns + number * pace.interval_ns
            _wait_until(due_ns, pace.polled_ns)
            timed = STAMPS.pack(due_ns, time.monotonic_ns()) + filler
            if rest:
                queue.append_many([timed, *rest], now_ms=pace.now_ms)
            else:
                queue.append(timed, now_ms=pace.now_ms)
        time.sleep(_REST_S)


def _wait_until(due_ns: int, polled_ns: int) -> None:
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > polled_ns:
        time.sleep((left_ns - polled_ns) / 1e9)
    while time.monotonic_ns() < due_ns:
        os.sched_yield()


def main() -> None:
    """Takes the queue and the numbers of a `Pace` as arguments."""
    gc.disable()  # a pause of this process would be taken for one of what is measured
    write(Path(sys.argv[1]), Pace(*map(int, sys.argv[2:])))


if __name__ == "__main__":
    main()
