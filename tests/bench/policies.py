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
import os
import statistics
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
from tests.bench.waitacked import PAUSERS, SKIPPED_SHARE, source_of

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
        with (
            source_of({"q": path}, address, arguments.pauser, policy),
            Queue.open(path) as queue,
        ):
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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=6000, help="excerpts of a round")
    parser.add_argument("--gap-us", type=float, default=500, help="rest before each append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--pauser", default="busy", choices=PAUSERS)
    arguments = parser.parse_args()
    gc.disable()  # a pause of this process would be taken for one of what is measured
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    for nth in range(arguments.rounds):
        for name in list(POLICIES)[:: -1 if nth % 2 else 1]:
            with scratch() as folder:
                found[name].append(delay_us(folder, POLICIES[name], arguments))
            load = os.getloadavg()[0]
            print(f"{name:9} p50 {found[name][-1]:7.1f} us  load {load:.2f}", flush=True)
    for name, delays in found.items():
        ratios = [each / none for each, none in zip(delays, found[NONE], strict=True)]
        middle = statistics.median(ratios)
        verdict = ""
        if name in ("appended", "applied"):
            verdict = f", {'goal met' if middle <= GOAL else 'missed'}"
        print(f"{name:9} x{middle:.2f} ({min(ratios):.2f} .. {max(ratios):.2f}){verdict}")


if __name__ == "__main__":
    main()
