"""Hosts of a cluster in this process, each with the storages of the group "a"."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from cqrepl.cluster.checkpoints import Checkpointer
from cqrepl.cluster.snapshots import GroupState, Snapshots
from cqrepl.net.threads import in_thread
from cqrepl.persist.factory import PersistenceFactory
from cqrepl.persist.persistdesk import PersistDesk
from cqrepl.persist.storage.storageservice import StorageService, StorageSettings
from cqrepl.protocol.ackpolicy import parse_policy
from cqrepl.queue import Queue
from cqrepl.replicator.followfeed import Checkpoints
from cqrepl.replicator.settings import SourceSettings
from tests.support.promotions import Cluster, cluster
from tests.support.replicas import eventually

SETTINGS = StorageSettings(group="a")
POLICY = "level=applied from=1"


@dataclass
class Persisted:
    """They run on the hosts that were begun."""

    hosts: Cluster
    nursery: trio.Nursery
    settings: StorageSettings = SETTINGS
    checkpoints: Callable[[int, StorageService], Checkpoints | None] = lambda host, service: None
    desks: dict[int, PersistDesk] = field(default_factory=dict)
    snapshots: dict[int, Snapshots] = field(default_factory=dict)
    _scopes: dict[int, trio.CancelScope] = field(default_factory=dict)

    async def begin(self, *host_ids: int) -> None:
        for host_id in host_ids:
            self.desks[host_id] = PersistDesk([StorageService(self.settings, self._addresses)])
            others = frozenset(self.hosts.roles) - {host_id}
            self.snapshots[host_id] = Snapshots(others, lambda _: 1)
            self.hosts.programs[host_id] = [self.desks[host_id], self.snapshots[host_id]]
        await self.hosts.start(*host_ids)
        await self.hosts.meet()
        for host_id in host_ids:
            await self.nursery.start(self._run, host_id)

    async def _run(self, host_id: int, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scopes[host_id]:
            desk, host = self.desks[host_id], self.hosts.hosts[host_id]
            service = desk.services["a"]
            saver = self.checkpoints(host_id, service)
            if isinstance(saver, Checkpointer):
                self.snapshots[host_id].groups["a"] = GroupState(
                    path=self.hosts.path(host_id),
                    folder=saver.folder,
                    save=lambda: service.led.feed.save(),
                )
            async with desk.running(host, lambda _: saver):
                task_status.started()
                await trio.sleep_forever()

    async def kill(self, host_id: int) -> None:
        self._scopes.pop(host_id).cancel()
        await self.hosts.kill(host_id)

    async def promote(self, host_id: int) -> None:
        await self.hosts.hosts[host_id].leaders.promote("a")
        await self.serving(host_id)

    async def serving(self, host_id: int) -> None:
        await eventually(lambda: self.service(host_id).leads())

    def end(self) -> None:
        for each in self._scopes.values():
            each.cancel()

    def service(self, host_id: int) -> StorageService:
        return self.desks[host_id].services["a"]

    async def factory(self, host_id: int, timeout_s: float = 5.0) -> PersistenceFactory:
        return await in_thread(lambda: PersistenceFactory(self.service(host_id), timeout_s))

    def _addresses(self) -> dict[int, str]:
        return {each: str(self.hosts.address(each)) for each in self.hosts.hosts}


@asynccontextmanager
async def persisted(
    folder: Path,
    count: int,
    policy: str = POLICY,
    settings: StorageSettings = SETTINGS,
    checkpoints: Callable[[int, StorageService], Checkpoints | None] = lambda host, service: None,
    roll_cycle: str = "FAST_DAILY",
    begin: int | None = None,
    waits: bool = True,
) -> AsyncIterator[Persisted]:
    """So many hosts with the storages, which host 1 leads.

    Args:
        begin: so many of them begin; None: all.
        waits: until host 1 takes appends.
    """
    source = SourceSettings(policies={"a": parse_policy(policy)})
    async with cluster(folder, count, source=source) as hosts, trio.open_nursery() as nursery:
        Queue.open_for_append(hosts.path(1), create=roll_cycle).close()
        made = Persisted(hosts, nursery, settings, checkpoints)
        await made.begin(*range(1, (begin or count) + 1))
        if waits:
            await made.serving(1)
        try:
            yield made
        finally:
            made.end()
