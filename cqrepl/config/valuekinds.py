"""The kinds of values that keys have: what is expected, and how a text becomes one."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cqrepl.console.units import format_size, parse_hosts, parse_size
from cqrepl.kernel.board import AckLevel
from cqrepl.net.address import Address
from cqrepl.protocol.ackpolicy import PRESETS, AckPolicy, From, OnTimeout, parse_policy
from cqrepl.protocol.settings import HOST_IDS
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.electionsettings import ZooKeeperSettings

HOST_ID_SIGN: Final = "$hostId"  # in a base path
OTHERS: Final = "others"  # the hosts that a mapping does not name
_SHOWN: Final = 128  # characters of a name
_SAID: Final = 250
_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|min|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
GROUPS_MAX: Final = 64
SESSION_SECONDS_MIN: Final = 1.0
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")


class Unfit(ValueError):
    """A text that has no value of a kind, in words that say more than what is wanted."""


def _written(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items())
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueKind:
    """One kind.

    Args:
        wanted: how errors and tables call it.
        parse: the value of a text; raises ValueError for one that has none, `Unfit` where that
            says why.
        schema: the same for a program, in the words of JSON Schema.
        takes_list: the value may stand as a list, whose items are joined with commas.
        words: what stands for some values.
        takes_mapping: it may stand as a mapping, whose entries become `KEY=VALUE` with commas; a
            mapping in one has spaces for them, and a list in that has `+`.
        takes_deep: a mapping may stand in that one, too, and has semicolons.
        takes_tree: it may stand as a mapping of any depth, which becomes JSON with texts in it.
    """

    wanted: str
    parse: Callable[[str], object]
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})
    takes_list: bool = False
    takes_mapping: bool = False
    takes_deep: bool = False
    takes_tree: bool = False
    words: Mapping[str, object] = field(default_factory=dict)

    def written(self, value: object) -> str:
        """A value as people would write it; nothing where there is none."""
        for word, each in self.words.items():
            if each == value:
                return word
        match value:
            case bool():
                return str(value).lower()
            case frozenset():
                return f"[{', '.join(str(each) for each in sorted(value))}]"
            case tuple():
                return ", ".join(map(str, value))
            case float():
                return f"{value:g}s"
            case dict():
                return ", ".join(f"{name}={_written(each)}" for name, each in value.items())
        return "" if value is None else str(value)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def integer(least: int, most: int) -> ValueKind:
    """An integer within limits, which are values too."""

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    return ValueKind(
        wanted=f"an integer from {least} to {most}",
        parse=parse,
        schema={"type": "integer", "minimum": least, "maximum": most},
    )


def choice(*words: str) -> ValueKind:
    """One of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return ValueKind(wanted=f"one of {', '.join(words)}", parse=parse, schema={"enum": list(words)})


