"""The map sets of a file: the kind of their values, their groups, and the copies of each."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cqrepl.config.valuekinds import Unfit, ValueKind
from cqrepl.console.units import parse_size, parse_time_ms
from cqrepl.grid.errors import GridRefused
from cqrepl.grid.gridgroup import group_name
from cqrepl.grid.gridsettings import (
    GROUPS_MAX,
    PARTITIONS_MAX,
    GridSettings,
    Locks,
    MapSettings,
    Reads,
    ReplicaSettings,
)
from cqrepl.grid.placement import place
from cqrepl.grid.sqlsettings import SqlLoaderSettings
from cqrepl.replicator.queuestate.wirenames import check_name

SETS_MAX: Final = 16
_SHOWN: Final = 60
Tree = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPlan:
    """One map set of a file.

    Args:
        members: ids of the hosts that may have copies; none: all of the cluster.
        loaders: of SQL, by their names.
    """

    settings: GridSettings
    members: tuple[int, ...]
    loaders: Mapping[str, SqlLoaderSettings]

    def copies(self, hosts: Sequence[int]) -> dict[str, list[int]]:
        """The hosts of each group, in their order; by the group's queue.

        Args:
            hosts: ids of all hosts of the cluster.
        """
        name, replicas = self.settings.name, self.settings.replicas
        number = 1 + replicas.sync + replicas.others
        members = self.members or tuple(hosts)
        return {
            group_name(name, nth): place(name, nth, members, number, self.settings.zones)
            for nth in range(self.settings.group_count)
        }


def _number(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if not isinstance(value, str) or not value.isdecimal() or not least <= int(value) <= most:
            raise Unfit(f"a number from {least} to {most} expected, {_came(value)} came")
        return int(value)

    return parse


def _choice(kind: type[Locks] | type[Reads]) -> Callable[[object], Locks | Reads]:
    def parse(value: object) -> Locks | Reads:
        if value not in list(kind):
            raise Unfit(f"one of {', '.join(kind)} expected, {_came(value)} came")
        return kind(str(value))

    return parse


def _seconds(value: object) -> float:
    try:
        return parse_time_ms(str(value)) / 1000
    except ValueError as error:
        raise Unfit(str(error)) from None


def _bytes(value: object) -> int:
    try:
        return parse_size(str(value))
    except ValueError as error:
        raise Unfit(str(error)) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit(f"a text expected, {_came(value)} came")
    return value


def _boolean(value: object) -> bool:
    if value not in ("true", "false"):
        raise Unfit(f"true or false expected, {_came(value)} came")
    return value == "true"


def _came(value: object) -> str:
    return repr(value)[:_SHOWN] if isinstance(value, str) else "a mapping or list"


def _tree(value: object, title: str) -> Tree:
    if not isinstance(value, dict):
        raise Unfit(f"a mapping expected for {title}, {_came(value)} came")
    return value


def _fields(
    value: object, title: str, kinds: Mapping[str, Callable[[object], object]]
) -> dict[str, Any]:
    """The values of a mapping.

    Raises:
        Unfit: with the key, and with what was expected of it.
    """
    found: dict[str, Any] = {}
    for name, each in _tree(value, title).items():
        if name not in kinds:
            raise Unfit(f"one of {', '.join(kinds)} expected in {title}, {name[:_SHOWN]!r} came")
        try:
            found[name] = kinds[name](each)
        except Unfit as error:
            raise Unfit(f"{name!r} of {title}: {error}") from None
    return found


def _hosts(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise Unfit(f"a list of host ids expected, {_came(value)} came")
    found = tuple(_number(1, 127)(each) for each in value)
    if len(set(found)) < len(found):
        raise Unfit(f"each host id once expected, {list(found)} came")
    return found


def _zones(value: object) -> dict[int, str]:
    return {_number(1, 127)(host): _text(zone) for host, zone in _tree(value, "zones").items()}


_MAP: Final[Mapping[str, Callable[[object], object]]] = {
    "routing": _text,
    "locks": _choice(Locks),
    "loader": _text,
    "preload": _boolean,
}
_REPLICAS: Final[Mapping[str, Callable[[object], object]]] = {
    "sync": _number(0, 6),
    "async": _number(0, 6),
    "syncMin": _number(1, 6),
}
_LOADER: Final[Mapping[str, Callable[[object], object]]] = {
    "url": _text,
    "table": _text,
    "key": _text,
    "partitionColumn": _text,
    "block": _number(1, 100_000),
}
_LOADER_FIELDS: Final = {"partitionColumn": "partition_column"}


def _maps(value: object) -> dict[str, MapSettings]:
    found: dict[str, MapSettings] = {}
    for name, each in _tree(value, "maps").items():
        if not name or " " in name:
            raise Unfit(f"a name of a map without blanks expected, {name[:_SHOWN]!r} came")
        said = {} if each in ("", None) else _fields(each, f"map {name!r}", _MAP)
        found[name] = MapSettings(**said)
    return found


def _replicas(value: object) -> ReplicaSettings:
    said = _fields(value, "replicas", _REPLICAS)
    names = {"sync": "sync", "async": "others", "syncMin": "sync_min"}
    try:
        return ReplicaSettings(**{names[name]: each for name, each in said.items()})
    except GridRefused as error:
        raise Unfit(str(error)) from None


def _loaders(value: object) -> dict[str, SqlLoaderSettings]:
    found: dict[str, SqlLoaderSettings] = {}
    for name, each in _tree(value, "loaders").items():
        said = _fields(each, f"loader {name!r}", _LOADER)
        for wanted in ("url", "table", "key"):
            if wanted not in said:
                raise Unfit(f"the {wanted!r} of loader {name!r} expected, none came")
        fields = {_LOADER_FIELDS.get(key, key): worth for key, worth in said.items()}
        found[name] = SqlLoaderSettings(**fields)
    return found


_SET: Final[Mapping[str, Callable[[object], object]]] = {
    "partitions": _number(1, PARTITIONS_MAX),
    "groups": _number(1, GROUPS_MAX),
    "maps": _maps,
    "replicas": _replicas,
    "replicaReads": _choice(Reads),
    "outcomeInterval": _seconds,
    "lockTimeout": _seconds,
    "maxBytes": _bytes,
    "initialMembers": _number(1, 127),
    "zones": _zones,
    "members": _hosts,
    "loaders": _loaders,
}
_SET_FIELDS: Final = {
    "replicaReads": "reads",
    "outcomeInterval": "outcome_seconds",
    "lockTimeout": "lock_seconds",
    "maxBytes": "bytes_max",
    "initialMembers": "initial_members",
}


def _sets(text: str) -> dict[str, GridPlan]:
    try:
        tree = json.loads(text)
    except ValueError:
        raise Unfit("map sets as a mapping, or as JSON, expected") from None
    found: dict[str, GridPlan] = {}
    for name, each in _tree(tree, "'grid'").items():
        check_name(name)
        said = _fields(each, f"map set {name!r}", _SET)
        members, loaders = said.pop("members", ()), said.pop("loaders", {})
        fields = {_SET_FIELDS.get(key, key): worth for key, worth in said.items()}
        try:
            settings = GridSettings(name=name, **fields)
        except GridRefused as error:
            raise Unfit(str(error)) from None
        _check_loaders(settings, loaders)
        found[name] = GridPlan(settings=settings, members=members, loaders=loaders)
    if len(found) > SETS_MAX:
        raise Unfit(f"at most {SETS_MAX} map sets expected, {len(found)} came")
    return found


def _check_loaders(settings: GridSettings, loaders: Mapping[str, object]) -> None:
    for name, each in settings.maps.items():
        if each.loader and each.loader not in loaders:
            known = ", ".join(sorted(loaders)) or "none"
            wanted = f"one of the loaders ({known}) of map set {settings.name!r} expected"
            raise Unfit(f"{wanted} for map {name!r}, {each.loader!r} came")


GRID: Final = ValueKind(
    wanted="map sets such as {orders: {partitions: 16, maps: {order: {}}, replicas: {sync: 1}}}",
    parse=_sets,
    schema={"type": "object", "additionalProperties": {"type": "object"}},
    takes_tree=True,
)
