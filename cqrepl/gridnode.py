"""One host of the demonstration of a grid, as a process: `python -m cqrepl.gridnode FILE HOST`.

It runs the map sets of the file, and says on standard output, a line of JSON each, which role it
has on a group from now on, and how many rows a preload has read.
"""

import json
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.config.clusterfile import load_cluster
from cqrepl.config.hostplan import in_effect, plan_host
from cqrepl.config.serviceplan import plan_services
from cqrepl.grid.griddesk import GridDesk
from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.loaderchoice import sql_loaders
from cqrepl.grid.loaders import LoaderDesk
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.sqlloader import SqlLoader
from cqrepl.host import Host
from cqrepl.replicator.hostevents import HostEvents
from cqrepl.replicator.rolelog import RoleChange


def _say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _say_role(change: RoleChange) -> None:
    _say(queue=change.queue, role=change.role.value, epoch=change.epoch)


def _say_read(map_name: str, partition: int, rows: int) -> None:
    _say(read=map_name, partition=partition, rows=rows)


async def _run(path: Path, host_id: int) -> None:
    config = load_cluster(path)
    plan = plan_host(config, host_id, in_effect(config, {}, {}))
    services = plan_services(plan)
    assert plan.settings.election is not None
    lease_seconds = plan.settings.election.lease_seconds
    addresses: Callable[[], dict[int, str]] = partial(dict, services.addresses)
    groups: list[GridGroup] = []
    for grid in services.grids.values():
        loaders, callback = sql_loaders(grid.settings.name, grid.loaders)
        for each in loaders.values():
            assert isinstance(each, SqlLoader)
            each.on_block = _say_read
        desk = LoaderDesk(grid.settings, loaders, callback, ValueCodec())
        for nth, hosts in enumerate(grid.copies(sorted(config.hosts)).values()):
            copies: Callable[[], list[int]] = partial(list, hosts)
            groups.append(GridGroup(grid.settings, nth, desk, copies, lease_seconds, addresses))
    grids = GridDesk(groups, addresses)

    def saver(group: GridGroup) -> Checkpointer:
        return Checkpointer(group.group, host.queue(group.group).path, CheckpointSettings())

    events = HostEvents(on_role_change=_say_role)
    async with Host(plan.settings, programs=[grids], events=events) as host:
        async with grids.running(host, saver), grids.answering():
            await trio.sleep_forever()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    trio.run(_run, Path(sys.argv[1]), int(sys.argv[2]))
