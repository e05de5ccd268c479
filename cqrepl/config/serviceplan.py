"""The services of one host, as the file of its cluster has them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cqrepl.broker.service import BoardSettings
from cqrepl.cluster.checkpoints import CheckpointSettings
from cqrepl.config.electionplan import grids_in
from cqrepl.config.gridkinds import GridPlan
from cqrepl.config.hostplan import HostPlan
from cqrepl.console.exitcodes import BadArguments
from cqrepl.persist.properties import load_properties, without_effect
from cqrepl.persist.storage.storageservice import StorageSettings
from cqrepl.replicator.followfeed import JoinBy

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """All services of one host.

    Args:
        boards: of tasks, by their names.
        storages: by the queues that are their logs.
        grids: map sets, by their names.
        copies: the hosts of each of their groups, by its queue.
        checkpoints: how their states are saved.
        join: how a host that has no state comes to one.
        addresses: where clients reach hosts, by their ids.
    """

    boards: Mapping[str, BoardSettings]
    storages: Mapping[str, StorageSettings]
    grids: Mapping[str, GridPlan]
    copies: Mapping[str, Sequence[int]]
    checkpoints: CheckpointSettings
    join: JoinBy
    addresses: Mapping[int, str]


def _storages(plan: HostPlan, age_min_ms: int) -> dict[str, StorageSettings]:
    setting = plan.process["persist"]
    assert isinstance(setting.value, dict)
    found: dict[str, StorageSettings] = {}
    for name, group in setting.value.items():
        try:
            timeout_ms = group.timeout_ms
            if group.properties is not None:
                properties = load_properties(Path(plan.file).parent / group.properties)
                if said := without_effect(properties):
                    _logger.info("%s", said)
                timeout_ms = properties.default_timeout_ms if timeout_ms is None else timeout_ms
        except (BadArguments, OSError) as error:
            raise setting.wrong(plan.file, str(error), name, "properties") from None
        for queue, is_own in group.queues(name).items():
            found[queue] = StorageSettings(
                group=queue,
                own_log=is_own,
                timeout_seconds=(timeout_ms or 0) / 1000,
                age_min_ms=age_min_ms,
            )
    return found


def plan_services(plan: HostPlan) -> ServicePlan:
    """The services that a host is started with.

    Raises:
        ConfigError: a board has no such group; a file of properties cannot be used.
    """
    tasks = plan.process["tasks"]
    checkpoint, age = plan.process["cluster.checkpoint"], plan.process["cluster.retention"]
    assert isinstance(tasks.value, dict)
    assert isinstance(checkpoint.value, CheckpointSettings)
    assert isinstance(age.value, int)
    storages = _storages(plan, age.value)
    for name, each in tasks.value.items():
        if each.group not in plan.masters:
            known = ", ".join(sorted(plan.masters))
            message = f"expected one of the groups {known} for board {name!r}, got {each.group!r}"
            raise tasks.wrong(plan.file, message, name, "group")
        if each.group in storages:
            message = f"expected one service of a group, got board {name!r} and storages"
            raise tasks.wrong(plan.file, f"{message} on {each.group!r}", name, "group")
    grids, protocol = grids_in(plan.process), plan.settings.protocol
    hosts = sorted({*protocol.remote_ids, protocol.host_id})
    copies: dict[str, list[int]] = {}
    for grid in grids.values():
        copies |= grid.copies(hosts)
    return ServicePlan(
        boards=tasks.value,
        storages=storages,
        grids=grids,
        copies=copies,
        checkpoints=replace(checkpoint.value, age_min_ms=age.value),
        join=JoinBy(str(plan.process["cluster.join"].value)),
        addresses=plan.addresses,
    )
