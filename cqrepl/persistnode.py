"""One host of the demonstration of storages: `python -m cqrepl.persistnode FILE HOST`.

While it leads, a thread for each sequence appends to it, synchronously, and writes a line for each
append that has returned to `appends-HOST.log` beside the file:

    NAME INDEX IS_ACKED NANOSECONDS ITEM

It says on standard output, a line of JSON each, which role it has from now on; and ends with its
standard input.
"""

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

from cqrepl.config.clusterfile import load_cluster
from cqrepl.config.hostplan import AddressBook, in_effect, read_settings
from cqrepl.persist.clustermanager import (
    ClusterManager,
    CorrelationIdHolder,
    ReplicationBackup,
    ReplicationBackupListener,
    ReplicationLeader,
    ReplicationLeaderListener,
)
from cqrepl.persist.errors import NotLeader, PersistError
from cqrepl.persist.factory import ReplicatedPersistenceFactoryHolder
from cqrepl.persist.storage.storages import StringSerializer
from cqrepl.persist.storage.storageservice import StorageSettings
from cqrepl.persist.storagehost import StorageHost
from cqrepl.queue import QueueError
from cqrepl.replicator.rolelog import RoleChange

GROUP: Final = "p-demo"
SEQUENCES: Final = 8
TIMEOUT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.002  # of a writer, so that the demonstration leaves room for others


def addresses_of(path: Path) -> dict[int, str]:
    """The addresses of the hosts of a cluster, by their ids."""
    config = load_cluster(path)
    book = AddressBook(config, in_effect(config, {}, {}))
    return {host_id: str(each) for host_id, each in book.by_host.items() if each is not None}


def _say(change: RoleChange) -> None:
    line = {"queue": change.queue, "role": change.role.value, "epoch": change.epoch}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _write(host: StorageHost, name: str, log: int, ended: threading.Event) -> None:
    """Appends while this host leads; what has returned is in the log before the next one begins."""
    count, service = 0, host.services[GROUP]
    while not ended.is_set():
        if not service.leads():
            ended.wait(0.05)
            continue
        try:
            factory = ReplicatedPersistenceFactoryHolder.get_factory(GROUP)
            sequence = factory.get_or_create_sequence(
                name, None, StringSerializer(), TIMEOUT_SECONDS
            )
            item = f"{os.getpid()}-{count}"
            began = time.perf_counter_ns()
            stored = sequence.append(item)
        except (NotLeader, PersistError, QueueError, OSError) as error:
            logging.getLogger(__name__).info("%s: %s", name, error)
            ended.wait(0.05)
            continue
        taken = time.perf_counter_ns() - began
        os.write(log, f"{name} {int(stored)} {stored.is_acked:d} {taken} {item}\n".encode())
        count += 1
        ended.wait(_PAUSE_SECONDS)


def _run(path: Path, host_id: int) -> None:
    settings = read_settings(path, host_id, environ={})
    host = StorageHost(settings, [StorageSettings(group=GROUP)], addresses_of(path))
    host.changed.append(_say)
    port = settings.net.listen.port if settings.net.listen is not None else 0
    place = (host, CorrelationIdHolder(), port, port, path.parent / str(host_id))
    manager = ClusterManager(host)
    manager.add_local_node_leader_listener(ReplicationLeaderListener(ReplicationLeader(*place)))
    manager.add_local_node_backup_listener(ReplicationBackupListener(ReplicationBackup(*place)))
    manager.start()
    ended = threading.Event()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log = os.open(path.parent / f"appends-{host_id}.log", flags, 0o644)
    writers = [
        threading.Thread(target=_write, args=(host, f"session-{nth}", log, ended))
        for nth in range(SEQUENCES)
    ]
    for each in writers:
        each.start()
    sys.stdin.read()
    ended.set()
    for each in writers:
        each.join()
    manager.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    _run(Path(sys.argv[1]), int(sys.argv[2]))
