"""The settings of a host whose queues are led by whom their members elect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

LEASE_SECONDS: Final = 2.0
LEASE_SECONDS_MIN: Final = 0.5
MEMBERS_MAX: Final = 7


class ElectionKind(StrEnum):
    """The way in which it is decided which host asks for promises, and when."""

    BY_HAND = "by-hand"  # an operator does
    MAJORITY = "majority"  # the members that hear no leader do
    ZOOKEEPER = "zookeeper"  # the first of the candidates in ZooKeeper does


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """The place in ZooKeeper where candidates stand.

    Args:
        hosts: `HOST:PORT` of its servers.
        path: of the node below which everything is.
        session_seconds: a candidate that it did not hear for so long is gone.
        user: for a digest; empty for none.
        password_file: with the password of that user.
    """

    hosts: tuple[str, ...]
    path: str = "/cqrepl"
    session_seconds: float = 40.0
    user: str = ""
    password_file: str | None = None

    def __str__(self) -> str:
        parts = [f"hosts={'+'.join(self.hosts)}", f"path={self.path}"]
        return ", ".join([*parts, f"sessionTimeout={self.session_seconds:g}s"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """The elections of a host.

    Args:
        kind: `majority` or `zookeeper`; a host without elections has none of these settings.
        lease_seconds: a leader that was not heard for so long is replaced; one that no majority
            has heard for so long steps down. All members have the same.
        members: ids of the hosts that have a copy of a queue, and elect its leader, by its name;
            of any other, all hosts of the cluster.
        preferred: the member that leads a queue where several could, by its name.
        gives_back: that one gets the queue back when all is quiet.
        zookeeper: where that is asked; with `zookeeper` alone.
        on_role: a command and its arguments, which is run with `QUEUE ROLE EPOCH` behind them
            whenever this host has another role; none.

    Raises:
        ValueError: they do not fit together.
    """

    kind: ElectionKind = ElectionKind.MAJORITY
    lease_seconds: float = LEASE_SECONDS
    members: Mapping[str, frozenset[int]] = field(default_factory=dict)
    preferred: Mapping[str, int] = field(default_factory=dict)
    gives_back: bool = False
    zookeeper: ZooKeeperSettings | None = None
    on_role: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is ElectionKind.BY_HAND:
            raise ValueError("no settings of elections expected where an operator promotes hosts")
        if (self.kind is ElectionKind.ZOOKEEPER) != (self.zookeeper is not None):
            raise ValueError(
                f"expected servers of ZooKeeper with 'zookeeper' alone, got {self.kind}"
            )
        if self.lease_seconds < LEASE_SECONDS_MIN:
            raise ValueError(
                f"expected a lease of at least {LEASE_SECONDS_MIN:g} s, got {self.lease_seconds:g}"
            )
        for name, members in self.members.items():
            if why := wrong_members(len(members), self.kind):
                raise ValueError(f"queue {name!r}: {why}")
        for name, host_id in self.preferred.items():
            known = self.members.get(name)
            if known is not None and host_id not in known:
                ids = ", ".join(map(str, sorted(known)))
                raise ValueError(f"queue {name!r}: expected a member ({ids}), got host {host_id}")


def wrong_members(count: int, kind: ElectionKind) -> str:
    """The reason why so many members elect no leader; empty where they do."""
    if count > MEMBERS_MAX or count < 1:
        return f"expected 1 to {MEMBERS_MAX} members, got {count}"
    if count == 2 and kind is ElectionKind.MAJORITY:
        return (
            "expected one member or 3 to 7 with 'election: majority', got 2: neither of two is a"
            " majority without the other one"
        )
    return ""
