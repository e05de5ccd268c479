"""The roles of a host with storages, under the names that FIX Antenna's replication has for them.

    host = StorageHost(settings, [StorageSettings(group="p-fix")], addresses)
    ids = CorrelationIdHolder()
    leader = ReplicationLeader(host, ids, 7001, 7001, "data")
    backup = ReplicationBackup(host, ids, 7001, 7001, "data")
    manager = ClusterManager(host)
    manager.add_local_node_leader_listener(ReplicationLeaderListener(leader))
    manager.add_local_node_backup_listener(ReplicationBackupListener(backup))
    manager.start()
    factory = ReplicatedPersistenceFactoryHolder.get_factory()      # once a role is up

Who leads, the cluster's elections decide, or an operator; hosts are those of its file. Both ports
are one listener's, for both roles. A controller opens nothing: it says whether its role is up.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from cqrepl.persist.errors import PersistError
from cqrepl.persist.factory import ReplicatedPersistenceFactoryHolder
from cqrepl.persist.storage.records import correlation_id
from cqrepl.persist.storagehost import StorageHost
from cqrepl.protocol.programfault import Contained
from cqrepl.replicator.rolelog import Role, RoleChange

A = TypeVar("A")
L = TypeVar("L")
_logger: Final = logging.getLogger(__name__)


class CorrelationIdHolder:
    """The ids of storages, by their names. They outlive each role."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id_of(self, name: str) -> int:
        """The id of a storage: its name alone makes it, on each host."""
        return self._ids.setdefault(name, correlation_id(name))


class _RoleController:
    """A controller of one role. Only one role of a host is up at a time."""

    def __init__(
        self,
        host: StorageHost,
        ids: CorrelationIdHolder,
        leader_port: int,
        broadcast_port: int,
        directory: Path | str,
    ) -> None:
        self.host = host
        self.ids = ids
        self.ports = (leader_port, broadcast_port)
        self.directory = Path(directory)
        self.is_up = False

    def enable(self) -> None:
        """The role is up: programs get the factory.

        Raises:
            PersistError: another role of the host is.
        """
        if self.is_up:
            return
        if self.host.role is not None:
            raise PersistError("expected one role of a host at a time, got leader and backup")
        self.host.role = self
        self.is_up = True
        for group in self.host.services:
            ReplicatedPersistenceFactoryHolder.put(group, self.host.factory(group))

    def disable(self) -> None:
        """The role is not up any more."""
        if self.is_up:
            self.is_up = False
            self.host.role = None
            for group in self.host.services:
                ReplicatedPersistenceFactoryHolder.take_back(group)


class ReplicationLeader(_RoleController):
    """The controller of the role of the host that leads."""


class ReplicationBackup(_RoleController):
    """The controller of the role of a host that follows."""


class LocalNodeLeaderListener(Protocol):
    """Hears of this host's lead. Called in a thread, one call at a time."""

    def became_leader(self) -> None:
        """This host leads from now on."""

    def lost_leader(self) -> None:
        """It does not any more."""

    def backup_added(self, host: int, address: str) -> None:
        """Another host is connected, while this one leads."""

    def backup_removed(self, host: int) -> None:
        """It is not any more."""


class LocalNodeBackupListener(Protocol):
    """Hears of this host's part as a backup. Called in a thread, one call at a time."""

    def became_backup(self, leader_address: str) -> None:
        """This host follows from now on; the address is empty where no host is known to lead."""

    def leader_changed(self, leader_address: str) -> None:
        """It follows another host."""

    def lost_backup(self) -> None:
        """It does not follow any more."""


class ReplicationLeaderListener:
    """Has a leader's controller follow the cluster."""

    def __init__(self, leader: ReplicationLeader) -> None:
        self._leader = leader

    def became_leader(self) -> None:
        """Enables the role."""
        self._leader.enable()

    def lost_leader(self) -> None:
        """Disables it."""
        self._leader.disable()

    def backup_added(self, host: int, address: str) -> None:
        """The host streams to it by itself."""
        _logger.info("host %d, a backup, is connected from %s", host, address or "somewhere")

    def backup_removed(self, host: int) -> None:
        """There is nothing to be done."""
        _logger.info("host %d, a backup, is not connected any more", host)