def size(least: int, most: int) -> ValueKind:
    """A number of bytes within limits, which are values too."""

    def parse(text: str) -> int:
        count = parse_size(text)
        if not least <= count <= most:
            raise ValueError
        return count

    return ValueKind(
        wanted=f"a size such as 16MiB, from {least} to {format_size(most)},",
        parse=parse,
        schema={"type": ["string", "integer"]},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of the same members.

    Args:
        count: so many.
        members: ids of their hosts, in the order in which these lead first; none: all of the
            cluster.
        roll_cycle: of their queues; None: that of `cqrepl: sink:`.
        preferred: the member that leads a group first gets it back when all is quiet.
    """

    count: int
    members: tuple[int, ...] = ()
    roll_cycle: str | None = None
    preferred: bool = True

    def __str__(self) -> str:
        parts = [f"count={self.count}"]
        if self.members:
            parts.append(f"members={'+'.join(map(str, self.members))}")
        if self.roll_cycle is not None:
            parts.append(f"rollCycle={self.roll_cycle}")
        return ", ".join([*parts, f"preferred={str(self.preferred).lower()}"])


def _groups(text: str) -> Groups:
    said: dict[str, str] = {}
    for each in text.split(","):
        name, equals, value = each.strip().partition("=")
        if not equals or name in said:
            raise ValueError
        said[name] = value
    if unknown := said.keys() - {"count", "members", "rollCycle", "preferred"}:
        wanted = "expected count, members, rollCycle and preferred of groups"
        raise Unfit(f"{wanted}, got {min(unknown)[:_SHOWN]!r}")
    if "count" not in said:
        raise Unfit("expected a 'count' of groups, got none")
    count = int(said["count"]) if _INTEGER.fullmatch(said["count"]) else 0
    if not 1 <= count <= GROUPS_MAX:
        raise Unfit(f"expected a count of groups from 1 to {GROUPS_MAX}, got {said['count']!r}")
    members = tuple(int(each) for each in said["members"].split("+")) if "members" in said else ()
    if not set(members) <= set(HOST_IDS) or len(set(members)) < len(members):
        raise Unfit(f"expected host ids as members of groups, each once, got {said['members']!r}")
    try:
        roll_cycle = _roll_cycle(said["rollCycle"]) if "rollCycle" in said else None
    except ValueError as error:
        raise Unfit(f"rollCycle of groups: {error}") from None
    return Groups(
        count=count,
        members=members,
        roll_cycle=roll_cycle,
        preferred=_boolean(said.get("preferred", "true")),
    )


def _zookeeper(text: str) -> ZooKeeperSettings:
    said: dict[str, str] = {}
    for each in text.split(","):
        name, equals, value = each.strip().partition("=")
        if not equals or not value or name in said:
            raise ValueError
        said[name] = value
    known = {"hosts", "path", "sessionTimeout", "user", "passwordFile"}
    if unknown := said.keys() - known:
        wanted = "expected hosts, path, sessionTimeout, user and passwordFile of 'zookeeper'"
        raise Unfit(f"{wanted}, got {min(unknown)[:_SHOWN]!r}")
    if "hosts" not in said:
        raise Unfit("expected 'hosts' of 'zookeeper', got none")
    if ("user" in said) != ("passwordFile" in said):
        raise Unfit("expected 'user' and 'passwordFile' of 'zookeeper', got one of them")
    path = said.get("path", "/cqrepl").rstrip("/")
    if not path.startswith("/"):
        raise Unfit(f"expected a 'path' of 'zookeeper' such as /cqrepl, got {path[:_SHOWN]!r}")
    session = time(SESSION_SECONDS_MIN, 3600).parse(said.get("sessionTimeout", "40s"))
    assert isinstance(session, float)
    return ZooKeeperSettings(
        hosts=tuple(str(Address.parse(each)) for each in said["hosts"].split("+")),
        path=path,
        session_seconds=session,
        user=said.get("user", ""),
        password_file=said.get("passwordFile"),
    )


def time(least: float, most: float) -> ValueKind:
    """A time within limits, in seconds; these are values too."""

    def parse(text: str) -> float:
        match = _TIME.fullmatch(text)
        seconds = float(match[1]) * _SECONDS[match[2]] if match is not None else -1.0
        if not least <= seconds <= most:
            raise ValueError
        return seconds

    return ValueKind(
        wanted=f"a time such as 2s or 500ms, from {least:g}s to {most:g}s,",
        parse=parse,
        schema={"type": "string"},
    )


def _arguments(text: str) -> tuple[str, ...]:
    found = tuple(text.split(",")) if text else ()
    if found and not found[0]:
        raise ValueError
    return found


def hosts_or(everything: str, value: frozenset[int] | None) -> ValueKind:
    """Host ids, or one of two words; see `parse_hosts`."""
    words: dict[str, frozenset[int] | None] = {
        everything: value,
        "none": frozenset() if value is None else None,
    }

    def parse(text: str) -> frozenset[int] | None:
        found = parse_hosts(text, words)
        if not all(each in HOST_IDS for each in found or ()):
            raise ValueError
        return found

    ids = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 127}}
    return ValueKind(
        wanted=f"{everything}, none or host ids such as [2, 3]",
        parse=parse,
        schema={"anyOf": [{"enum": list(words)}, ids, {"type": "integer"}]},
        takes_list=True,
        words=words,
    )


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError
    return Path(text)


def _schemas(text: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        queues, equals, file = each.partition("=")
        if not equals or not queues or not file or queues in found:
            raise Unfit(f"expected QUEUE: FILE in 'schemas', each queue once, got {each[:60]!r}")
        found[queues] = _path(file.strip())
    return found


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _roll_cycle(text: str) -> str:
    return by_name(text).name


def yes_or_no(text: str) -> bool:
    """The boolean of a text, within another value.

    Raises:
        KeyError: it is none.
    """
    return _boolean(text)


def hosts_of(text: str) -> frozenset[int]:
    """The host ids of a text such as `1+2+3`, within another value.

    Raises:
        ValueError: they are none, or one stands there twice.
    """
    ids = [int(each) for each in text.split("+")]
    if len(set(ids)) != len(ids) or not set(ids) <= set(HOST_IDS):
        raise ValueError
    return frozenset(ids)


def _addresses(text: str) -> dict[str, Address]:
    found: dict[str, Address] = {}
    if not text:
        return found
    for each in text.split(","):
        name, equals, address = each.strip().partition("=")
        if not equals or not name or name in found:
            raise ValueError
        found[name] = Address.parse(address)
        if not found[name].port:  # no host can be dialled there
            raise ValueError
    return found


def _policies(text: str) -> dict[str, AckPolicy]:
    found: dict[str, AckPolicy] = {}
    for each in text.split(",") if text else ():
        name, equals, policy = each.strip().partition("=")
        if not equals or not name or name in found:
            raise ValueError
        try:
            found[name] = parse_policy(policy)
        except ValueError as error:
            raise Unfit(f"queue {name[:_SHOWN]!r}: {str(error)[:_SAID]}") from None
    return found


def _percent(text: str) -> float:
    number = text.removesuffix("%")
    if number == text or not number.isdecimal() or int(number) > 100:
        raise ValueError
    return int(number) / 100


def _days(text: str) -> int:
    number = text.removesuffix("d")
    if number == text or not number.isdecimal() or len(number) > 4:
        raise ValueError
    return int(number)


def _routes(text: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for each in text.split(",") if text else ():
        name, equals, pairs = each.strip().partition("=")
        if not equals or not name or name in found:
            raise ValueError
        found[name] = {}
        for pair in pairs.split():
            taker, _, giver = pair.partition("=")
            ids = int(taker), int(giver)
            if not set(ids) <= set(HOST_IDS) or ids[0] in found[name]:
                raise ValueError
            found[name][ids[0]] = ids[1]
    return found


def _rates(text: str, most: int) -> dict[str, int]:
    found: dict[str, int] = {}
    if "=" not in text:
        text = f"{OTHERS}={text}"
    for each in text.split(","):
        name, equals, rate = each.strip().partition("=")
        is_known = name == OTHERS or (name.isdecimal() and int(name) in HOST_IDS)
        if not equals or not is_known or name in found:
            raise ValueError
        found[name] = parse_size(rate)
        if not 0 <= found[name] <= most:
            raise ValueError
    return found


def rates(most: int) -> ValueKind:
    """Bytes a second, for all hosts or for each of some: by their ids, and by `others`."""
    return ValueKind(
        wanted="a size a second such as 10MiB, for all hosts or as {2: 10MiB, others: 0},",
        parse=lambda text: _rates(text, most),
        schema={
            "anyOf": [
                {"type": ["string", "integer"]},
                {"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
            ]
        },
        takes_mapping=True,
    )


_TIMED_PRESETS: Final = [name for name, each in PRESETS.items() if each.timeout_seconds is not None]
POLICY_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "preset": {"enum": list(PRESETS)},
        "level": {"enum": [level.name.lower() for level in AckLevel]},
        "from": {"anyOf": [{"enum": list(From)}, {"type": "integer", "minimum": 1}]},
        "hosts": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 127}},
        "timeout": {"type": "string"},
        "on_timeout": {"enum": list(OnTimeout)},
        "window": {"type": "integer", "minimum": 1},
    },
    "additionalProperties": False,
    "if": {
        "properties": {"on_timeout": {"not": {"const": OnTimeout.BLOCK}}},
        "required": ["on_timeout"],
    },
    "then": {
        "anyOf": [
            {"required": ["timeout"], "properties": {"timeout": {"not": {"const": "none"}}}},
            {
                "required": ["preset"],
                "properties": {"preset": {"enum": _TIMED_PRESETS}, "timeout": False},
            },
        ]
    },
}
BOOLEAN: Final = ValueKind(wanted="true or false", parse=_boolean, schema={"type": "boolean"})
TEXT: Final = ValueKind(wanted="a text", parse=_text)
PATH: Final = ValueKind(wanted="the path of a directory", parse=_path)
FILE: Final = ValueKind(wanted="the path of a file", parse=_path)
ROLL_CYCLE: Final = ValueKind(wanted="a roll cycle such as FAST_DAILY", parse=_roll_cycle)
PERCENT: Final = ValueKind(wanted="a part such as 10%", parse=_percent)
DAYS: Final = ValueKind(wanted="a number of days such as 30d", parse=_days)
LISTENING: Final = ValueKind(wanted="HOST:PORT or :PORT", parse=Address.listening)
ADDRESSES: Final = ValueKind(
    wanted="HOST:PORT for each of some names",
    parse=_addresses,
    schema={"type": "object", "additionalProperties": {"type": "string"}},
    takes_mapping=True,
)
SCHEMAS: Final = ValueKind(
    wanted="the file of a JSON Schema for each of some queues",
    parse=_schemas,
    schema={"type": "object", "additionalProperties": {"type": "string"}},
    takes_mapping=True,
)
POLICIES: Final = ValueKind(
    wanted="a policy such as {level: synced, from: 2} for each of some queues",
    parse=_policies,
    schema={
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "string"}, POLICY_SCHEMA]},
    },
    takes_mapping=True,
)
ROUTES: Final = ValueKind(
    wanted="whom each of some hosts takes it from, such as {3: 2}, for each of some queues",
    parse=_routes,
    schema={
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "propertyNames": {"pattern": "^[1-9][0-9]{0,2}$"},
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 127},
        },
    },
    takes_mapping=True,
)
GROUPS: Final = ValueKind(
    wanted="groups such as {count: 8, members: [1, 2, 3]}",
    parse=_groups,
    schema={
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": GROUPS_MAX},
            "members": {
                "type": "array",
                "items": {"type": "integer", "minimum": 1, "maximum": 127},
            },
            "rollCycle": {"type": "string"},
            "preferred": {"type": "boolean"},
        },
        "required": ["count"],
        "additionalProperties": False,
    },
    takes_list=True,
    takes_mapping=True,
)
ZOOKEEPER: Final = ValueKind(
    wanted="servers such as {hosts: [zk1:2181, zk2:2181], sessionTimeout: 40s}",
    parse=_zookeeper,
    schema={
        "type": "object",
        "properties": {
            "hosts": {"type": ["string", "array"], "items": {"type": "string"}},
            "path": {"type": "string"},
            "sessionTimeout": {"type": "string"},
            "user": {"type": "string"},
            "passwordFile": {"type": "string"},
        },
        "required": ["hosts"],
        "additionalProperties": False,
    },
    takes_list=True,
    takes_mapping=True,
)
ARGUMENTS: Final = ValueKind(
    wanted="a command and its arguments, such as [/opt/engine, --start], none with a comma,",
    parse=_arguments,
    schema={"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    takes_list=True,
)
ANYTHING: Final = ValueKind(wanted="anything", parse=_text, schema={})
