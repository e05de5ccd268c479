"""One-way delays between two hosts that stream a queue each to the other, over one connection.

    python -m tests.bench.twoways [--count 4000] [--gap-us 500] [--size 256] [--pauser balanced]
                                  [--rounds 5]

Each host is a process of its own, and so is the writer at each end. Both write in one case, one of
them in the other, in turn; the delays are those of `bench.latency`: from just before the append to
just after the excerpt was published at the other host. Told are the middle delay of the way that
is slower, and the ratio to that of the one way.

    python -m tests.bench.twoways host FOLDER ID PAUSER [PORT]     one of the hosts
"""

import argparse
import os
import statistics
import sys
import time
from bisect import bisect_left
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path

import trio

from cqrepl import HostSettings, NetSettings, ProtocolSettings, Queue, QueueError, serve_host
from cqrepl.bench.catchup import log_entries
from cqrepl.bench.pacer import MODULE as WRITER
from cqrepl.bench.pacer import POLLED_NS, STAMPS, Pace
from cqrepl.bench.percentiles import percentile
from cqrepl.bench.processes import WAIT_SECONDS, Running, running
from cqrepl.bench.report import scratch
from cqrepl.net.address import Address
from cqrepl.net.settings import pausing_named
from cqrepl.replicator.settings import SinkSettings

MODULE = "tests.bench.twoways"
ROOT = str(Path(__file__).resolve().parents[2])
GOAL = 1.2
SKIPPED_SHARE = 4
LOOK_SECONDS = 0.02
REST_SECONDS = 2.0  # for what was appended to be noted
IDS = (1, 2)


def queue_of(folder: Path, host_id: int) -> Path:
    """The queue that a host streams."""
    return folder / f"queue-{host_id}"


def copy_of(folder: Path, host_id: int) -> Path:
    """The other one's copy of that."""
    return folder / f"copy-{host_id}"


def log_of(folder: Path, host_id: int) -> Path:
    """The log in which the host with the copy notes when it has appended which excerpt."""
    return folder / f"log-{host_id}"


async def serve(folder: Path, host_id: int, pauser: str, port: str | None) -> None:
    """One of the hosts; host 1 listens, and tells where."""
    [other] = set(IDS) - {host_id}
    here = Address.parse("127.0.0.1:0") if port is None else None
    settings = HostSettings(
        net=NetSettings(
            listen=here,
            connect=None if port is None else Address.parse(f"127.0.0.1:{port}"),
            pausing=pausing_named(pauser),
        ),
        protocol=ProtocolSettings(host_id=host_id, remote_ids=frozenset({other} if port else ())),
        sink=SinkSettings(append_log=log_of(folder, other)),
    )
    sources = {f"q{host_id}": queue_of(folder, host_id)}
    sinks = {f"q{other}": copy_of(folder, other)}
    async with serve_host(settings, sources=sources, sinks=sinks) as host:
        if port is None:
            print(f"listening on 127.0.0.1:{host.port}", flush=True)
        await trio.sleep_forever()


def await_copy(folder: Path, host_id: int, *hosts: Running) -> None:
    """Returns when the other host has all of a queue."""
    deadline = time.monotonic() + WAIT_SECONDS
    while last_index(copy_of(folder, host_id)) != last_index(queue_of(folder, host_id)):
        for host in hosts:
            host.check()
        if time.monotonic() > deadline:
            raise QueueError("the copy was not complete in time", path=copy_of(folder, host_id))
        time.sleep(LOOK_SECONDS)


def last_index(path: Path) -> int | None:
    """The last index of a queue; -1 while there is none."""
    try:
        with Queue.open(path) as queue:
            return queue.last_index()
    except QueueError:
        return -1


def delays_us(folder: Path, host_id: int, first: int) -> list[float]:
    """The delays of the excerpts from an index on, but for the first quarter; the shortest
    first."""
    entries = list(log_entries(log_of(folder, host_id)))
    found = []
    with Queue.open(queue_of(folder, host_id)) as queue:
        for excerpt in queue.tailer(first):
            _, sent_ns = STAMPS.unpack_from(bytes(excerpt))
            entry = entries[bisect_left(entries, excerpt.index, key=attrgetter("index_last"))]
            found.append((entry.noted_ns - sent_ns) / 1e3)
    return sorted(found[len(found) // SKIPPED_SHARE :])


def measure(
    folder: Path, *, ways: int, size: int, count: int, gap_us: int, pauser: str
) -> dict[str, float]:
    """The greatest p50 and p99 of so many ways, in microseconds."""
    os.environ["PYTHONPATH"] = ROOT  # hosts are started apart from the working directory's modules
    gap_ns = gap_us * 1000
    polled_ns = gap_ns if pauser == "busy" else POLLED_NS
    pace = Pace(size, count, 1, gap_ns, time.time_ns() // 1_000_000, polled_ns)
    first = {}
    for host_id in IDS:
        with Queue.open(queue_of(folder, host_id), create="FAST_DAILY") as queue:
            first[host_id] = queue.append(bytes(size), now_ms=pace.now_ms) + 1
    with ExitStack() as stack:
        one = stack.enter_context(running(folder, MODULE, "host", folder, 1, pauser))
        to = one.port()
        other = stack.enter_context(running(folder, MODULE, "host", folder, 2, pauser, to))
        for host_id in IDS:
            await_copy(folder, host_id, one, other)
        writers = [
            stack.enter_context(running(folder, WRITER, queue_of(folder, host_id), *pace))
            for host_id in IDS[:ways]
        ]
        for writer in writers:
            writer.wait(count * gap_us / 1e6 + WAIT_SECONDS, look_seconds=0.5)
        for host_id in IDS:
            await_copy(folder, host_id, one, other)
        time.sleep(REST_SECONDS)
    found = [delays_us(folder, host_id, first[host_id]) for host_id in IDS[:ways]]
    return {f"p{part}_us": max(percentile(each, part) for each in found) for part in (50, 99)}


def main() -> None:
    if sys.argv[1:2] == ["host"]:
        where, host_id, pauser, *port = sys.argv[2:]
        trio.run(serve, Path(where), int(host_id), pauser, port[0] if port else None)
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=4000, help="excerpts of each writer")
    parser.add_argument("--gap-us", type=int, default=500)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--pauser", default="balanced", choices=("busy", "balanced", "sleepy"))
    parser.add_argument("--rounds", type=int, default=5)
    asked = vars(parser.parse_args())
    ratios = []
    for nth in range(asked.pop("rounds")):
        found = {}
        for ways in (1, 2)[:: -1 if nth % 2 else 1]:
            with scratch() as folder:
                found[ways] = measure(folder, ways=ways, **asked)
            shown = "  ".join(f"{name} {value:8.1f}" for name, value in found[ways].items())
            print(f"{ways} of 2 write: {shown}  load {os.getloadavg()[0]:.2f}", flush=True)
        ratios.append(found[2]["p50_us"] / found[1]["p50_us"])
    middle = statistics.median(ratios)
    verdict = "goal met" if middle <= GOAL else "missed"
    print(f"both ways: p50 x{middle:.2f} ({min(ratios):.2f} .. {max(ratios):.2f}), {verdict}")


if __name__ == "__main__":
    main()
