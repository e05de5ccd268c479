"""The cost of peers that read nothing, or slowly, to a source and its other sinks.

    python -m tests.bench.stalled [--stalled 1] [--slow BYTES] [--count 4000000] [--size 256]
                                  [--rounds 5]

A source has sinks that are stopped by a signal once they have its first excerpt. Then the excerpts
are appended, and once no more is sent another sink takes all of them: its rate, from its first
excerpt sent to the last one appended, is held against that beside as many sinks that have taken
all, in turn, and of all pairs the middle ratio is told. Beside it stands by how much the private
memory of the source has grown until it sent no more to those that are stopped.

With `--slow` they are not stopped, but take so many bytes a second (`tests.support.throttle`), and
the other sink begins when each has taken what it does in two seconds.
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
from tests.support.processes import send
from tests.support.throttle import Throttle

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


def take(throttle: Throttle, more_bytes: float) -> None:
    """Returns when a slow sink has taken so many bytes more."""
    wanted, deadline = throttle.passed + more_bytes, time.monotonic() + WAIT_SECONDS
    while throttle.passed < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"a slow sink took nothing within {WAIT_SECONDS:g} s")
        time.sleep(10 * LOOK_SECONDS)


def measure(
    folder: Path, size: int, count: int, *, stalled: int = 1, stops: bool = False, slow: int = 0
) -> tuple[float, float]:
    """Excerpts a second of one good sink, and MiB that the source has grown by before it came.

    Args:
        stops: the others are stopped; else they take all that comes.
        slow: or so many bytes a second.
    """
    path, log = folder / "q", folder / "appended"
    with Queue.open(path, create="FAST_DAILY") as queue, ExitStack() as stack:
        first = queue.append(bytes(size))
        listens = ("source", f"q={path}", "--listen", "127.0.0.1:0")
        source = stack.enter_context(running(folder, MODULE, *listens))
        throttles = []
        for host_id in range(FIRST_STALLED_ID, FIRST_STALLED_ID + stalled):
            copy, port = folder / f"copy-{host_id}", source.port()
            if slow:
                throttles.append(stack.enter_context(Throttle(port, slow).running()))
                port = throttles[-1].port
            words = ("sink", f"q={copy}", "--connect", f"127.0.0.1:{port}", "--host-id", host_id)
            sink = stack.enter_context(running(folder, MODULE, *words))
            wait_for(copy, first)
            if stops:
                assert send(sink.pid, signal.SIGSTOP)
        before_mib = source.private_mib()
        for _ in range(count // BATCH):
            last = queue.append_many([bytes(size)] * BATCH)
        if slow:
            for throttle in throttles:
                take(throttle, REST_SECONDS * slow)
        else:
            rest(queue)
        grown_mib = source.private_mib() - before_mib
        copy, to = folder / "copy", f"127.0.0.1:{source.port()}"
        own = ("sink", f"q={copy}", "--connect", to, "--host-id", 2, "--append-log", log)
        stack.enter_context(running(folder, MODULE, *own))
        wait_for(copy, last)
        time.sleep(REST_SECONDS)  # for the sink to note what it has appended
    noted = [each for each in log_entries(log) if each.excerpts]
    seconds = (noted[-1].noted_ns - noted[0].sent_ns) / 1e9
    return sum(each.excerpts for each in noted) / seconds, grown_mib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stalled", type=int, default=1, help="peers that read nothing")
    parser.add_argument("--slow", type=int, default=0, help="bytes a second that they take")
    parser.add_argument("--count", type=int, default=4_000_000, help="excerpts")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    ratios, grown = [], []
    for nth in range(arguments.rounds):
        rates = {}
        for is_bad in (False, True)[:: -1 if nth % 2 else 1]:
            with scratch() as folder:
                rates[is_bad], grown_mib = measure(
                    folder,
                    arguments.size,
                    arguments.count,
                    stalled=arguments.stalled,
                    stops=is_bad and not arguments.slow,
                    slow=arguments.slow if is_bad else 0,
                )
            if is_bad:
                grown.append(grown_mib / arguments.stalled)
            shown = f"{rates[is_bad]:12,.0f}/s  source grown by {grown_mib:5.1f} MiB"
            beside = "at rest" if not is_bad else "slow" if arguments.slow else "stalled"
            print(f"{beside}: {shown}  load {os.getloadavg()[0]:.2f}", flush=True)
        ratios.append(rates[True] / rates[False])
    ratio, memory = statistics.median(ratios), max(grown)
    verdicts = ["goal met" if ratio >= GOALS[0] else "missed"]
    verdicts.append("goal met" if memory <= GOALS[1] else "missed")
    print(f"rate x{ratio:.2f} ({min(ratios):.2f} .. {max(ratios):.2f}), {verdicts[0]}")
    print(f"at most {memory:.1f} MiB for each, {verdicts[1]}")


if __name__ == "__main__":
    main()
