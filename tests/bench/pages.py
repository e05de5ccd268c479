"""Measures what a page and a scrape of a large host cost, in processor time.

python -m tests.bench.pages [QUEUES] [PEERS]
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from cqrepl.page import metrics, views
from cqrepl.page.hostlook import HostLook
from cqrepl.replicator.queuestate.durations import BOUNDS

ROUNDS: Final = 20


def sample_of(queues: int, peers: int) -> HostLook:
    """A look at a host that streams each queue to all peers."""
    times = {"appended": {"counts": [1] * (len(BOUNDS) + 1), "seconds": 1.0}}
    sinks = [
        {"host": each, "state": "live", "lag": each, "sent": "0x1", "acknowledged": "0x1"}
        | {"excerpts": 1, "bytes": 9}
        for each in range(2, peers + 2)
    ]
    names = [f"queue-{nth}" for nth in range(queues)]
    shown: list[dict[str, Any]] = [
        {"name": name, "role": "source", "state": "live", "last": "0x1", "excerpts": 5, "bytes": 45}
        | {"sinks": sinks, "waits": times, "syncs": times}
        for name in names
    ]
    connected = [{"host": each, "state": "connected", "name": "", "tls": None} for each in range(9)]
    host = {"host": 1, "process": 1, "release": "1", "listens": None, "tls": None}
    host |= {"queues": shown, "peers": connected, "services": {}}
    return HostLook(host=host, at=0.0, wall=0.0)


def milliseconds(make: Callable[[], object]) -> float:
    """The processor time of one call, on average."""
    make()
    start = time.process_time()
    for _ in range(ROUNDS):
        make()
    return (time.process_time() - start) / ROUNDS * 1000


def main() -> None:
    queues, peers = (int(each) for each in (*sys.argv[1:3], "100", "20")[:2])
    sample = sample_of(queues, peers)
    print(f"{queues} queues, {peers} peers each")
    print(f"page    {milliseconds(lambda: views.host_page(sample, (), {})):8.1f} ms")
    print(f"scrape  {milliseconds(lambda: metrics.exposition(sample, ())):8.1f} ms")


if __name__ == "__main__":
    main()
