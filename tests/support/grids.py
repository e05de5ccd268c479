"""Hosts of a cluster in this process, each with one group of a grid on the queue "a"."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

import cqrepl.grid
from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.grid.griddesk import GridDesk
from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.loaders import Loader, LoaderDesk, TransactionCallback
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.net.program import Program
from cqrepl.protocol.ackpolicy import parse_policy
from cqrepl.replicator.settings import SourceSettings
from tests.support.ledhosts import LedHosts, Make, Run, addresses, led_hosts
from tests.support.promotions import Cluster

T = TypeVar("T")
LEASE_SECONDS = 0.5
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


Loaders = Callable[[int], tuple[Mapping[str, Loader], TransactionCallback | None]]


class Grids:
    """They run on the hosts that were begun."""

    def __init__(self, led: LedHosts[GridDesk]) -> None:
        self.hosts = led.hosts
        self.desks = led.desks
        self.begin, self.kill = led.begin, led.kill

    def group(self, host_id: int) -> GridGroup:
        return self.desks[host_id].groups["s-0"]

    def addresses(self) -> dict[int, str]:
        return addresses(self.hosts)

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
    loaders: Loaders = no_loaders,
    begin: int | None = None,
) -> AsyncIterator[Grids]:
    """So many hosts with one group, which host 1 leads.

    Args:
        begin: so many of them begin; None: all.
    """
    least = settings.replicas.least
    policy = f"level=appended from={least or 'none'}"
    source = SourceSettings(policies={"a": parse_policy(policy)}, exclusive=frozenset({"a"}))
    async with led_hosts(folder, count, source, partial(_parts, settings, loaders)) as led:
        await led.begin(*range(1, (begin or count) + 1))
        yield Grids(led)


def _parts(
    settings: cqrepl.grid.GridSettings, loaders: Loaders, hosts: Cluster
) -> tuple[Make[GridDesk], Run[GridDesk]]:
    places = partial(addresses, hosts)

    def make(host_id: int) -> tuple[GridDesk, list[Program]]:
        found, callback = loaders(host_id)
        desk = LoaderDesk(settings, found, callback, ValueCodec())
        group = GridGroup(settings, 0, desk, lambda: (1, 2, 3), LEASE_SECONDS, places, "a")
        grid = GridDesk([group], places)
        return grid, [grid]

    @asynccontextmanager
    async def run(desk: GridDesk, host_id: int) -> AsyncIterator[None]:
        saver = Checkpointer("a", hosts.path(host_id), CheckpointSettings())
        async with desk.running(hosts.hosts[host_id], lambda _: saver), desk.answering():
            yield

    return make, run
