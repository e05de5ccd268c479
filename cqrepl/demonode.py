"""One host of the demonstration of a cluster, as a process: `python -m cqrepl.demonode FILE HOST`.

It has one board of tasks on the group `g0`, and says on standard output, a line of JSON each, which
role it has on that group from now on.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Final

import trio

from cqrepl.broker.service import BoardService, BoardSettings
from cqrepl.broker.taskdesk import TaskDesk
from cqrepl.config.clusterfile import load_cluster
from cqrepl.config.hostplan import AddressBook, in_effect, read_settings
from cqrepl.host import Host
from cqrepl.replicator.hostevents import HostEvents
from cqrepl.replicator.rolelog import RoleChange

BOARD: Final = "demo"
GROUP: Final = "g0"


def addresses_in(path: Path) -> dict[int, str]:
    """The addresses of the hosts of a cluster, by their ids."""
    config = load_cluster(path)
    book = AddressBook(config, in_effect(config, {}, {}))
    return {host_id: str(each) for host_id, each in book.by_host.items() if each is not None}


def _say(change: RoleChange) -> None:
    line = {"queue": change.queue, "role": change.role.value, "epoch": change.epoch}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _run(path: Path, host_id: int) -> None:
    board = BoardSettings(group=GROUP, lease_seconds=5.0, backoff_ms=100)
    service = BoardService(BOARD, board, lambda: addresses_in(path))
    desk = TaskDesk([service])
    settings = read_settings(path, host_id, environ={})
    async with Host(settings, programs=[desk], events=HostEvents(on_role_change=_say)) as host:
        async with desk.running(host, lambda _: None):
            await trio.sleep_forever()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    trio.run(_run, Path(sys.argv[1]), int(sys.argv[2]))
