"""One-way delays between two hosts that stream a queue each to the other, over one connection.

Each host is a process of its own, and so is the writer at each end. Both write in one case, one of
them in the other; the delays are those of `bench.latency`: from just before the append to just
after the excerpt was published at the other host. Told is the middle delay of the way that is
slower.

    python -m tests.bench.twoways host FOLDER ID PAUSER [PORT]     one of the hosts
"""

import os
import sys
import time
from bisect import bisect_left
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path

import trio

from cqrepl import HostSettings, NetSettings, ProtocolSettings, Queue, serve_host
from cqrepl.bench.catchup import log_entries
from cqrepl.bench.pacer import MODULE as WRITER
from cqrepl.bench.pacer import POLLED_NS, STAMPS, Pace
from cqrepl.bench.percentiles import percentile
from cqrepl.bench.processes import WAIT_SECONDS, running
from cqrepl.net.address import Address
from cqrepl.net.settings import pausing_named
from cqrepl.replicator.settings import SinkSettings
from tests.bench.rounds import await_copies

MODULE = "tests.bench.twoways"
ROOT = str(Path(__file__).resolve().parents[2])
SKIPPED_SHARE = 4
REST_SECONDS = 2.0  # for what was appended to be noted
IDS = (1, 2)


def queue_of(folder: Path, host_id: int) -> Path:
    return folder / f"queue-{host_id}"


def copy_of(folder: Path, host_id: int) -> Path:
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
    pairs = [(queue_of(folder, each), copy_of(folder, each)) for each in IDS]
    first = {}
    for host_id in IDS:
        with Queue.open(queue_of(folder, host_id), create="FAST_DAILY") as queue:
            first[host_id] = queue.append(bytes(size), now_ms=pace.now_ms) + 1
    with ExitStack() as stack:
        one = stack.enter_context(running(folder, MODULE, "host", folder, 1, pauser))
        to = one.port()
        other = stack.enter_context(running(folder, MODULE, "host", folder, 2, pauser, to))
        await_copies(pairs, one, other)
        writers = [
            stack.enter_context(running(folder, WRITER, queue_of(folder, host_id), *pace))
            for host_id in IDS[:ways]
        ]
        for writer in writers:
            writer.wait(count * gap_us / 1e6 + WAIT_SECONDS, look_seconds=0.5)
        await_copies(pairs, one, other)
        time.sleep(REST_SECONDS)
    found = [delays_us(folder, host_id, first[host_id]) for host_id in IDS[:ways]]
    return {f"p{part}_us": max(percentile(each, part) for each in found) for part in (50, 99)}


if __name__ == "__main__":
    where, host, pauser, *port = sys.argv[2:]
    trio.run(serve, Path(where), int(host), pauser, port[0] if port else None)
