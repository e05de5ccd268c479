"""The cost of a source and a sink with many queues at rest, and the time that they take to start.

    python -m tests.bench.manyqueues [--queues 1000] [--seconds 60] [--rounds 3] [--closed 1]
                                     [--against PYTHON]

A round makes so many queues, each with `--closed` closed store files and an open one, and runs
`cqrepl source` and `cqrepl sink` on them as processes. *Start* is the time from before the first
process was started until the sink has all of every queue. Then, after a rest, the processor time of
each is taken, as its share of one core, beside that of a peer that only sleeps (`bench.idle`). The
processes use this interpreter's cqrepl; with `--against` every second round that of another one, as
of a worktree at another commit. The load of one minute stands beside each round.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from cqrepl.bench.report import scratch
from cqrepl.queue import ExcerptBatch, Queue, QueueLayout, index_of
from cqrepl.queue.format.index import Cycle, Sequence
from cqrepl.queue.format.rollcycle import by_name
from tests.bench.idle import replicated, shares
from tests.bench.rounds import asked, loaded

ROLL = "FAST_DAILY"
EXCERPTS = 10
SETTLE_SECONDS = 75.0  # until what has come is on the disk, read once more, and noted


def make_queues(folder: Path, count: int, closed: int) -> list[Path]:
    roll_cycle = by_name(ROLL)
    today = roll_cycle.cycle_at(time.time_ns() // 1_000_000, 0)
    paths = [folder / f"queue-{number}" for number in range(count)]
    for path in paths:
        with Queue.open_for_append(path, create=QueueLayout.of(roll_cycle)) as queue:
            appender = queue.appender()
            for cycle in range(today - closed, today + 1):
                index = index_of(Cycle(cycle), Sequence(0), roll_cycle.shift)
                appender.append_at(ExcerptBatch.of(index, [bytes(64)] * EXCERPTS))
    return paths


def measure(arguments: argparse.Namespace) -> tuple[float, float, float]:
    """Seconds to start, and the shares of source and sink."""
    with scratch() as folder:
        queues = make_queues(folder, arguments.queues, arguments.closed)
        began = time.monotonic()
        with replicated(folder, queues, 1, "balanced") as processes:
            start = time.monotonic() - began
            time.sleep(SETTLE_SECONDS)
            source, sink, peer = shares(processes, arguments.seconds)
            print(
                f"  start {start:.1f} s  source {source:.2%}  sink {sink:.2%}  peer {peer:.2%}"
                f"  {loaded()}",
                flush=True,
            )
            return start, source, sink


def main() -> None:
    arguments = asked(__doc__, queues=1000, closed=1, seconds=60.0, rounds=3, against="")
    pythons = [sys.executable, *([arguments.against] if arguments.against else [])]
    found: dict[str, list[tuple[float, float, float]]] = {python: [] for python in pythons}
    for _ in range(arguments.rounds):
        for python in pythons:
            print(python, flush=True)
            sys.executable = python  # of the processes that are started
            found[python].append(measure(arguments))
    for python, rounds in found.items():
        start, source, sink = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"{python}: median  start {start:.1f} s  source {source:.2%}  sink {sink:.2%}")


if __name__ == "__main__":
    main()
