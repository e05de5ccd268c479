"""Hosts with storages in threads, and the listeners of their roles."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.config.clusterfile import load_cluster
from cqrepl.config.hostplan import in_effect, plan_host
from cqrepl.persist.clustermanager import (
    ClusterManager,
    CorrelationIdHolder,
    ReplicationBackup,
    ReplicationLeader,
    ReplicationLeaderListener,
)
from cqrepl.persist.errors import NoRole, NotLeader, PersistError
from cqrepl.persist.factory import ReplicatedPersistenceFactoryHolder
from cqrepl.persist.storage.storages import StringSerializer
from cqrepl.persist.storage.storageservice import StorageSettings
from cqrepl.persist.storagehost import StorageHost
from tests.support.ports import reserved_port

GROUP = "p-fix"
SECONDS = 30.0


def hosts(folder: Path, *, election: str = "by-hand", count: int = 2) -> dict[int, StorageHost]:
    path, ports = folder / "cluster.yaml", [reserved_port() for _ in range(count)]
    lines = ["cluster:", f"  context: {{basePath: {folder}/$hostId}}"]
    for nth, port in enumerate(ports, 1):
        lines.append(f'  host{nth}: {{hostId: {nth}, connectUri: "127.0.0.1:{port}"}}')
    lines += ["cqrepl:", f"  cluster: {{election: {election}, leaseTimeout: 1s}}"]
    path.write_text("\n".join([*lines, "  persist: {fix: {}}", ""]))
    config = load_cluster(path)
    addresses = {nth: f"127.0.0.1:{port}" for nth, port in enumerate(ports, 1)}
    return {
        nth: StorageHost(
            plan_host(config, nth, in_effect(config, {}, {})).settings,
            [StorageSettings(group=GROUP)],
            addresses,
        )
        for nth in addresses
    }


def until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not holds():
        pause.wait(0.02)


class Heard:
    """A listener of both kinds: the calls, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.news = threading.Condition()

    def __getattr__(self, name: str) -> object:
        def called(*arguments: object) -> None:
            with self.news:
                self.calls.append((name, *arguments))
                self.news.notify_all()
            if name == "became_leader":
                raise ValueError("a listener that raises")

        return called

    def wait(self, *call: object) -> None:
        with self.news:
            assert self.news.wait_for(lambda: call in self.calls, SECONDS), self.calls


def test_a_controller_opens_nothing_and_one_role_is_up_at_a_time(tmp_path: Path) -> None:
    host = hosts(tmp_path)[1]
    ids = CorrelationIdHolder()
    leader = ReplicationLeader(host, ids, 1, 2, "data")
    backup = ReplicationBackup(host, ids, 1, 2, "data")
    assert not (tmp_path / "1").exists()
    with pytest.raises(NoRole):
        ReplicatedPersistenceFactoryHolder.get_factory(GROUP)
    leader.enable()
    with pytest.raises(PersistError, match="expected one role of a host at a time"):
        backup.enable()
    leader.disable()
    backup.enable()
    assert ReplicatedPersistenceFactoryHolder.get_factory(GROUP) is host.factory()
    backup.disable()
    assert ids.id_of("a") == CorrelationIdHolder().id_of("a")


def test_listeners_hear_of_the_roles_of_their_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = hosts(tmp_path)
    heard = {nth: Heard() for nth in both}
    managers = {nth: ClusterManager(host) for nth, host in both.items()}
    default = ReplicationLeader(both[1], CorrelationIdHolder(), 1, 1, tmp_path)
    for nth, manager in managers.items():
        # it has what is called
        manager.add_local_node_leader_listener(heard[nth])  # type: ignore[arg-type]
        manager.add_local_node_backup_listener(heard[nth])  # type: ignore[arg-type]  # and here
    managers[1].add_local_node_leader_listener(ReplicationLeaderListener(default))
    managers[1].start()
    heard[1].wait("became_leader")
    managers[2].start()
    heard[1].wait("backup_added", 2, both[1].addresses[2])
    heard[2].wait("became_backup", both[1].addresses[1])
    factory = ReplicatedPersistenceFactoryHolder.get_factory(GROUP)
    service = both[1].services[GROUP]
    until(service.leads)
    orders = factory.get_or_create_queue("orders", StringSerializer(), timeout=SECONDS)
    assert orders.append("buy").is_acked
    with pytest.raises(NotLeader):
        both[2].factory().get_or_create_queue("others", StringSerializer())
    backup = both[2].factory().get_or_create_queue("orders", StringSerializer())
    assert backup.peek() == (1, "buy")
    managers[2].stop()
    heard[1].wait("backup_removed", 2)
    managers[1].stop()
    heard[1].wait("lost_leader")
    assert not default.is_up
    assert "a listener has failed: ValueError('a listener that raises')" in caplog.text
    assert [each[0] for each in heard[1].calls] == [
        "became_leader",
        "backup_added",
        "backup_removed",
        "lost_leader",
    ]
    assert [each[0] for each in heard[2].calls if each[0] != "leader_changed"] == [
        "became_backup",
        "lost_backup",
    ]


def test_a_host_that_cannot_begin_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected groups that are queues of the host"):
        StorageHost(hosts(tmp_path)[1]._settings, [StorageSettings(group="other")])
    first, again = hosts(tmp_path)[1], None
    with first:
        again = StorageHost(first._settings, [StorageSettings(group=GROUP)])
        with pytest.raises(PersistError, match="the host has not begun"):
            again.start()


def test_a_call_of_a_program_that_raises_ends_no_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = hosts(tmp_path)
    heard: list[int] = []

    def met(host: int) -> None:
        heard.append(host)
        raise ValueError("of a program")

    both[1].met.append(met)
    with both[1], both[2]:
        until(lambda: heard == [2])
        until(lambda: "a call of a program failed: ValueError('of a program')" in caplog.text)
        until(both[1].services[GROUP].leads)
        orders = both[1].factory().get_or_create_queue("o", StringSerializer(), timeout=SECONDS)
        assert orders.append("buy").is_acked
        with pytest.raises(PersistError, match="expected a host that has ended"):
            both[1].start()
