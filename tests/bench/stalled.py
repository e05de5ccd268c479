"""What peers that read nothing cost a source and its other sinks.

    python -m tests.bench.stalled [--stalled 1] [--count 4000000] [--size 256] [--rounds 5]

A source has sinks that are stopped by a signal once they have its first excerpt. Then the excerpts
are appended, and once no more is sent another sink takes all of them: its rate, from its first
excerpt sent to the last one acknowledged, is held against that beside as many sinks that have taken
all, in turn, and of all pairs the middle ratio is told. Beside it stands by how much the private
memory of the source has grown until it sent no more to those that are stopped.
"""

import argparse
import os
import signal
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from cqrepl.bench.catchup import MODULE, log_entries
from cqrepl.bench.processes import LOOK_SECONDS, WAIT_SECONDS, running
from cqrepl.bench.report import scratch
from cqrepl.queue import Queue, QueueError

GOALS = (0.9, 8.0)
REST_SECONDS = 2.0  # longer than between two times that a source notes how far it has come
BATCH = 1000
FIRST_STALLED_ID = 3


def last_index(path: Path) -> int | None:
    """The last index of a queue; None while there is none, or no queue."""
    try:
        with Queue.open(path) as queue:
            return queue.last_index()
    except QueueError:
        return None


def wait_for(copy: Path, last: int | None) -> None:
    """Returns when a copy reaches so far."""
    deadline = time.monotonic() + WAIT_SECONDS
    while last_index(copy) != last:
        if time.monotonic() > deadline:
            raise QueueError(f"the copy was not complete within {WAIT_SECONDS:g} s", path=copy)
        time.sleep(10 * LOOK_SECONDS)


def rest(queue: Queue) -> None:
    """Returns when nothing is sent any more."""
    sent = None
    while sent != queue.sent_index:
        sent = queue.sent_index
        time.sleep(REST_SECONDS)


def measure(
    folder: Path, size: int, count: int, *, stalled: int = 1, stops: bool
) -> tuple[float, float]:
    """Excerpts a second of one good sink, and MiB that the source has grown by before it came."""
    path, log = folder / "q", folder / "acks"
    with Queue.open(path, create="FAST_DAILY") as queue, ExitStack() as stack:
        first = queue.append(bytes(size))
        listens = ("source", f"q={path}", "--listen", "127.0.0.1:0", "--ack-log", log)
        source = stack.enter_context(running(folder, MODULE, *listens))
        to = ("--connect", f"127.0.0.1:{source.port()}", "--host-id")
        for host_id in range(FIRST_STALLED_ID, FIRST_STALLED_ID + stalled):
            copy = folder / f"copy-{host_id}"
            words = ("sink", f"q={copy}", *to, host_id)
            sink = stack.enter_context(running(folder, MODULE, *words))
            wait_for(copy, first)
            if stops:
                os.kill(sink.pid, signal.SIGSTOP)
        before_mib = source.private_mib()
        for _ in range(count // BATCH):
            last = queue.append_many([bytes(size)] * BATCH)
        rest(queue)
        grown_mib = source.private_mib() - before_mib
        began_ns = time.monotonic_ns()
        copy = folder / "copy"
        stack.enter_context(running(folder, MODULE, "sink", f"q={copy}", *to, 2))
        wait_for(copy, last)
        rest(queue)  # for the source to note what was acknowledged
    noted = [each for each in log_entries(log) if each.noted_ns > began_ns and each.excerpts]
    noted = [each for each in noted if each.sent_ns > began_ns]
    seconds = (noted[-1].noted_ns - noted[0].sent_ns) / 1e9
    return sum(each.excerpts for each in noted) / seconds, grown_mib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stalled", type=int, default=1, help="peers that read nothing")
    parser.add_argument("--count", type=int, default=4_000_000, help="excerpts")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    ratios, grown = [], []
    for nth in range(arguments.rounds):
        rates = {}
        for stops in (False, True)[:: -1 if nth % 2 else 1]:
            with scratch() as folder:
                rates[stops], grown_mib = measure(
                    folder,
                    arguments.size,
                    arguments.count,
                    stalled=arguments.stalled,
                    stops=stops,
                )
            if stops:
                grown.append(grown_mib / arguments.stalled)
            shown = f"{rates[stops]:12,.0f}/s  source grown by {grown_mib:5.1f} MiB"
            beside = "stalled" if stops else "at rest"
            print(f"{beside}: {shown}  load {os.getloadavg()[0]:.2f}", flush=True)
        ratios.append(rates[True] / rates[False])
    ratio, memory = statistics.median(ratios), max(grown)
    verdicts = ["goal met" if ratio >= GOALS[0] else "missed"]
    verdicts.append("goal met" if memory <= GOALS[1] else "missed")
    print(f"rate x{ratio:.2f} ({min(ratios):.2f} .. {max(ratios):.2f}), {verdicts[0]}")
    print(f"at most {memory:.1f} MiB for each, {verdicts[1]}")


if __name__ == "__main__":
    main()
