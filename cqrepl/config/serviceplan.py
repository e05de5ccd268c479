"""The services of one host, as the file of its cluster has them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cqrepl.broker.service import BoardSettings
from cqrepl.cluster.checkpoints import CheckpointSettings
from cqrepl.config.hostplan import HostPlan
from cqrepl.replicator.followfeed import JoinBy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """All services of one host.

    Args:
        boards: of tasks, by their names.
        checkpoints: how their states are saved.
        join: how a host that has no state comes to one.
        addresses: where clients reach hosts, by their ids.
    """

    boards: Mapping[str, BoardSettings]
    checkpoints: CheckpointSettings
    join: JoinBy
    addresses: Mapping[int, str]


def plan_services(plan: HostPlan) -> ServicePlan:
    """The services that a host is started with.

    Raises:
        ConfigError: a board has no such group.
    """
    tasks = plan.process["tasks"]
    checkpoint, age = plan.process["cluster.checkpoint"], plan.process["cluster.retention"]
    assert isinstance(tasks.value, dict)
    assert isinstance(checkpoint.value, CheckpointSettings)
    assert isinstance(age.value, int)
    for name, each in tasks.value.items():
        if each.group not in plan.masters:
            known = ", ".join(sorted(plan.masters))
            message = f"expected one of the groups {known} for board {name!r}, got {each.group!r}"
            raise tasks.wrong(plan.file, message, name, "group")
    return ServicePlan(
        boards=tasks.value,
        checkpoints=replace(checkpoint.value, age_min_ms=age.value),
        join=JoinBy(str(plan.process["cluster.join"].value)),
        addresses=plan.addresses,
    )
