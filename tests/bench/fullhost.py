"""The cost of a source with many queues and many peers while nothing comes.

Each peer is a process that takes its part of the queues: of a thousand queues and twenty peers
fifty each, or the copies alone would take 26 GB. When every copy has all and some time has gone by,
the share of a core that the source takes is measured, and its private memory.
"""

import time
from contextlib import ExitStack
from pathlib import Path

from cqrepl.bench.processes import running
from tests.bench.idle import FIRST_SINK_ID, MODULE, make_queues, shares
from tests.bench.rounds import await_copies

START_SECONDS = 300.0
SETTLE_SECONDS = 60.0  # until what has come is on the disk, read once more, and noted


def full_host_round(
    folder: Path, queues: int, peers: int, seconds: float, settle_s: float = SETTLE_SECONDS
) -> dict[str, float]:
    """The share of a core and the MiB of private memory that the source takes at rest; the seconds
    until all copies had everything."""
    paths = make_queues(folder, queues, is_empty=False)
    copies = [folder / f"copy-{number % peers}" / each.name for number, each in enumerate(paths)]
    began = time.monotonic()
    with ExitStack() as stack:
        listens = ("--listen", "127.0.0.1:0")
        source = stack.enter_context(running(folder, MODULE, "source", *paths, *listens))
        to = ("--connect", f"127.0.0.1:{source.port()}", "--host-id")
        for number in range(peers):
            words = ("sink", *copies[number::peers], *to, FIRST_SINK_ID + number)
            stack.enter_context(running(folder, MODULE, *words))
        await_copies(zip(paths, copies, strict=True), source, seconds=START_SECONDS)
        start_s = time.monotonic() - began
        time.sleep(settle_s)
        share, sleeper = shares([source], seconds)
        mib = source.private_mib()
    return {"core": share, "sleeper": sleeper, "private_mib": mib, "start_s": start_s}
