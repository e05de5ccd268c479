"""A peer that reads nothing, or slowly: it costs the source little, and the others go on."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from cqrepl.bench.processes import Running, running
from cqrepl.queue import Queue
from tests.support.processes import send
from tests.support.replicas import last_of
from tests.support.throttle import Throttle

QUEUES: Final = 4
COUNT: Final = 150_000  # so many of each queue are far more than what sockets hold
SIZE: Final = 16
COST_MIB: Final = 8
WAIT_S: Final = 120.0
LOOK_S: Final = 0.05
SLOW_BYTES_PER_S: Final = 128 << 10
SLOW_BYTES: Final = 512 << 10  # by then it has long been behind
REST_S: Final = 2.0  # longer than between two times that a source notes how far it has come


def wait_until(is_so: Callable[[], bool]) -> None:
    """Looks at what other processes do until it is so."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(LOOK_S)


class Hosts:
    """A source of some queues, as a process, and sinks of all of them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.paths = [folder / f"q{nth}" for nth in range(QUEUES)]
        for path in self.paths:
            with Queue.open(path, create="FAST_DAILY") as queue:
                queue.append(b"first")
        given = [f"{path.name}={path}" for path in self.paths]
        self.source = self._start("source", *given, "--listen", "127.0.0.1:0")

    def _start(self, *words: object) -> Running:
        return self._stack.enter_context(running(self._folder, "cqrepl", *words))

    def sink(self, host_id: int, port: int | None = None) -> Running:
        """A sink that has all that there is.

        Args:
            port: where it reaches the source; None: at the source's own.
        """
        taken = [f"{path.name}={copy}" for path, copy in self.pairs(host_id)]
        own = ("--connect", f"127.0.0.1:{port or self.source.port()}", "--host-id", host_id)
        sink = self._start("sink", *taken, *own)
        wait_until(lambda: self.has_all(host_id))
        return sink

    def pairs(self, host_id: int) -> list[tuple[Path, Path]]:
        """Each queue, and the copy of a host."""
        return [(path, self._folder / f"host-{host_id}" / path.name) for path in self.paths]

    def has_all(self, host_id: int) -> bool:
        """True when a host has all excerpts of all queues."""
        pairs = self.pairs(host_id)
        return all(copy.exists() and last_of(copy) == last_of(path) for path, copy in pairs)

    def append(self) -> None:
        """More to each queue."""
        for path in self.paths:
            with Queue.open(path) as queue:
                queue.append_many([bytes(SIZE)] * COUNT)

    def sent(self) -> list[int]:
        """For each queue, the index up to which the source has sent."""
        found = []
        for path in self.paths:
            with Queue.open(path) as queue:
                found.append(queue.sent_index)
        return found


def test_a_peer_that_reads_nothing_costs_little_and_holds_up_nobody(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, stack)
        stalled = hosts.sink(3)
        before_mib, sent = hosts.source.private_mib(), hosts.sent()
        assert send(stalled.pid, signal.SIGSTOP)
        hosts.append()
        wait_until(lambda: hosts.sent() != sent)
        while sent != hosts.sent():  # until it sends no more
            sent = hosts.sent()
            time.sleep(REST_S)
        assert hosts.source.private_mib() - before_mib <= COST_MIB
        hosts.sink(2)
        assert not hosts.has_all(3)
        assert send(stalled.pid, signal.SIGCONT)
        wait_until(lambda: hosts.has_all(3))
        hosts.source.check()


def test_a_peer_that_reads_slowly_costs_little_and_holds_up_nobody(tmp_path: Path) -> None:
    """It takes a part of a megabyte each second, while another one takes all."""
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, stack)
        port = hosts.source.port()
        slow = stack.enter_context(Throttle(port, SLOW_BYTES_PER_S).running())
        hosts.sink(3, slow.port)
        before_mib, most_mib, passed = hosts.source.private_mib(), 0.0, slow.passed

        def is_behind() -> bool:
            nonlocal most_mib
            most_mib = max(most_mib, hosts.source.private_mib())
            return slow.passed >= passed + SLOW_BYTES

        hosts.append()
        wait_until(is_behind)
        assert most_mib - before_mib <= COST_MIB
        hosts.sink(2)
        assert not hosts.has_all(3)
        slow.bytes_per_s = 0
        wait_until(lambda: hosts.has_all(3))
        hosts.source.check()
