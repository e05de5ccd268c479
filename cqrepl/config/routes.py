"""The routes of queues: a host takes a queue from its master, or from one that passes it on."""

from collections.abc import Mapping

from cqrepl.config.clusterfile import ClusterConfig, Setting, nearest
from cqrepl.config.errors import ConfigError
from cqrepl.config.yamltree import shown
from cqrepl.net.address import Address


class Routes:
    """The ways of all queues of a cluster.

    Args:
        setting: of the key `routes`.
        addresses: of the hosts, by id; None for one that only dials.
        members: the hosts that have a copy, by queue; of any other, all.

    Attributes:
        by_queue: those that the file names: of a queue, by the host that takes it, the other one.

    Raises:
        ConfigError: one is of no queue or host, goes round in a circle, or two hosts cannot meet.
    """

    def __init__(
        self,
        config: ClusterConfig,
        setting: Setting,
        addresses: Mapping[int, Address | None],
        members: Mapping[str, frozenset[int]],
    ) -> None:
        assert isinstance(setting.value, dict)
        self._config = config
        self._setting = setting
        self.by_queue: Mapping[str, Mapping[int, int]] = setting.value
        self._addresses = addresses
        self._members = members
        for name in self.by_queue:
            self._check(name)

    def giver(self, name: str, host_id: int, *, leader_id: int | None = None) -> int:
        """The host that this one takes a queue from; its own id for the one that leads it.

        Args:
            leader_id: the host that leads it; None: its master. The ways of the file lead to its
                master: from another leader every host takes it directly.
        """
        master_id = self._config.queues[name].master_id
        if leader_id is None or leader_id == master_id:
            return self.by_queue.get(name, {}).get(host_id, master_id)
        return leader_id

    def takers(self, name: str, host_id: int, *, leader_id: int | None = None) -> frozenset[int]:
        """The hosts that take a queue from this one; `leader_id` as above."""
        leader_id = leader_id or self._config.queues[name].master_id
        others = (self._members.get(name) or self._config.hosts.keys()) - {host_id, leader_id}
        return frozenset(
            each for each in others if self.giver(name, each, leader_id=leader_id) == host_id
        )

    def _check(self, name: str) -> None:
        if name not in self._config.queues:
            near = nearest(name, self._config.queues)
            message = f"a queue expected, {shown(name)} came; the nearest one is {near!r}"
            raise self._setting.wrong(self._config.path, message, name)
        master_id = self._config.queues[name].master_id
        for taker, giver in self.by_queue[name].items():
            for each in (taker, giver):
                if each not in self._config.hosts:
                    ids = ", ".join(map(str, sorted(self._config.hosts)))
                    raise self._wrong(name, taker, f"ids of hosts ({ids}) expected, {each} came")
                if each not in (self._members.get(name) or self._config.hosts):
                    raise self._wrong(name, taker, f"host {each} is none of its members")
            if taker == master_id:
                raise self._wrong(name, taker, f"host {taker} is its master")
            if self._addresses[taker] is None and self._addresses[giver] is None:
                message = f"'connectUri' expected for host {taker} or {giver}, neither has one"
                raise self._wrong(name, taker, message)
            self._check_end(name, taker, master_id)

    def _check_end(self, name: str, taker: int, master_id: int) -> None:
        path = [taker]
        while path[-1] != master_id:
            giver = self.giver(name, path[-1])
            if giver in path:
                way = ", ".join(map(str, [*path, giver]))
                message = (
                    f"a way to its master, host {master_id}, expected; hosts {way} take it from"
                    " one another in a circle"
                )
                raise self._wrong(name, taker, message)
            path.append(giver)

    def _wrong(self, name: str, taker: int, message: str) -> ConfigError:
        """An error of the way of a queue to a host."""
        message = f"queue {name!r}: {message}"
        return self._setting.wrong(self._config.path, message, name, str(taker))
