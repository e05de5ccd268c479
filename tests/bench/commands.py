"""The time that `cqrepl tail -n 10` and `cqrepl info` take on small and on large queues.

    python -m tests.bench.commands [--rounds 7] [--cycles 100] [--counts 1000,100000]

For each number of excerpts a cycle, a queue with as many cycles is made in a temporary folder. Then
both commands run on all queues in turn, as whole processes with their start-up; medians.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name

BATCH = 1000
PAYLOAD_BYTES = 16
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
CQREPL = Path(sys.executable).with_name("cqrepl")
COMMANDS = (("tail", "-n", "10"), ("info",))


def make_queue(path: Path, cycles: int, count: int) -> None:
    payloads = [number.to_bytes(PAYLOAD_BYTES, "little") for number in range(BATCH)]
    with Queue.open(path, create=QueueLayout.of(by_name("FAST_DAILY"))) as queue:
        for cycle in range(cycles):
            for start in range(0, count, BATCH):
                now_ms = START_MS + cycle * DAY_MS
                queue.append_many(payloads[: count - start], now_ms=now_ms)


def seconds(*arguments: object) -> float:
    """The seconds that one whole process takes."""
    began = time.perf_counter()
    command = [str(CQREPL), *map(str, arguments)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--counts", default="1000,100000")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.counts.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: Path(folder) / str(count) for count in counts}
        for count, path in paths.items():
            make_queue(path, arguments.cycles, count)
            print(f"made {arguments.cycles} cycles of {count:,} excerpts", flush=True)
        taken: dict[tuple[str, int], list[float]] = {}
        for _ in range(arguments.rounds):
            for name, *options in COMMANDS:
                for count, path in paths.items():
                    taken.setdefault((name, count), []).append(seconds(name, path, *options))
    for (name, count), found in taken.items():
        total = count * arguments.cycles
        print(f"{name:<5} {total:>12,} excerpts  median {statistics.median(found):.3f} s")


if __name__ == "__main__":
    main()
