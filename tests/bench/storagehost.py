"""A host with storages that appends to a sequence once it leads; a process of `clusters`.

    python -m tests.bench.storagehost HOST FILE SIZE COUNT GAP_US OUT

The host that leads appends COUNT items that wait until a backup has applied them, as many that do
not wait, and as many excerpts to a queue beside, and writes to OUT what these took, and when each
index was safe. Some seconds of appends go before.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cqrepl.bench.percentiles import percentile
from cqrepl.config.hostplan import read_settings
from cqrepl.persist.errors import NotLeader
from cqrepl.persist.storage.storages import BytesSerializer
from cqrepl.persist.storage.storageservice import StorageSettings
from cqrepl.persist.storagehost import StorageHost
from cqrepl.persistnode import addresses_of
from cqrepl.queue import Queue

GROUP = "p-bench"
WAIT_SECONDS = 60.0
SETTLE_SECONDS = 3.0  # until all has come to its pace
TURNS = 10  # of appends that do not wait, each kind


def waited(
    host: StorageHost, queue: Queue, size: int, count: int, gap_us: float
) -> tuple[dict[str, float], list[tuple[int, int]]]:
    """The times of appends that wait, in microseconds, and when each was over."""
    sequence = host.factory(GROUP).get_or_create_sequence(
        "waited", None, BytesSerializer(), WAIT_SECONDS
    )
    item, took, acked = bytes(size), [], []
    ready_s = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < ready_s:
        sequence.append(item)
    for _ in range(count):
        time.sleep(gap_us / 1e6)
        began_ns = time.monotonic_ns()
        stored = sequence.append(item)
        ended_ns = time.monotonic_ns()
        if not stored.is_acked:
            raise RuntimeError("an item that a backup has applied expected")
        took.append((ended_ns - began_ns) / 1e3)
        acked.append((queue.next_index() - 1, ended_ns))
    took.sort()
    return {"p50_us": percentile(took, 50), "p99_us": percentile(took, 99)}, acked


def leads(host: StorageHost) -> bool:
    """True once this host leads, and its storages can be made."""
    try:
        factory = host.factory(GROUP)
        factory.get_or_create_sequence("waited", None, BytesSerializer(), WAIT_SECONDS)
    except NotLeader:
        return False
    return True


def mean_us(append: Callable[[bytes], object], size: int, count: int) -> float:
    item, began_ns = bytes(size), time.monotonic_ns()
    for _ in range(count):
        append(item)
    return (time.monotonic_ns() - began_ns) / count / 1e3


def measured(host: StorageHost, place: Path, size: int, count: int, gap_us: float) -> object:
    """All that is told, of a host that leads."""
    with Queue.open(place / GROUP) as queue:
        values, acked = waited(host, queue, size, count, gap_us)
    plain = host.factory(GROUP).get_or_create_sequence("plain", None, BytesSerializer(), 0)
    found: dict[str, list[float]] = {"plain_us": [], "queue_us": []}
    with Queue.open(place / "beside", create="FAST_DAILY") as beside:
        for _ in range(TURNS):
            found["plain_us"].append(mean_us(plain.append, size, count // TURNS))
            found["queue_us"].append(mean_us(beside.append, size, count // TURNS))
    values |= {name: percentile(sorted(each), 50) for name, each in found.items()}
    return {"values": values, "acked": acked}


def main() -> None:
    host_id, path, size, count = int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:5])
    gap_us, out = float(sys.argv[5]), Path(sys.argv[6])
    settings = read_settings(path, host_id, environ={})
    groups = [StorageSettings(group=GROUP)]
    gc.disable()  # a pause of this process would be taken for one of what is measured
    with StorageHost(settings, groups, addresses_of(path)) as host:
        while not out.exists():
            with suppress(NotLeader):  # another one may come to lead in its place
                if leads(host):
                    found = measured(host, path.parent / str(host_id), size, count, gap_us)
                    out.with_suffix(".part").write_text(json.dumps(found))
                    out.with_suffix(".part").rename(out)
            time.sleep(0.05)
        time.sleep(WAIT_SECONDS)


if __name__ == "__main__":
    main()
