"""Hosts of a cluster in this process, each with a task board on the queue "a"."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from cqrepl.broker.client import TaskClient
from cqrepl.broker.service import BoardService, BoardSettings
from cqrepl.broker.taskdesk import TaskDesk
from cqrepl.net.program import Program
from cqrepl.protocol.ackpolicy import parse_policy
from cqrepl.replicator.settings import SourceSettings
from tests.support.ledhosts import LedHosts, Make, Run, addresses, led_hosts
from tests.support.promotions import Cluster

SETTINGS = BoardSettings(group="a", lease_seconds=5.0, backoff_ms=10)


class Boards:
    """They run on the hosts that were begun."""

    def __init__(self, led: LedHosts[TaskDesk]) -> None:
        self.hosts = led.hosts
        self.begin, self.begin_hosts, self.kill = led.begin, led.begin_hosts, led.kill
        self.run_board = led.run_desk
        self._led = led

    def board(self, host_id: int) -> BoardService:
        return self._led.desks[host_id].boards["jobs"]

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
    async with led_hosts(folder, count, source, partial(_parts, settings)) as led:
        await led.begin(*range(1, count + 1))
        yield Boards(led)


def _parts(settings: BoardSettings, hosts: Cluster) -> tuple[Make[TaskDesk], Run[TaskDesk]]:
    def make(host_id: int) -> tuple[TaskDesk, list[Program]]:
        desk = TaskDesk([BoardService("jobs", settings, partial(addresses, hosts))])
        return desk, [desk]

    @asynccontextmanager
    async def run(desk: TaskDesk, host_id: int) -> AsyncIterator[None]:
        async with desk.running(hosts.hosts[host_id], lambda _: None):
            yield

    return make, run
