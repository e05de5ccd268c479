"""Clusters of three hosts on loopback, and what their services take: rounds of the comparison.

Each host is a process of its own, as `cqrepl run` has it or as `tests.bench.storagehost`, which
appends to a sequence while it leads. Clients of a board are in this process, as those of a peer.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trio

from cqrepl.bench.percentiles import percentile
from cqrepl.bench.processes import WAIT_SECONDS, Running, running
from cqrepl.broker.client import TaskClient
from cqrepl.demohosts import LEASE, cluster_file
from cqrepl.net.address import Address
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.chroniclemarks import LEADS_KEY
from cqrepl.queue.files.tablestore import FILE_NAME
from tests.bench import idle
from tests.bench.appliedsink import ROOT
from tests.bench.peers import quickfix
from tests.support.tables import keys_of

IDS = (1, 2, 3)
MODULE = "cqrepl"
BOARD, GROUP, ENGINE = "jobs", "bench", "engine"
LEASE_SECONDS, LONG_SECONDS = 2.0, 10.0
LOOK_SECONDS = 0.00005
Values = dict[str, float]


def written(folder: Path, groups: str, lease_seconds: float = LONG_SECONDS) -> Path:
    """The file of a cluster, with a lease that no busy machine lets run out."""
    path = folder / "cluster.yaml"
    text = cluster_file(folder, IDS, groups)
    path.write_text(text.replace(f"leaseTimeout: {LEASE}", f"leaseTimeout: {lease_seconds:g}s"))
    return path


@contextmanager
def hosts(
    folder: Path, groups: str, lease_seconds: float = LONG_SECONDS
) -> Iterator[dict[int, Running]]:
    """Three of `cqrepl run`.

    Args:
        groups: the lines of the file below `cqrepl: cluster:`, or beside it, that have them.
    """
    path = written(folder, groups, lease_seconds)
    with ExitStack() as stack:
        started = {}
        for each in IDS:
            words = ("run", "-c", path, "--host-id", each, "--run-dir", folder / f"run{each}")
            started[each] = stack.enter_context(running(folder, MODULE, *words))
        yield started


def led(folder: Path, queue: str, among: tuple[int, ...] = IDS) -> int:
    """The host that leads a queue, as soon as one does, by what programs beside it read."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for each in among:
            try:
                until = keys_of(folder / str(each) / queue).get(LEADS_KEY, 0)
            except (QueueError, OSError):  # it is not there yet
                continue
            if until > time.monotonic_ns():
                return each
        time.sleep(0.005)
    raise TimeoutError(f"no host leads {queue} in time")


# ------------------------------------------------------------ tasks


def submit_rates(folder: Path, size: int, flights: tuple[int, ...], seconds: float) -> list[float]:
    """Tasks a second that are safe, with so many on their way: on the disks of a majority."""
    groups = "    groups: {count: 1, rollCycle: FAST_DAILY, preferred: false}\n"
    groups += f"  tasks: {{{BOARD}: {{group: g0}}}}"
    with hosts(folder, groups) as started:
        addresses = [Address.parse(f"127.0.0.1:{each.port()}") for each in started.values()]
        led(folder, "g0")

        async def run() -> list[float]:
            async with TaskClient(addresses, BOARD, "bench").running() as client:
                await client.submit("t", bytes(size))  # it is connected then
                return [await _submit_rate(client, size, each, seconds) for each in flights]

        return trio.run(run)


async def _submit_rate(client: TaskClient, size: int, flight: int, seconds: float) -> float:
    counts, payload = [0] * flight, bytes(size)
    began = trio.current_time()

    async def submit(nth: int) -> None:
        while trio.current_time() < began + seconds:
            await client.submit("t", payload)
            counts[nth] += 1

    async with trio.open_nursery() as nursery:
        for nth in range(flight):
            nursery.start_soon(submit, nth)
    return sum(counts) / (trio.current_time() - began)


# ------------------------------------------------------------ storages


