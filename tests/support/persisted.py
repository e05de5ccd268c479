"""Hosts of a cluster in this process, each with the storages of the group "a"."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from cqrepl.cluster.checkpoints import Checkpointer
from cqrepl.cluster.snapshots import GroupState, Snapshots
from cqrepl.net.program import Program
from cqrepl.net.threads import in_thread
from cqrepl.persist.factory import PersistenceFactory
from cqrepl.persist.persistdesk import PersistDesk
from cqrepl.persist.storage.storageservice import StorageService, StorageSettings
from cqrepl.protocol.ackpolicy import parse_policy
from cqrepl.replicator.followfeed import Checkpoints
from cqrepl.replicator.settings import SourceSettings
from tests.support.ledhosts import LedHosts, Make, Run, addresses, led_hosts
from tests.support.promotions import Cluster
from tests.support.replicas import eventually

SETTINGS = StorageSettings(group="a")
POLICY = "level=applied from=1"


SaverOf = Callable[[int, StorageService], Checkpoints | None]


class Persisted:
    """They run on the hosts that were begun."""

    def __init__(self, led: LedHosts[PersistDesk], snapshots: dict[int, Snapshots]) -> None:
        self.snapshots = snapshots
        self.hosts = led.hosts
        self.desks = led.desks
        self.begin, self.kill = led.begin, led.kill

    async def promote(self, host_id: int) -> None:
        await self.hosts.hosts[host_id].leaders.promote("a")
        await self.serving(host_id)

    async def serving(self, host_id: int) -> None:
        await eventually(lambda: self.service(host_id).leads())

    def service(self, host_id: int) -> StorageService:
        return self.desks[host_id].services["a"]

    async def factory(self, host_id: int, timeout_s: float = 5.0) -> PersistenceFactory:
        return await in_thread(lambda: PersistenceFactory(self.service(host_id), timeout_s))


@asynccontextmanager
async def persisted(
    folder: Path,
    count: int,
    policy: str = POLICY,
    settings: StorageSettings = SETTINGS,
    checkpoints: SaverOf = lambda host, service: None,
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
    snapshots: dict[int, Snapshots] = {}
    parts = partial(_parts, settings, checkpoints, snapshots)
    async with led_hosts(folder, count, source, parts, roll_cycle) as led:
        await led.begin(*range(1, (begin or count) + 1))
        made = Persisted(led, snapshots)
        if waits:
            await made.serving(1)
        yield made


def _parts(
    settings: StorageSettings,
    checkpoints: SaverOf,
    snapshots: dict[int, Snapshots],
    hosts: Cluster,
) -> tuple[Make[PersistDesk], Run[PersistDesk]]:
    def make(host_id: int) -> tuple[PersistDesk, list[Program]]:
        desk = PersistDesk([StorageService(settings, partial(addresses, hosts))])
        snapshots[host_id] = Snapshots(frozenset(hosts.roles) - {host_id}, lambda _: 1)
        return desk, [desk, snapshots[host_id]]

    @asynccontextmanager
    async def run(desk: PersistDesk, host_id: int) -> AsyncIterator[None]:
        service = desk.services["a"]
        saver = checkpoints(host_id, service)
        if isinstance(saver, Checkpointer):
            snapshots[host_id].groups["a"] = GroupState(
                path=hosts.path(host_id),
                folder=saver.folder,
                save=lambda: service.led.feed.save(),
            )
        async with desk.running(hosts.hosts[host_id], lambda _: saver):
            yield

    return make, run
