"""Hosts of a cluster in this process, each with a task board on the queue "a"."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from cqrepl.broker.client import TaskClient
from cqrepl.broker.service import BoardService, BoardSettings
from cqrepl.broker.taskdesk import TaskDesk
from cqrepl.protocol.ackpolicy import parse_policy
from cqrepl.queue import Queue
from cqrepl.replicator.settings import SourceSettings
from tests.support.promotions import Cluster, cluster

SETTINGS = BoardSettings(group="a", lease_seconds=5.0, backoff_ms=10)


@dataclass
class Boards:
    """They run on the hosts that were begun."""

    hosts: Cluster
    nursery: trio.Nursery
    settings: BoardSettings = SETTINGS
    desks: dict[int, TaskDesk] = field(default_factory=dict)
    _scopes: dict[int, trio.CancelScope] = field(default_factory=dict)

    async def begin(self, *host_ids: int) -> None:
        await self.begin_hosts(*host_ids)
        for host_id in host_ids:
            await self.run_board(host_id)

    async def begin_hosts(self, *host_ids: int) -> None:
        """Begins the hosts alone: their boards are known to clients, and do not run."""
        for host_id in host_ids:
            service = BoardService("jobs", self.settings, self._addresses)
            self.desks[host_id] = TaskDesk([service])
            self.hosts.programs[host_id] = [self.desks[host_id]]
        await self.hosts.start(*host_ids)
        await self.hosts.meet()

    async def run_board(self, host_id: int) -> None:
        await self.nursery.start(self._run, host_id)

    async def _run(self, host_id: int, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scopes[host_id]:
            desk = self.desks[host_id]
            async with desk.running(self.hosts.hosts[host_id], lambda _: None):
                task_status.started()
                await trio.sleep_forever()

    async def kill(self, host_id: int) -> None:
        self._scopes.pop(host_id).cancel()
        await self.hosts.kill(host_id)

    def end(self) -> None:
        for each in self._scopes.values():
            each.cancel()

    def board(self, host_id: int) -> BoardService:
        return self.desks[host_id].boards["jobs"]

    def _addresses(self) -> dict[int, str]:
        return {each: str(self.hosts.address(each)) for each in self.hosts.hosts}

    def client(self, *host_ids: int) -> TaskClient:
        return TaskClient([self.hosts.address(each) for each in host_ids], "jobs")


@asynccontextmanager
async def boards(
    folder: Path,
    count: int,
    policy: str = "level=appended from=1",
    settings: BoardSettings = SETTINGS,
) -> AsyncIterator[Boards]:
    """So many hosts with one board, which host 1 leads."""
    source = SourceSettings(policies={"a": parse_policy(policy)})
    async with cluster(folder, count, source=source) as hosts, trio.open_nursery() as nursery:
        Queue.open_for_append(hosts.path(1), create="FAST_DAILY").close()
        made = Boards(hosts, nursery, settings)
        await made.begin(*range(1, count + 1))
        try:
            yield made
        finally:
            made.end()
