"""The cost of peers that read nothing, or slowly, to a source and its other sinks.

A source has a sink that is stopped by a signal once it has the first excerpt. Then the excerpts are
appended, and once no more is sent another sink takes all of them. Its rate counts from its first
excerpt sent to the last one appended. Beside it stands by how much the private memory of the source
has grown until it sent no more to the one that is stopped.

One that is slow is not stopped, but takes so many bytes a second (`tests.support.throttle`), and
the other sink begins when it has taken what it does in two seconds.
"""

import signal
import time
from contextlib import ExitStack
from pathlib import Path

from cqrepl.bench.catchup import MODULE, log_entries
from cqrepl.bench.processes import LOOK_SECONDS, WAIT_SECONDS, running
from cqrepl.queue import Queue, QueueError
from tests.bench.rounds import last_index
from tests.support.processes import send
from tests.support.throttle import Throttle

REST_SECONDS = 2.0  # longer than between two times that a source notes how far it has come
BATCH = 1000


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
    folder: Path, size: int, count: int, *, stops: bool = False, slow: int = 0
) -> tuple[float, float]:
    """Excerpts a second of one good sink, and MiB that the source has grown by before it came.

    Args:
        stops: the other one is stopped; else it takes all that comes.
        slow: or so many bytes a second.
    """
    path, log = folder / "q", folder / "appended"
    with Queue.open(path, create="FAST_DAILY") as queue, ExitStack() as stack:
        first = queue.append(bytes(size))
        listens = ("source", f"q={path}", "--listen", "127.0.0.1:0")
        source = stack.enter_context(running(folder, MODULE, *listens))
        other, port = folder / "other", source.port()
        if slow:
            throttle = stack.enter_context(Throttle(port, slow).running())
            port = throttle.port
        words = ("sink", f"q={other}", "--connect", f"127.0.0.1:{port}", "--host-id", 3)
        sink = stack.enter_context(running(folder, MODULE, *words))
        wait_for(other, first)
        if stops:
            assert send(sink.pid, signal.SIGSTOP)
        before_mib = source.private_mib()
        for _ in range(count // BATCH):
            last = queue.append_many([bytes(size)] * BATCH)
        if slow:
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
