"""A process of a user on a machine of the laboratory, and all that it finds there.

A service or a workload is a coroutine function that is given its site:

    async def counter(site):
        async def answer(stream):
            await stream.send_all(b"%d" % site.machine.host)

        await site.serve(answer, 2181)

It runs for as long as its process does. It is cancelled where that is killed, told to end, or loses
its power, and called anew with the next start. All that it starts belongs in a nursery of its own.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from cqrepl.testing.faultkinds import SERVICE_FIRST
from cqrepl.testing.freezer import Freezer
from cqrepl.testing.history import History
from cqrepl.testing.labhosts import LabHost
from cqrepl.testing.labmachine import Machine, Process
from cqrepl.testing.labroles import Node
from cqrepl.testing.network import Network, address_of
from cqrepl.testing.processlife import ProcessLife
from cqrepl.testing.story import Story

FOLDER: Final = "own"  # of a site, on the disk of its machine

T = TypeVar("T")
Handle = Callable[[trio.SocketStream], Awaitable[None]]


class HostGoneError(Exception):
    """There is no host that serves, or it has gone before it had an answer.

    Args:
        has_begun: it had been asked: what was asked may be done, or may not.
    """

    def __init__(self, host: int, *, has_begun: bool) -> None:
        super().__init__(f"host {host}: {'gone meanwhile' if has_begun else 'not there'}")
        self.has_begun = has_begun


class Site:
    """One process of a user on one machine.

    Args:
        host: the host on the same machine; None for a service, whose machine is its own.

    Attributes:
        rng: what it draws; each site has its own, from the seed.
        history: of the whole run.
        quiet: set when no more faults come. What a workload appends to queues ends then: copies
            have to become equal.
        addresses: of all machines, by their numbers: hosts have their ids, services count from
            `SERVICE_FIRST` on.
    """

    def __init__(
        self,
        machine: Machine,
        what: str,
        work: "Work",
        rng: random.Random,
        history: History,
        quiet: trio.Event,
        addresses: Mapping[int, str],
        host: LabHost | None = None,
    ) -> None:
        self.machine = machine
        self.rng = rng
        self.history = history
        self.quiet = quiet
        self.addresses = addresses
        self.host = host
        self._what = what
        self._work = work
        self._life: ProcessLife

    def begin(self, network: Network, freezer: Freezer, nursery: trio.Nursery) -> ProcessLife:
        """Starts it."""
        self._life = ProcessLife(
            self.machine, network, freezer, nursery, self.machine.story, self._what, self._serving
        )
        self._life.start()
        return self._life

    @property
    def number(self) -> int:
        """The number of its machine."""
        return self.machine.host

    @property
    def name(self) -> str:
        """The name of its machine, as stories and histories have it."""
        return self.machine.name

    @property
    def life(self) -> ProcessLife:
        """The process, which faults end and start."""
        return self._life

    @property
    def folder(self) -> Path:
        """A directory of its own on the disk of its machine, as that is now. The disk goes on at
        another path when a process of the machine is killed: files are opened anew by this."""
        folder = self.machine.path / FOLDER
        folder.mkdir(exist_ok=True)
        return folder

    def tell(self, text: str) -> None:
        """A line for the story."""
        self.machine.story.tell(self.name, text)

    async def serve(self, handle: Handle, port: int) -> None:
        """Takes connections at a port of its machine, until it is cancelled. A connection that
        breaks ends its own handler alone.

        Raises:
            OSError: the port is taken.
        """

        async def contained(stream: trio.SocketStream) -> None:
            async with stream:
                try:
                    await handle(stream)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.tell("a connection has broken")

        await trio.serve_tcp(contained, port, host=address_of(self.number))

    async def connect(self, number: int, port: int) -> trio.SocketStream:
        """A connection to a port of a machine, over the network of the laboratory.

        Raises:
            OSError: the machine does not listen there.
        """
        return await trio.open_tcp_stream(self.addresses[number], port)

    async def in_host(self, work: Callable[[Node], Awaitable[T]]) -> T:
        """The result of a piece of work with the host of this machine, done in its process.

        Raises:
            HostGoneError: it was not there, or has gone meanwhile.
        """
        assert self.host is not None, "a service has no host beside it"
        host = self.host
        if host.node is None:
            raise HostGoneError(self.number, has_begun=False)

        async def boxed(node: Node) -> list[T]:
            return [await work(node)]

        found = await host.during(boxed, host.node)
        if found is None:
            raise HostGoneError(self.number, has_begun=True)
        return found[0]

    def program(self, kind: type[T]) -> T | None:
        """The program of this class that the host of this machine has now; None without one."""
        programs = () if self.host is None else self.host.programs
        return next((each for each in programs if isinstance(each, kind)), None)

    @asynccontextmanager
    async def _serving(self, process: Process) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work, self)
            yield
            nursery.cancel_scope.cancel()


Work = Callable[[Site], Awaitable[Any]]


def service_machine(nth: int, folder: Path, rng: random.Random, story: Story) -> Machine:
    """The machine of the n-th service, counted from 0."""
    number = SERVICE_FIRST + nth
    return Machine(number, folder / f"service{nth + 1}", rng, story, name=f"service {nth + 1}")
