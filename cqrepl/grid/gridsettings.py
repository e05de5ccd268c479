"""The settings of a map set: its maps, partitions, copies and limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Final

from cqrepl.grid.errors import GridRefused
from cqrepl.routing import partition_of

PARTITIONS_MAX: Final = 4096
GROUPS_MAX: Final = 64
GROUPS: Final = 8
RECOVERY_MAP: Final = "RecoveryMap"  # each map set has it


class Locks(StrEnum):
    """The ways in which transactions keep out of each other's way."""

    OPTIMISTIC = "optimistic"  # versions are compared when one commits
    PESSIMISTIC = "pessimistic"  # what it reads is locked until its end


class Reads(StrEnum):
    """The copies that may answer a read."""

    OFF = "off"  # the host that leads alone
    ANY = "any"  # each copy; where one has no entry, the host that leads is asked
    TOKEN = auto()  # each copy that is as far as a token says


class PreloadStatus(StrEnum):
    """The answers of a loader to how far its preload has come."""

    PRELOADED_ALREADY = "preloaded already"
    FULL_PRELOAD_NEEDED = "full preload needed"
    PARTIAL_PRELOAD_NEEDED = "partial preload needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """One map.

    Args:
        routing: the part of a key that decides its partition: the number of an item of a tuple, or
            the name of an attribute; empty for all of it.
        loader: name of its loader; empty for none.
        preload: it is filled by its loader before it serves.
    """

    routing: str = ""
    locks: Locks = Locks.OPTIMISTIC
    loader: str = ""
    preload: bool = True

    def routed(self, key: object) -> object:
        """The part of a key that decides its partition.

        Raises:
            GridRefused: it has no such part.
        """
        if not self.routing:
            return key
        if self.routing.isdecimal() and isinstance(key, tuple):
            if int(self.routing) < len(key):
                return key[int(self.routing)]
        elif hasattr(key, self.routing):
            return getattr(key, self.routing)
        raise GridRefused(f"expected a key with a part {self.routing!r}, got {key!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The copies of each partition beside the one that leads.

    Args:
        sync: so many are waited for, while they are there and have all.
        others: so many more, which are not.
        sync_min: fewer than so many are never waited for.

    Raises:
        GridRefused: numbers that do not fit together.
    """

    sync: int = 0
    others: int = 0
    sync_min: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.sync <= 6 or not 0 <= self.others <= 6:
            raise GridRefused(f"expected 0 to 6 copies, got sync {self.sync}, async {self.others}")
        if self.sync_min is not None and not 1 <= self.sync_min <= self.sync:
            wanted = f"expected syncMin from 1 to sync ({self.sync})"
            wanted = "expected no syncMin with sync 0" if not self.sync else wanted
            raise GridRefused(f"{wanted}, got {self.sync_min}")

    @property
    def least(self) -> int:
        """The number of copies without which nothing is committed."""
        return min(1, self.sync) if self.sync_min is None else self.sync_min


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSettings:
    """One map set.

    Args:
        partitions, groups: both stand for ever in its logs.
        outcome_seconds: outcomes that no transaction has carried are told after so long.
        lock_seconds: for so long does a transaction wait for a lock.
        bytes_max: of all entries of a group; None: without limit.
        initial_members: so many hosts of a group have to be there before it starts for the first
            time, the one that leads among them; all, where it has fewer.

    Raises:
        GridRefused: a number beyond its limits.
    """

    name: str
    partitions: int = 1
    groups: int = 0
    maps: Mapping[str, MapSettings] = field(default_factory=dict)
    replicas: ReplicaSettings = field(default_factory=ReplicaSettings)
    reads: Reads = Reads.OFF
    outcome_seconds: float = 2.0
    lock_seconds: float = 5.0
    bytes_max: int | None = None
    initial_members: int = 1
    zones: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            wanted = f"expected 1 to {PARTITIONS_MAX} partitions"
            raise GridRefused(f"{wanted} of map set {self.name!r}, got {self.partitions}")
        most = min(self.partitions, GROUPS_MAX)
        if not 0 <= self.groups <= most:
            raise GridRefused(f"expected 1 to {most} groups of {self.name!r}, got {self.groups}")

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return self.groups or min(self.partitions, GROUPS)

    def map(self, name: str) -> MapSettings:
        """A map by its name.

        Raises:
            GridRefused: the map set has none of this name.
        """
        if name == RECOVERY_MAP and name not in self.maps:
            return MapSettings()
        if name not in self.maps:
            known = ", ".join(sorted(self.maps)) or "none"
            raise GridRefused(f"expected a map of map set {self.name!r} ({known}), got {name!r}")
        return self.maps[name]

    def partition(self, name: str, key: object) -> int:
        """The partition of a key of a map.

        Raises:
            GridRefused: there is no such map, or the key has no such part.
            BadArguments: the part is nothing that binary wire can hold.
        """
        return partition_of(self.map(name).routed(key), self.partitions)
