"""The rate of nine good queues beside one on a full disk, all of them on the same connection.

    python -m tests.bench.failing_disk [--count 1000000] [--size 64] [--rounds 5] [--kernel native]

Ten queues are streamed over one connection, and the rate of the first nine is taken: excerpts from
the first one sent to the last one acknowledged, both on the source's clock. Once the tenth copy is
on a good disk, too, and once on a file system of 4 MiB, which is full at once and is tried again
and again. Both take turns, and each pair gives a ratio; of these the middle is told. Root mounts
the small file system.
"""

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from cqrepl.bench.catchup import MODULE, Work, log_entries, prepared
from cqrepl.bench.processes import WAIT_SECONDS, running
from cqrepl.bench.report import scratch
from cqrepl.queue import Queue, QueueError

QUEUES = 10
LOOK_SECONDS = 0.05
GOAL = 0.95


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """A file system that is soon full, for the length of a block."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def last_index(path: Path) -> int | None:
    """The last index of a queue; -1 while there is no queue."""
    try:
        with Queue.open(path) as queue:
            return queue.last_index()
    except QueueError:
        return -1


def rate_of_nine(folder: Path, works: list[Work], *, fails: bool) -> float:
    """Excerpts a second of all queues but the last."""
    small, logs = folder / "small", folder / "acks"
    copies = [folder / f"copy-{number}" for number in range(QUEUES - 1)]
    copies.append(small / "copy" if fails else folder / "copy-last")
    given = [f"q{number}={work.queue}" for number, work in enumerate(works)]
    taken = [f"q{number}={copy}" for number, copy in enumerate(copies)]
    wanted = [last_index(work.queue) for work in works[:-1]]
    with full_disk(small) if fails else nullcontext():
        with running(folder, MODULE, "sink", *taken, "--listen", "127.0.0.1:0") as sink:
            address = f"127.0.0.1:{sink.port()}"
            options = ("--connect", address, "--ack-log", logs)
            with running(folder, MODULE, "source", *given, *options) as source:
                deadline = time.monotonic() + WAIT_SECONDS
                while [last_index(copy) for copy in copies[:-1]] != wanted:
                    source.check()
                    sink.check()
                    if time.monotonic() > deadline:
                        raise QueueError("the good copies were not complete in time")
                    time.sleep(LOOK_SECONDS)
                time.sleep(10 * LOOK_SECONDS)  # for the last acknowledgements to be noted
        if fails and last_index(copies[-1]) == last_index(works[-1].queue):
            raise QueueError("the tenth copy is complete: nothing has failed")
    entries = [
        entry
        for number in range(QUEUES - 1)
        for entry in log_entries(logs / f"q{number}")
        if entry.excerpts
    ]
    began_ns = min(entry.sent_ns for entry in entries)
    ended_ns = max(entry.noted_ns for entry in entries)
    return sum(entry.excerpts for entry in entries) / (ended_ns - began_ns) * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="excerpts in each queue")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernel", default="native")
    arguments = parser.parse_args()
    os.environ["CQREPL_KERNEL"] = arguments.kernel  # of the processes that are started
    ratios = []
    with scratch() as kept:
        works = [
            prepared(kept / f"q{number}", arguments.size, arguments.count)
            for number in range(QUEUES)
        ]
        for number in range(arguments.rounds):
            rates = {}
            for fails in (False, True) if number % 2 else (True, False):
                with scratch() as folder:
                    rates[fails] = rate_of_nine(folder, works, fails=fails)
            ratios.append(rates[True] / rates[False])
            print(
                f"ten good {rates[False]:12,.0f}/s   one full {rates[True]:12,.0f}/s"
                f"   x{ratios[-1]:.3f}",
                flush=True,
            )
    middle = statistics.median(ratios)
    verdict = "goal met" if middle >= GOAL else "missed"
    print(f"of the nine: x{middle:.3f} ({min(ratios):.3f} .. {max(ratios):.3f}), {verdict}")


if __name__ == "__main__":
    main()
