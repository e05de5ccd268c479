"""The number of safe writes a second where so many threads wait for their own.

A source runs in this process, its event loop in a thread; a sink is a process of its own. Each of
the threads appends one excerpt, waits until the sink has it (`Leading.append` with a policy), and
begins anew. At `synced` one sync of the sink's disk serves all that came before it, so that many
threads get many times as far as one; at `appended` what they share is the interpreter. At `applied`
a program at the sink reads the copy and says what it has taken.
"""

import threading
import time
from pathlib import Path

from cqrepl.bench.catchup import MODULE
from cqrepl.bench.processes import WAIT_SECONDS, running
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.queue import Queue
from cqrepl.replicator.leadership import Leading
from tests.bench.appliedsink import applied_sink
from tests.bench.waitacked import source_of


def own_rate(
    level: str, folder: Path, threads: int, *, size: int, seconds: float, pauser: str
) -> float:
    """Excerpts a second that are safe."""
    path = folder / "q"
    Queue.open(path, create="FAST_DAILY").close()
    policy = AckPolicy(level=AckLevel[level.upper()], timeout_seconds=WAIT_SECONDS)
    words = ["sink", f"q={folder / 'copy'}", "--listen", "127.0.0.1:0"]
    program = applied_sink(folder) if level == "applied" else running(folder, MODULE, *words)
    with program as sink:
        with source_of({"q": path}, f"127.0.0.1:{sink.port()}", pauser) as source:
            leading = source.leading("q")
            leading.append([bytes(size)], policy=policy)  # the sink is there then
            return safe_rate(leading, policy, threads, size, seconds)


def safe_rate(
    leading: Leading, policy: AckPolicy, threads: int, size: int, seconds: float
) -> float:
    counts, payload = [0] * threads, bytes(size)
    begun = time.monotonic()
    end = begun + seconds

    def write(nth: int) -> None:
        while time.monotonic() < end:
            leading.append([payload], policy=policy)
            counts[nth] += 1

    writers = [threading.Thread(target=write, args=(nth,)) for nth in range(threads)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    return sum(counts) / (time.monotonic() - begun)