def storage_waits(folder: Path, size: int, count: int, gap_us: float) -> Values:
    """A sequence whose appends wait until a backup has applied them; and how long after each the
    mark of a copy says that it is safe."""
    path = written(folder, f"  persist: {{{GROUP}: {{}}}}")
    out = folder / "out.json"
    with ExitStack() as stack:
        os.environ["PYTHONPATH"] = ROOT  # as of `applied_sink`
        words = (path, size, count, gap_us, out)
        started = [
            stack.enter_context(running(folder, "tests.bench.storagehost", each, *words))
            for each in IDS
        ]
        leader = led(folder, f"p-{GROUP}")
        copy = folder / str(min(set(IDS) - {leader})) / f"p-{GROUP}"
        marks = _marks(copy, lambda: out.exists() or any(each.has_ended() for each in started))
        for each in started:
            each.check()
        found = json.loads(out.read_text())
    delays = sorted(_delays(found["acked"], marks))
    return dict(found["values"]) | {
        "mark_p50_us": percentile(delays, 50),
        "mark_p99_us": percentile(delays, 99),
    }


def _marks(copy: Path, is_over: Callable[[], bool]) -> list[tuple[int, int]]:
    """The safe index of a copy, each time that it is another one, with the time, until it is over:
    that is looked at now and then."""
    found: list[tuple[int, int]] = []
    last, next_look = -1, 0
    while not copy.joinpath(FILE_NAME).exists():
        time.sleep(LOOK_SECONDS)
    with Queue.open(copy) as queue:
        while True:
            mark = queue.acknowledged_index
            now_ns = time.monotonic_ns()
            if mark != last:
                found.append((mark, now_ns))
                last = mark
            if now_ns >= next_look:
                if is_over():
                    return found
                next_look = now_ns + 50_000_000
            time.sleep(LOOK_SECONDS)


def _delays(acked: list[tuple[int, int]], marks: list[tuple[int, int]]) -> Iterator[float]:
    """The microseconds from when an append has returned to when the mark had its index; 0 where
    that was before."""
    at = 0
    for index, acked_ns in acked:
        while at < len(marks) and marks[at][0] < index:
            at += 1
        if at == len(marks):  # those behind the last one that was looked at
            return
        yield max(0, marks[at][1] - acked_ns) / 1e3


def engine_waits(folder: Path, kept: Path, size: int, count: int) -> Values:
    """The store of a Java engine beside the host that leads its queue, which waits likewise.

    Args:
        kept: has the program, compiled.
    """
    groups = f"  persist: {{{GROUP}: {{ownLog: [{ENGINE}]}}}}"
    queue = f"p-{GROUP}-{ENGINE}"
    with hosts(folder, groups):
        leader = led(folder, queue)
        return quickfix.store_times(kept, "queue", folder / str(leader) / queue, size, count)


# ------------------------------------------------------------ leaders


def promoted_after(folder: Path, count: int) -> Values:
    """The host that leads most of so many groups is killed; the seconds beyond a lease until the
    last of them is led by another one."""
    names = [f"g{nth}" for nth in range(count)]
    groups = f"    groups: {{count: {count}, rollCycle: FAST_DAILY, preferred: false}}"
    with hosts(folder, groups, LEASE_SECONDS) as started:
        leaders = {name: led(folder, name) for name in names}
        most = max(IDS, key=list(leaders.values()).count)
        lost = [name for name, leader in leaders.items() if leader == most]
        left = tuple(each for each in IDS if each != most)
        began = time.monotonic()
        started[most].kill()
        for name in lost:
            led(folder, name, left)
        took = time.monotonic() - began
    return {"beyond_s": took - LEASE_SECONDS, "groups": len(lost)}


def idle_share(folder: Path, seconds: float) -> Values:
    """The greatest share of a core of three hosts with eight groups to which nothing comes."""
    # no group is given back meanwhile
    with hosts(
        folder, "    groups: {count: 8, rollCycle: FAST_DAILY, preferred: false}"
    ) as started:
        for nth in range(8):
            led(folder, f"g{nth}")
        *shares, peer = idle.shares(list(started.values()), seconds)
    return {"core": max(shares), "peer_core": peer}
