"""The time that a plain thread waits for an acknowledgement, beside twice the one-way delay.

    python -m tests.bench.waitacked [--queues 1,100] [--count 2000] [--gap-us 500] [--rounds 5]
                                    [--pauser balanced] [--size 64] [--level synced]

A source runs in this process, its event loop in a thread; a sink is a process of its own. The main
thread appends one excerpt to one queue after the other, and waits each time until the sink has
acknowledged it. The sink takes the time just after it has published an excerpt (`--append-log`), so
the one-way delay is that of the same excerpts. The first quarter is left out. Both percentiles are
told as ratios to twice the middle one-way delay of their round, and of all rounds the middle one.

With `--level synced` it waits until the excerpt is on the sink's disk, and what it is held against
is twice the one-way delay and the middle time of a local sync: 64 bytes into a file that has them
already, and `fdatasync`, in the directory of the copies, before each round.
"""

import gc
import os
import statistics
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import trio

from cqrepl.bench.catchup import MODULE, log_entries
from cqrepl.bench.percentiles import percentile
from cqrepl.bench.processes import WAIT_SECONDS, running
from cqrepl.bench.report import scratch
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.queue import Queue
from cqrepl.replicator.source import Source, serve_source
from tests.bench.appliedsink import applied_sink
from tests.bench.rounds import asked, loaded, numbers, verdict

GOALS = {"appended": (1.3, 3.0), "synced": (1.5, None)}
SYNCS = 100  # of which the middle one counts
SKIPPED_SHARE = 4


@dataclass(frozen=True)
class Asked:
    """The parameters of a round."""

    size: int
    count: int
    gap_us: float
    pauser: str = "balanced"
    level: str = "appended"


class Waited(NamedTuple):
    """Percentiles in microseconds, and those of the waits as ratios to `least`: twice the one-way
    delay, and the local sync where that was waited for."""

    least: float
    p50: float
    p99: float

    @property
    def ratios(self) -> tuple[float, float]:
        return self.p50 / self.least, self.p99 / self.least


@contextmanager
def source_of(
    queues: dict[str, Path], address: str, pauser: str, policy: AckPolicy | None = None
) -> Iterator[Source]:
    """A source whose event loop runs in a thread, for the length of a block.

    Args:
        policy: of its queues; None for the usual one.
    """
    made: list[Source] = []
    is_there, is_over = threading.Event(), trio.Event()
    token: list[trio.lowlevel.TrioToken] = []

    async def serve() -> None:
        policies = {} if policy is None else dict.fromkeys(queues, policy)
        serving = serve_source(queues, connect=address, pauser=pauser, policies=policies)
        async with serving as source:
            made.append(source)
            token.append(trio.lowlevel.current_trio_token())
            is_there.set()
            await is_over.wait()

    loop = threading.Thread(target=trio.run, args=(serve,))
    loop.start()
    try:
        if not is_there.wait(WAIT_SECONDS):
            raise TimeoutError("the source did not start in time")
        yield made[0]
    finally:
        trio.from_thread.run_sync(is_over.set, trio_token=token[0])
        loop.join()


def local_sync_us(folder: Path, size: int) -> float:
    """The middle time of a small write and a sync, in microseconds."""
    took = []
    descriptor = os.open(folder / "synced", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, bytes(size * SYNCS), 0)
        os.fsync(descriptor)
        for nth in range(SYNCS):
            began_ns = time.monotonic_ns()
            os.pwrite(descriptor, b"x" * size, nth * size)
            os.fdatasync(descriptor)
            took.append((time.monotonic_ns() - began_ns) / 1e3)
    finally:
        os.close(descriptor)
    return statistics.median(took)