class ReplicationBackupListener:
    """Has a backup's controller follow the cluster."""

    def __init__(self, backup: ReplicationBackup) -> None:
        self._backup = backup

    def became_backup(self, leader_address: str) -> None:
        """Enables the role."""
        self._backup.enable()

    def leader_changed(self, leader_address: str) -> None:
        """The host follows it by itself."""
        _logger.info("this host, a backup, follows %s", leader_address or "no host yet")

    def lost_backup(self) -> None:
        """Disables the role."""
        self._backup.disable()


class ClusterManager:
    """Tells listeners what becomes of this host. Those of one event are called in the order in
    which they were added; one that raises is logged, and the others are called."""

    def __init__(self, host: StorageHost) -> None:
        self.host = host
        self._group = next(iter(host.services))  # which stands for the host
        self._leaders: list[LocalNodeLeaderListener] = []
        self._backups: list[LocalNodeBackupListener] = []
        self._role: Role | None = None
        self._leader = ""
        self._peers: set[int] = set()
        self._turn = threading.RLock()  # one call at a time
        host.changed.append(self._in_turn(self._changed))
        host.met.append(self._in_turn(self._met))
        host.parted.append(self._in_turn(self._parted))

    def add_local_node_leader_listener(self, listener: LocalNodeLeaderListener) -> None:
        """Has a listener hear of the lead."""
        self._leaders.append(listener)

    def add_local_node_backup_listener(self, listener: LocalNodeBackupListener) -> None:
        """Has a listener hear of this host as a backup."""
        self._backups.append(listener)

    def start(self) -> None:
        """Begins; listeners are called from now on.

        Raises:
            PersistError: the host could not begin.
        """
        self.host.start()

    def stop(self) -> None:
        """Ends the host; its role is over then."""
        self.host.stop()
        self._take_role(None)

    def _in_turn(self, call: Callable[[A], None]) -> Callable[[A], None]:
        def called(argument: A) -> None:
            with self._turn:
                call(argument)

        return called

    def _changed(self, change: RoleChange) -> None:
        if change.queue != self._group:
            return
        leader = self.host.addresses.get(change.leader or 0, "")
        is_leader = change.role is Role.LEADING
        role = Role.LEADING if is_leader else Role.FOLLOWING
        if role is self._role and not is_leader and leader != self._leader:
            self._leader = leader
            self._tell(self._backups, lambda each: each.leader_changed(leader))
            return
        self._leader = "" if is_leader else leader
        self._take_role(role)

    def _take_role(self, role: Role | None) -> None:
        was, self._role = self._role, role
        if was is role:
            return
        if was is Role.LEADING:
            self._tell(self._leaders, lambda each: each.lost_leader())
        elif was is Role.FOLLOWING:
            self._tell(self._backups, lambda each: each.lost_backup())
        if role is Role.LEADING:
            self._tell(self._leaders, lambda each: each.became_leader())
            for host in sorted(self._peers):
                self._tell_added(host)
        elif role is Role.FOLLOWING:
            self._tell(self._backups, lambda each: each.became_backup(self._leader))

    def _met(self, host: int) -> None:
        self._peers.add(host)
        if self._role is Role.LEADING:
            self._tell_added(host)

    def _parted(self, host: int) -> None:
        self._peers.discard(host)
        if self._role is Role.LEADING:
            self._tell(self._leaders, lambda each: each.backup_removed(host))

    def _tell_added(self, host: int) -> None:
        address = self.host.addresses.get(host, "")
        self._tell(self._leaders, lambda each: each.backup_added(host, address))

    @staticmethod
    def _tell(listeners: list[L], call: Callable[[L], None]) -> None:
        for each in list(listeners):
            with Contained(lambda fault: _logger.error("a listener has failed: %r", fault)):
                call(each)
