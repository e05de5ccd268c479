"""Hosts, the network between them and an application, in the trio run of whoever asks.

async with running_cluster(folder, 3) as cluster:
    cluster.append(b"hello")
    await cluster.settled()
    cluster.hosts[2].kill()
"""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from cqrepl.kernel.giventime import give_back_time
from cqrepl.net.program import Program
from cqrepl.net.wordwatch import word_watch
from cqrepl.testing.checker import content, last_index
from cqrepl.testing.freezer import Freezer
from cqrepl.testing.labhosts import Application, LabHost, looking
from cqrepl.testing.labmachine import Machine
from cqrepl.testing.network import Network
from cqrepl.testing.plan import SOURCE
from cqrepl.testing.story import Story

LOOK_SECONDS: Final = 0.25
SETTLED_SECONDS: Final = 60.0
RATE: Final = 20.0
_END_SECONDS: Final = 5.0


class Cluster:
    """A source, host 1, and sinks, hosts 2 and on, of one queue.

    Args:
        folder: where the disks of the hosts are.
        seed: decides how long bytes take, what a power cut leaves, what the application writes.
        programs: the handlers of its own that a host has, by host id.
    """

    def __init__(
        self,
        folder: Path,
        hosts: int,
        nursery: trio.Nursery,
        *,
        seed: int = 0,
        roll_cycle: str = "FAST_DAILY",
        rate: float = RATE,
        story: Story | None = None,
        programs: Mapping[int, Program] | None = None,
    ) -> None:
        self.story = Story() if story is None else story
        self.network = Network(nursery, _rng("network", seed), self.story)
        self.hosts: dict[int, LabHost] = {}
        self.folder = folder
        freezer = Freezer()
        trio.lowlevel.add_instrument(freezer)
        for host in range(1, hosts + 1):
            disk = _rng(f"disk {host}", seed)
            machine = Machine(host, folder / f"host{host}", disk, self.story)
            program = None if programs is None else programs.get(host)
            self.hosts[host] = LabHost(machine, self.network, freezer, nursery, self.story, program)
        source = self.hosts[SOURCE].machine
        self.application = Application(
            source, roll_cycle, rate, _rng("application", seed), self.story
        )

    @property
    def source(self) -> LabHost:
        return self.hosts[SOURCE]

    @property
    def sinks(self) -> list[LabHost]:
        return [each for host, each in self.hosts.items() if host != SOURCE]

    def append(self, *payloads: bytes) -> None:
        """The application of the source's host appends; something of its own without payloads."""
        self.application.append(payloads)
        word_watch().look()

    def start(self) -> None:
        """The application makes its queue; all hosts start."""
        self.application.append()
        for each in self.hosts.values():
            each.start()

    async def stop(self) -> None:
        """All hosts end in order."""
        for each in self.hosts.values():
            each.stop()
        with trio.move_on_after(_END_SECONDS):
            while any(each.process is not None for each in self.hosts.values()):
                await trio.sleep(0.1)

    async def settled(self, seconds: float = SETTLED_SECONDS) -> None:
        """Returns when each sink holds what the source holds, and the source knows.

        Raises:
            TooSlowError: it took longer.
        """
        with trio.fail_after(seconds):
            while not all(self.is_settled(each) for each in self.sinks):
                await trio.sleep(0.05)

    def is_settled(self, sink: LabHost) -> bool:
        """True when this one does."""
        return last_index(sink.path) == last_index(self.source.path) == self.source.known_of(sink)

    def content(self, host: int) -> dict[int, bytes]:
        """A digest of each excerpt that a host holds, by index."""
        return content(self.hosts[host].path)


@asynccontextmanager
async def running_cluster(
    folder: Path,
    hosts: int,
    *,
    seed: int = 0,
    roll_cycle: str = "FAST_DAILY",
    rate: float = RATE,
    story: Story | None = None,
    programs: Mapping[int, Program] | None = None,
) -> AsyncIterator[Cluster]:
    """Runs hosts for the length of a block; the arguments are those of `Cluster`.

    The sockets of this trio run are the laboratory's from now on.
    """
    try:
        async with trio.open_nursery() as nursery, looking(LOOK_SECONDS):
            cluster = Cluster(
                folder,
                hosts,
                nursery,
                seed=seed,
                roll_cycle=roll_cycle,
                rate=rate,
                story=story,
                programs=programs,
            )
            trio.socket.set_custom_socket_factory(cluster.network)
            try:
                cluster.start()
                yield cluster
                await cluster.stop()
            finally:
                cluster.network.close()
            nursery.cancel_scope.cancel()
    finally:
        give_back_time()  # behind the last task: each may have set it


def _rng(what: str, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}")