def measured(folder: Path, arguments: Asked, queues: int) -> Waited:
    """One round with so many queues."""
    level = AckLevel[arguments.level.upper()]
    sync_us = local_sync_us(folder, arguments.size) if level is AckLevel.SYNCED else 0.0
    names = [f"q{number}" for number in range(queues)]
    paths = {name: folder / name for name in names}
    for path in paths.values():
        Queue.open(path, create="FAST_DAILY").close()
    logs = folder / "logs"
    copies = [f"{name}={folder / 'copies' / name}" for name in names]
    listen = ("--listen", "127.0.0.1:0", "--append-log", logs)
    sent: list[tuple[str, int, int, int]] = []
    with running(folder, MODULE, "sink", *copies, *listen) as sink, ExitStack() as stack:
        address = f"127.0.0.1:{sink.port()}"
        source = stack.enter_context(source_of(paths, address, arguments.pauser))
        opened = [stack.enter_context(Queue.open(path)) for path in paths.values()]
        boards = [source.board(name) for name in names]
        payload, now_ms = bytes(arguments.size), time.time_ns() // 1_000_000
        for queue, board in zip(opened, boards, strict=True):
            index = queue.append(payload, now_ms=now_ms)
            board.wait(index, timeout=WAIT_SECONDS, level=level)
        for number in range(arguments.count):
            nth = number % queues
            time.sleep(arguments.gap_us / 1e6)
            began_ns = time.monotonic_ns()
            index = opened[nth].append(payload, now_ms=now_ms)
            boards[nth].wait(index, timeout=WAIT_SECONDS, level=level)
            sent.append((names[nth], index, began_ns, time.monotonic_ns()))
        time.sleep(2)  # for the sink to note what it has appended
    sent = sent[len(sent) // SKIPPED_SHARE :]
    return percentiles_of(sent, logs, sync_us, is_single=queues == 1)


def percentiles_of(
    sent: list[tuple[str, int, int, int]], logs: Path, sync_us: float, *, is_single: bool
) -> Waited:
    """The percentiles of what was appended: `sent` has its queue, its index, and when its append
    and its wait began and ended."""
    paths = {name: logs if is_single else logs / name for name, *_ in sent}
    noted = {name: list(log_entries(path)) for name, path in paths.items()}
    one_way = []
    for name, index, began_ns, _ in sent:
        entries = noted[name]
        entry = entries[bisect_left(entries, index, key=attrgetter("index_last"))]
        one_way.append((entry.noted_ns - began_ns) / 1e3)
    waits = sorted((ended_ns - began_ns) / 1e3 for _, _, began_ns, ended_ns in sent)
    least = 2 * percentile(sorted(one_way), 50) + sync_us
    return Waited(least, percentile(waits, 50), percentile(waits, 99))


def applied_waits(
    folder: Path, *, size: int, count: int, gap_us: float, pauser: str = "balanced"
) -> list[float]:
    """The durations of the waits at `applied`, in microseconds, the shortest first."""
    path = folder / "q"
    Queue.open(path, create="FAST_DAILY").close()
    waits = []
    with applied_sink(folder) as sink:
        with source_of({"q": path}, f"127.0.0.1:{sink.port()}", pauser) as source:
            board = source.board("q")
            with Queue.open(path) as queue:
                payload, now_ms = bytes(size), time.time_ns() // 1_000_000
                for nth in range(-count // SKIPPED_SHARE, count):
                    time.sleep(gap_us / 1e6)
                    began_ns = time.monotonic_ns()
                    index = queue.append(payload, now_ms=now_ms)
                    board.wait(index, timeout=WAIT_SECONDS, level=AckLevel.APPLIED)
                    if nth >= 0:
                        waits.append((time.monotonic_ns() - began_ns) / 1e3)
    return sorted(waits)


def main() -> None:
    options = asked(
        __doc__, queues="1,100", count=2000, gap_us=500.0, rounds=5, size=64, pauser="balanced",
        level="appended",
    )  # fmt: skip
    gc.disable()  # a pause of this process would be taken for one of what is measured
    queues, rounds = numbers(options.queues), options.rounds
    wanted = Asked(options.size, options.count, options.gap_us, options.pauser, options.level)
    found: dict[int, list[Waited]] = {number: [] for number in queues}
    for number in queues * rounds:
        with scratch() as folder:
            waited = measured(folder, wanted, number)
        found[number].append(waited)
        print(
            f"{number:4} queues  beside {waited.least:7.1f} us  wait p50 {waited.p50:7.1f}"
            f"  p99 {waited.p99:7.1f}  x{waited.ratios[0]:.2f} x{waited.ratios[1]:.2f}  {loaded()}",
            flush=True,
        )
    for number, each in found.items():
        for place, goal in enumerate(GOALS[options.level]):
            ratios = [waited.ratios[place] for waited in each]
            print(f"{number:4} queues, {('p50', 'p99')[place]}: {verdict(ratios, goal)}")


if __name__ == "__main__":
    main()
