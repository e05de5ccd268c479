"""Hosts of a cluster in this process, each with services on the queue "a", which host 1 leads."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import trio

from cqrepl.net.program import Program
from cqrepl.queue import Queue
from cqrepl.replicator.settings import SourceSettings
from tests.support.promotions import Cluster, cluster

D = TypeVar("D")
Make = Callable[[int], tuple[D, list[Program]]]
Run = Callable[[D, int], AbstractAsyncContextManager[None]]


@dataclass
class LedHosts(Generic[D]):
    """They run on the hosts that were begun.

    Args:
        make: the desk of a host, and the programs that it is reached by.
        run: keeps a desk running on its host.
    """

    hosts: Cluster
    nursery: trio.Nursery
    make: Make[D]
    run: Run[D]
    desks: dict[int, D] = field(default_factory=dict)
    _scopes: dict[int, trio.CancelScope] = field(default_factory=dict)

    async def begin(self, *host_ids: int) -> None:
        await self.begin_hosts(*host_ids)
        for host_id in host_ids:
            await self.run_desk(host_id)

    async def begin_hosts(self, *host_ids: int) -> None:
        """Begins the hosts alone: their services are known to clients, and do not run."""
        for host_id in host_ids:
            self.desks[host_id], self.hosts.programs[host_id] = self.make(host_id)
        await self.hosts.start(*host_ids)
        await self.hosts.meet()

    async def run_desk(self, host_id: int) -> None:
        await self.nursery.start(self._run, host_id)

    async def _run(self, host_id: int, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scopes[host_id]:
            async with self.run(self.desks[host_id], host_id):
                task_status.started()
                await trio.sleep_forever()

    async def kill(self, host_id: int) -> None:
        self._scopes.pop(host_id).cancel()
        await self.hosts.kill(host_id)

    def end(self) -> None:
        for each in self._scopes.values():
            each.cancel()


def addresses(hosts: Cluster) -> dict[int, str]:
    """The addresses of the hosts that were begun, by their ids."""
    return {each: str(hosts.address(each)) for each in hosts.hosts}


@asynccontextmanager
async def led_hosts(
    folder: Path,
    count: int,
    source: SourceSettings,
    parts: Callable[[Cluster], tuple[Make[D], Run[D]]],
    roll_cycle: str = "FAST_DAILY",
) -> AsyncIterator[LedHosts[D]]:
    """So many hosts, none of which was begun; the first one has the queue.

    Args:
        parts: `make` and `run` of these hosts.
    """
    async with cluster(folder, count, source=source) as hosts, trio.open_nursery() as nursery:
        Queue.open_for_append(hosts.path(1), create=roll_cycle).close()
        made = LedHosts(hosts, nursery, *parts(hosts))
        try:
            yield made
        finally:
            made.end()
