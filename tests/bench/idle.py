"""The cost of a source and its sinks while nothing comes, and how soon they take the next one.

    python -m tests.bench.idle [--seconds 20] [--kernels native,python] [--queues 1,30]
                               [--sinks 1,3] [--pauser balanced] [--delays 50] [--empty]

For each kernel, number of queues and number of sinks, `cqrepl source` and `cqrepl sink` run as
processes. When they have been at rest for some time, the processor time of each is taken over
`--seconds`, as its share of one core, and so is that of a peer that runs beside them: a process
that does nothing but sleep for a millisecond, again and again. The machine's own noise is in both.

Then single excerpts are appended by this process: each after two seconds of nothing, and as many
each a tenth of a second after the last. A delay is the time until the excerpt can be read in the
first sink's copy, by a reader that spins.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

from cqrepl.bench.percentiles import percentile
from cqrepl.bench.processes import Running, running, source_options
from cqrepl.bench.report import scratch
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.bench.rounds import asked, await_copies, numbers

MODULE = "cqrepl"
FIRST_SINK_ID = 2
SETTLE_SECONDS = 5.0
REST_SECONDS = 2.0
BUSY_SECONDS = 0.1
SPREAD_SECONDS = 0.013  # so that appends do not keep step with looks
PATIENCE_SECONDS = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
PEER = "import time\nwhile True: time.sleep(0.001)"


def processor_seconds(pid: int) -> float:
    """The processor time of a process so far, in all its threads, also in those that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def make_queues(folder: Path, count: int, *, is_empty: bool) -> list[Path]:
    paths = [folder / f"queue-{number}" for number in range(count)]
    for path in paths:
        with Queue.open(path, create=QueueLayout.of(by_name("FAST_DAILY"))) as queue:
            if not is_empty:
                queue.append_many([bytes(64)] * 10)
    return paths


@contextmanager
def replicated(
    folder: Path, queues: list[Path], sinks: int, pauser: str
) -> Iterator[list[Running]]:
    with ExitStack() as stack:
        options = ("--listen", "127.0.0.1:0", *source_options(pauser))
        source = stack.enter_context(running(folder, MODULE, "source", *queues, *options))
        address = f"127.0.0.1:{source.port()}"
        processes = [source]
        for number in range(sinks):
            places = [folder / f"copy-{number}" / queue.name for queue in queues]
            options = ("--connect", address, "--host-id", str(FIRST_SINK_ID + number))
            sink = running(folder, MODULE, "sink", *places, *options)
            processes.append(stack.enter_context(sink))
        copies = [folder / f"copy-{number}" for number in range(sinks)]
        await_copies([(queue, copy / queue.name) for copy in copies for queue in queues])
        yield processes


def shares(processes: list[Running], seconds: float) -> list[float]:
    """The share of a core that each takes at rest; the last one is the peer's."""
    peer = subprocess.Popen([sys.executable, "-S", "-c", PEER])
    try:
        time.sleep(SETTLE_SECONDS)
        pids = [*(each.pid for each in processes), peer.pid]
        began, before = time.monotonic(), [processor_seconds(pid) for pid in pids]
        time.sleep(seconds)
        after, taken = [processor_seconds(pid) for pid in pids], time.monotonic() - began
        return [(then - now) / taken for now, then in zip(before, after, strict=True)]
    finally:
        peer.kill()
        peer.wait()


def delays_ms(queue: Path, copy: Path, count: int, gap_s: float) -> list[float]:
    """The delays of so many single excerpts, each that long after the last."""
    found = []
    with Queue.open(queue) as written, Queue.open(copy) as read:
        tailer = read.tailer(read.next_index())
        written.append(bytes(64))  # opens the file for writing
        assert tailer.wait(PATIENCE_SECONDS)
        for nth in range(count):
            assert tailer.next_excerpt() is not None
            time.sleep(gap_s + SPREAD_SECONDS * nth / count)
            began = time.perf_counter()
            written.append(bytes(64))
            while not tailer.has_next():
                assert time.perf_counter() - began < PATIENCE_SECONDS
            found.append((time.perf_counter() - began) * 1e3)
    return sorted(found)


def measure(options: argparse.Namespace, queue_count: int, sinks: int) -> str:
    with scratch() as folder:
        queues = make_queues(folder, queue_count, is_empty=options.empty)
        with replicated(folder, queues, sinks, options.pauser) as processes:
            source, *others, peer = shares(processes, options.seconds)
            told = (
                f"source {source:.2%}  sink {statistics.mean(others):.2%}  peer {peer:.2%}"
                f"  source / peer x{source / max(peer, 1 / TICKS / options.seconds):.2f}"
            )
            copy = folder / "copy-0" / queues[0].name
            for gap_s in (REST_SECONDS, BUSY_SECONDS) if options.delays else ():
                found = delays_ms(queues[0], copy, options.delays, gap_s)
                shown = "/".join(f"{percentile(found, part):.2f}" for part in (50, 90, 100))
                told += f"  after {gap_s:g} s {shown} ms"
            return told


def main() -> None:
    options = asked(
        __doc__, seconds=20.0, kernels="native,python", queues="1,30", sinks="1,3",
        pauser="balanced", delays=50, empty=False,
    )  # fmt: skip
    print("delays: the middle, 90th percentile and greatest", flush=True)
    cases = product(options.kernels.split(","), numbers(options.queues), numbers(options.sinks))
    for kernel, queues, sinks in cases:
        os.environ["CQREPL_KERNEL"] = kernel  # of the processes that are started
        told = measure(options, queues, sinks)
        print(f"{kernel:<6} {queues:>2} queues {sinks} sinks  {told}", flush=True)


if __name__ == "__main__":
    main()
