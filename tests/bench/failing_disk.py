"""The rate of nine good queues beside one on a full disk, all of them on the same connection.

    python -m tests.bench.failing_disk [--count 1000000] [--size 64] [--rounds 5] [--kernel native]

Ten queues are streamed over one connection, and the rate of the first nine is taken: excerpts from
the first one sent to the last one acknowledged, both on the source's clock. Once the tenth copy is
on a good disk, too, and once on a file system of 4 MiB, which is full at once and is tried again
and again. Both take turns, and each pair gives a ratio; of these the middle is told. Root mounts
the small file system.
"""

import os
import time
from contextlib import nullcontext
from pathlib import Path

from cqrepl.bench.catchup import MODULE, Work, log_entries, prepared
from cqrepl.bench.processes import running
from cqrepl.bench.report import scratch
from cqrepl.queue import QueueError
from tests.bench.rounds import LOOK_SECONDS, asked, await_copies, in_turn, last_index, verdict
from tests.net.test_disk_full import small_file_system

QUEUES = 10
GOAL = 0.95


def rate_of_nine(folder: Path, works: list[Work], *, fails: bool) -> float:
    """Excerpts a second of all queues but the last."""
    small, logs = folder / "small", folder / "acks"
    copies = [folder / f"copy-{number}" for number in range(QUEUES - 1)]
    copies.append(small / "copy" if fails else folder / "copy-last")
    given = [f"q{number}={work.queue}" for number, work in enumerate(works)]
    taken = [f"q{number}={copy}" for number, copy in enumerate(copies)]
    pairs = [(work.queue, copy) for work, copy in zip(works, copies, strict=True)]
    with small_file_system(small, "4m") if fails else nullcontext():
        with running(folder, MODULE, "sink", *taken, "--listen", "127.0.0.1:0") as sink:
            address = f"127.0.0.1:{sink.port()}"
            options = ("--connect", address, "--ack-log", logs)
            with running(folder, MODULE, "source", *given, *options) as source:
                await_copies(pairs[:-1], source, sink)
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
    arguments = asked(__doc__, count=1_000_000, size=64, rounds=5, kernel="native")
    os.environ["CQREPL_KERNEL"] = arguments.kernel  # of the processes that are started
    ratios = []
    with scratch() as kept:
        works = [
            prepared(kept / f"q{number}", arguments.size, arguments.count)
            for number in range(QUEUES)
        ]
        for nth in range(arguments.rounds):
            rates = {}
            for fails in in_turn((True, False), nth):
                with scratch() as folder:
                    rates[fails] = rate_of_nine(folder, works, fails=fails)
            ratios.append(rates[True] / rates[False])
            print(
                f"ten good {rates[False]:12,.0f}/s   one full {rates[True]:12,.0f}/s"
                f"   x{ratios[-1]:.3f}",
                flush=True,
            )
    print(f"of the nine: {verdict(ratios, GOAL, wants_more=True)}")


if __name__ == "__main__":
    main()
