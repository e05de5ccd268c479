"""The cost of policies to the live path: the one-way delay with each, beside that with none.

    python -m tests.bench.policies [--count 6000] [--gap-us 500] [--rounds 5] [--pauser busy]
                                   [--size 64]

A source runs in this process, its event loop in a thread; a sink is a process of its own. The main
thread appends, and waits for nothing: the delay is from there to where the sink has published the
excerpt (`--append-log`). Each round measures each policy, in turn; the first quarter is left out.
Told are the middle delays, and of all rounds the middle ratio to the one without acknowledgements.
"""

import argparse
import gc
import time
from bisect import bisect_left
from operator import attrgetter
from pathlib import Path

from cqrepl.bench.catchup import MODULE, log_entries
from cqrepl.bench.percentiles import percentile
from cqrepl.bench.processes import WAIT_SECONDS, running
from cqrepl.bench.report import scratch
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import PRESETS, AckPolicy
from cqrepl.queue import Queue
from tests.bench.rounds import asked, in_turn, loaded, verdict
from tests.bench.waitacked import SKIPPED_SHARE, source_of

NONE = "none"
POLICIES = {
    NONE: PRESETS["queue-unacknowledged"],
    "appended": AckPolicy(),
    "applied": AckPolicy(level=AckLevel.APPLIED),
    "synced": AckPolicy(level=AckLevel.SYNCED),
}
GOAL = 1.03  # for what makes no sink sync at once


def delay_us(folder: Path, policy: AckPolicy, arguments: argparse.Namespace) -> float:
    """The middle one-way delay of one round."""
    path, log, sent = folder / "q", folder / "log", []
    Queue.open(path, create="FAST_DAILY").close()
    words = (f"q={folder / 'copy'}", "--listen", "127.0.0.1:0", "--append-log", log)
    with running(folder, MODULE, "sink", *words) as sink:
        address = f"127.0.0.1:{sink.port()}"
        with source_of({"q": path}, address, arguments.pauser, policy), Queue.open(path) as queue:
            payload, now_ms = bytes(arguments.size), time.time_ns() // 1_000_000
            queue.append(payload, now_ms=now_ms)
            began = time.monotonic()
            while not any((folder / "copy").glob("*.cq4")):  # nothing has come there yet
                if time.monotonic() > began + WAIT_SECONDS:
                    raise TimeoutError("the sink took nothing in time")
                time.sleep(0.05)
            for _ in range(arguments.count):
                time.sleep(arguments.gap_us / 1e6)
                began_ns = time.monotonic_ns()
                sent.append((queue.append(payload, now_ms=now_ms), began_ns))
            time.sleep(2)  # for the sink to note what it has appended
    entries = list(log_entries(log))
    delays = []
    for index, began_ns in sent[len(sent) // SKIPPED_SHARE :]:
        entry = entries[bisect_left(entries, index, key=attrgetter("index_last"))]
        delays.append((entry.noted_ns - began_ns) / 1e3)
    return percentile(sorted(delays), 50)


def main() -> None:
    arguments = asked(__doc__, count=6000, gap_us=500.0, rounds=5, size=64, pauser="busy")
    gc.disable()  # a pause of this process would be taken for one of what is measured
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    for nth in range(arguments.rounds):
        for name in in_turn(POLICIES, nth):
            with scratch() as folder:
                found[name].append(delay_us(folder, POLICIES[name], arguments))
            print(f"{name:9} p50 {found[name][-1]:7.1f} us  {loaded()}", flush=True)
    for name, delays in found.items():
        ratios = [each / none for each, none in zip(delays, found[NONE], strict=True)]
        print(f"{name:9} {verdict(ratios, GOAL if name in ('appended', 'applied') else None)}")


if __name__ == "__main__":
    main()
