"""Hosts of a cluster in this process, each with one group of a grid on the queue "a"."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import trio

import cqrepl.grid
from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.grid.griddesk import GridDesk
from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.loaders import Loader, LoaderDesk, TransactionCallback
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.protocol.ackpolicy import parse_policy
from cqrepl.queue import Queue
from cqrepl.replicator.settings import SourceSettings
from tests.support.promotions import Cluster, cluster

T = TypeVar("T")
MAPS = {"m": cqrepl.grid.MapSettings(), "n": cqrepl.grid.MapSettings()}
SETTINGS = cqrepl.grid.GridSettings(
    name="s",
    maps=MAPS,
    partitions=2,
    groups=1,
    replicas=cqrepl.grid.ReplicaSettings(sync=1, others=1),
    reads=cqrepl.grid.Reads.TOKEN,
    outcome_seconds=30.0,
)


@dataclass
class Grids:
    """They run on the hosts that were begun.

    Args:
        loaders: makes those of a host, with their callback.
    """

    hosts: Cluster
    nursery: trio.Nursery
    settings: cqrepl.grid.GridSettings
    loaders: Callable[[int], tuple[Mapping[str, Loader], TransactionCallback | None]]
    desks: dict[int, GridDesk] = field(default_factory=dict)
    lease_seconds: float = 0.5
    _scopes: dict[int, trio.CancelScope] = field(default_factory=dict)

    async def begin(self, *host_ids: int) -> None:
        for host_id in host_ids:
            loaders, callback = self.loaders(host_id)
            desk = LoaderDesk(self.settings, loaders, callback, ValueCodec())
            group = GridGroup(
                self.settings, 0, desk, lambda: (1, 2, 3), self.lease_seconds, self.addresses, "a"
            )
            self.desks[host_id] = GridDesk([group], self.addresses)
            self.hosts.programs[host_id] = [self.desks[host_id]]
        await self.hosts.start(*host_ids)
        await self.hosts.meet()
        for host_id in host_ids:
            await self.nursery.start(self._run, host_id)

    async def _run(self, host_id: int, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scopes[host_id]:
            desk, host = self.desks[host_id], self.hosts.hosts[host_id]
            saver = Checkpointer("a", self.hosts.path(host_id), CheckpointSettings())
            async with desk.running(host, lambda _: saver), desk.answering():
                task_status.started()
                await trio.sleep_forever()

    async def kill(self, host_id: int) -> None:
        self._scopes.pop(host_id).cancel()
        await self.hosts.kill(host_id)

    def end(self) -> None:
        for each in self._scopes.values():
            each.cancel()

    def group(self, host_id: int) -> GridGroup:
        return self.desks[host_id].groups["s-0"]

    def addresses(self) -> dict[int, str]:
        return {each: str(self.hosts.address(each)) for each in self.hosts.hosts}

    async def use(self, work: Callable[[cqrepl.grid.RemoteGrid], T], *host_ids: int) -> T:
        """The result of what a program does in a thread with a grid of its own."""
        hosts = ",".join(str(self.hosts.address(each)) for each in host_ids or (1, 2, 3))

        def run() -> T:
            with cqrepl.grid.connect(hosts, "s", timeout=20.0) as grid:
                return work(grid)

        return await trio.to_thread.run_sync(run)


def no_loaders(host_id: int) -> tuple[Mapping[str, Loader], TransactionCallback | None]:
    return {}, None


@asynccontextmanager
async def grids(
    folder: Path,
    count: int = 3,
    settings: cqrepl.grid.GridSettings = SETTINGS,
    loaders: Callable[[int], tuple[Mapping[str, Loader], TransactionCallback | None]] = no_loaders,
) -> AsyncIterator[Grids]:
    """So many hosts with one group, which host 1 leads."""
    least = settings.replicas.least
    policy = f"level=appended from={least or 'none'}"
    source = SourceSettings(policies={"a": parse_policy(policy)}, exclusive=frozenset({"a"}))
    async with cluster(folder, count, source=source) as hosts, trio.open_nursery() as nursery:
        Queue.open_for_append(hosts.path(1), create="FAST_DAILY").close()
        made = Grids(hosts, nursery, settings, loaders)
        await made.begin(*range(1, count + 1))
        try:
            yield made
        finally:
            made.end()
