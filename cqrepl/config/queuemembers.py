"""The members of the queues of a cluster, as its file names them, and what else it says of them."""

from collections.abc import Mapping
from typing import Final

from cqrepl.config.clusterfile import ClusterConfig, Setting, Settings, elects, nearest
from cqrepl.config.queueoptions import QueueOptions, is_pattern, options_of
from cqrepl.config.yamltree import shown
from cqrepl.replicator.settings import NO_HOST

_QUEUES: Final = "queues"


def options_by_queue(config: ClusterConfig, process: Settings) -> dict[str, QueueOptions]:
    """The options of each queue.

    Args:
        process: the settings, as `in_effect` gives them.

    Raises:
        ConfigError: they are of no queue, name a host that is none of the cluster, or leave out the
            master of a queue.
    """
    setting = process[_QUEUES]
    assert isinstance(setting.value, Mapping)
    for name, options in setting.value.items():
        if not is_pattern(name) and name not in config.queues:
            near = nearest(name, config.queues)
            message = f"a queue expected, {shown(name)} came; the nearest one is {near!r}"
            raise setting.wrong(config.path, message, name)
        if unknown := sorted(options.members - config.hosts.keys()):
            ids = ", ".join(map(str, sorted(config.hosts)))
            message = f"ids of hosts ({ids}) expected as members, {unknown[0]} came"
            raise setting.wrong(config.path, message, name, "members")
        if options.start_lock and not elects(process):
            message = f"queue {name!r}: an election expected with 'startLock', none came"
            raise setting.wrong(config.path, message, name, "startLock")
    found = {name: options_of(name, setting.value) for name in config.queues}
    for name, options in found.items():
        _check_master(config, setting, name, options.members)
    return found


def _check_master(
    config: ClusterConfig, setting: Setting, name: str, members: frozenset[int]
) -> None:
    master_id = config.queues[name].master_id
    if members and master_id not in (NO_HOST, *members):
        ids = ", ".join(map(str, sorted(members)))
        message = (
            f"queue {name!r}: its master, host {master_id}, expected among its members ({ids})"
        )
        raise setting.wrong(config.path, message, name, "members")
