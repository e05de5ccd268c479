"""The elections of a cluster, as its file has them: its groups, and the settings of one host."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cqrepl.config.clusterfile import ELECTION, ClusterConfig, QueueEntry, Setting, Settings, elects
from cqrepl.config.gridkinds import GridPlan
from cqrepl.config.valuekinds import Groups
from cqrepl.protocol import AckPolicy
from cqrepl.protocol.ackpolicy import PRESETS, From
from cqrepl.replicator.electionsettings import (
    ElectionKind,
    ElectionSettings,
    ZooKeeperSettings,
    wrong_members,
)
from cqrepl.replicator.settings import NO_HOST

GROUPS: Final = "cluster.groups"
GRID: Final = "grid"
GROUP_PREFIX: Final = "g"
# one backup of two or three hosts; of more hosts as many as the next leader is sure to hear one of
PERSIST_POLICY: Final = replace(PRESETS["persist-synchronous"], from_=From.MAJORITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """One group.

    Args:
        members: the hosts that have a copy of it.
        first: the one that leads it where several could; its master where none is elected.
        policy: its name, where the group is given no other.
        is_shared: other programs of the host that leads append to it.
        roll_cycle: of its queue; None: the usual one.
        own_policy: in the place of that; None: that.
    """

    members: frozenset[int]
    first: int
    policy: str = "broker-quorum"
    is_shared: bool = False
    roll_cycle: str | None = None
    own_policy: AckPolicy | None = None


def group_places(config: ClusterConfig, process: Settings) -> dict[str, GroupPlace]:
    """The groups of a file, by the names of their queues; none where it has none.

    Args:
        process: the settings, as `in_effect` gives them.

    Raises:
        ConfigError: a member is no host of the cluster, or there is no election.
    """
    return _numbered(config, process) | _persisted(config, process) | _of_grids(config, process)


def _numbered(config: ClusterConfig, process: Settings) -> dict[str, GroupPlace]:
    setting = process[GROUPS]
    groups = setting.value
    if groups is None:
        return {}
    assert isinstance(groups, Groups)
    members = _members(config, process)
    if not elects(process):
        raise setting.wrong(config.path, "expected an election with groups, got by-hand")
    return {
        f"{GROUP_PREFIX}{at}": GroupPlace(
            members=frozenset(members),
            first=members[at % len(members)],
            roll_cycle=groups.roll_cycle,
        )
        for at in range(groups.count)
    }


def _persisted(config: ClusterConfig, process: Settings) -> dict[str, GroupPlace]:
    """Those of storages."""
    said = process["persist"].value
    assert isinstance(said, dict)
    members = _members(config, process)
    return {
        queue: GroupPlace(
            members=frozenset(members),
            first=members[at % len(members)] if elects(process) else min(members),
            own_policy=PERSIST_POLICY,
            is_shared=is_own,
        )
        for at, (name, group) in enumerate(said.items())
        for queue, is_own in group.queues(name).items()
    }


def grids_in(process: Settings) -> dict[str, GridPlan]:
    """The map sets of a file, by their names."""
    found = process[GRID].value
    assert isinstance(found, dict)
    return found


def check_grid_hosts(config: ClusterConfig, process: Settings) -> None:
    """Does nothing where map sets name hosts of the file alone.

    Raises:
        ConfigError: one names another.
    """
    for plan in grids_in(process).values():
        for each in (*plan.members, *plan.settings.zones):
            if each not in config.hosts:
                ids = ", ".join(map(str, sorted(config.hosts)))
                message = f"expected ids of hosts ({ids}) as members, got {each}"
                raise process[GRID].wrong(config.path, message, plan.settings.name)


def _of_grids(config: ClusterConfig, process: Settings) -> dict[str, GroupPlace]:
    """Those of map sets: so many copies as no commit is without are waited for."""
    check_grid_hosts(config, process)
    found: dict[str, GroupPlace] = {}
    for plan in grids_in(process).values():
        least = plan.settings.replicas.least
        policy = AckPolicy(from_=least) if least else AckPolicy(from_=From.NONE)
        for name, hosts in plan.copies(sorted(config.hosts)).items():
            found[name] = GroupPlace(members=frozenset(hosts), first=hosts[0], own_policy=policy)
    return found


def _members(config: ClusterConfig, process: Settings) -> tuple[int, ...]:
    """The hosts that have copies of groups, in the order in which they lead first."""
    setting = process[GROUPS]
    groups = setting.value
    assert isinstance(groups, Groups | None)
    members = (None if groups is None else groups.members) or tuple(sorted(config.hosts))
    for each in members:
        if each not in config.hosts:
            ids = ", ".join(map(str, sorted(config.hosts)))
            message = f"expected ids of hosts ({ids}) as members, got {each}"
            raise setting.wrong(config.path, message, "members")
    return members


def with_groups(config: ClusterConfig, process: Settings) -> ClusterConfig:
    """The cluster with a queue for each group.

    Raises:
        ConfigError: as `group_places`; or a queue has the name or the directory of one.
    """
    places = group_places(config, process)
    if not places or any(each.is_group for each in config.queues.values()):
        return config
    queues = dict(config.queues)
    taken = {each.path for each in queues.values()}
    for name, place in places.items():
        if name in queues or Path(name) in taken:
            message = f"expected no other queue of the name or path of a group, got {name!r}"
            setting = process[_key_of(config, process, name)]
            raise setting.wrong(config.path, message)
        queues[name] = QueueEntry(
            name=name,
            path=Path(name),
            acknowledge=True,
            master_id=NO_HOST if elects(process) else place.first,
            source_id=None,
            roll_cycle=place.roll_cycle,
            is_group=True,
        )
    return replace(config, queues=queues)


def _key_of(config: ClusterConfig, process: Settings, name: str) -> str:
    """The key that a group stands below."""
    if name in _of_grids(config, process):
        return GRID
    return GROUPS if name in _numbered(config, process) else "persist"


def election_settings(
    config: ClusterConfig, process: Settings, members: Mapping[str, frozenset[int]]
) -> ElectionSettings | None:
    """The settings of the elections of a host; None where an operator promotes hosts.

    Args:
        config: with its groups.
        members: those that the file names, by queue.

    Raises:
        ConfigError: it cannot be elected so.
    """
    if not elects(process):
        return None
    setting = process[ELECTION]
    kind = ElectionKind(str(setting.value))
    for where, message in _hindrances(config, process, kind, members):
        raise where.wrong(config.path, message)
    places = group_places(config, process)
    groups = process[GROUPS].value
    is_preferred = isinstance(groups, Groups) and groups.preferred
    lease, on_role = process["cluster.leaseTimeout"].value, process["cluster.onRole"].value
    servers = process["cluster.zookeeper"].value
    assert isinstance(servers, ZooKeeperSettings | None)
    assert isinstance(lease, float)
    assert isinstance(on_role, tuple)
    return ElectionSettings(
        kind=kind,
        lease_seconds=lease,
        members=members,
        preferred={name: each.first for name, each in places.items()},
        gives_back=is_preferred,
        on_role=on_role,
        zookeeper=servers,
    )


def _hindrances(
    config: ClusterConfig,
    process: Settings,
    kind: ElectionKind,
    members: Mapping[str, frozenset[int]],
) -> Iterator[tuple[Setting, str]]:
    """The reasons why leaders cannot be elected, each with the setting that is wrong."""
    setting = process[ELECTION]
    servers = process["cluster.zookeeper"]
    if kind is ElectionKind.ZOOKEEPER and servers.value is None:
        yield setting, "expected 'zookeeper: {hosts: [...]}' beside it, got none"
    if kind is not ElectionKind.ZOOKEEPER and servers.value is not None:
        yield servers, f"expected 'election: zookeeper' beside it, got {kind}"
    if kind is ElectionKind.ZOOKEEPER and find_spec("kazoo") is None:
        yield setting, "expected kazoo for zookeeper (pip install 'cqrepl[cluster]'), got none"
    for base in ("baseSourcePath", "baseSinkPath"):
        if config.context[base].value is not None:
            message = f"expected 'basePath' alone with an election, got {base!r}: any host may lead"
            yield config.context[base], message
    routes = process["routes"]
    assert isinstance(routes.value, Mapping)
    for name in routes.value:
        yield routes, f"expected no routes with an election, got some of queue {str(name)!r}"
    for queue in config.queues.values():
        if not queue.acknowledge:
            message = f"queue {queue.name!r}: expected 'acknowledge: true' with an election"
            yield setting, f"{message}, got false"
    groups = process[GROUPS]
    places = group_places(config, process)
    for name, place in places.items():
        if why := wrong_members(len(place.members), kind):
            yield groups, f"group {name!r}: {why}"
    for name in sorted(members.keys() - places.keys()):
        if why := wrong_members(len(members[name]), kind):
            yield process["queues"], f"queue {name!r}: {why}"
    if config.queues.keys() - places.keys() - members.keys() and (
        why := wrong_members(len(config.hosts), kind)
    ):
        yield setting, f"all hosts of the cluster: {why}"
