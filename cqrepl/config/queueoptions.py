"""Options of single queues, which the file of a cluster has beside Chronicle's own keys: members,
and who may append (`cqrepl: queues:`).

A name may be a pattern, as `orders-*`. Of several names that fit a queue its own one counts, else
the first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from cqrepl.config.valuekinds import Unfit, ValueKind, hosts_of, yes_or_no

MEMBERS_MAX: Final = 7
_WILD: Final = frozenset("*?[")
_KEYS: Final = ("members", "exclusive", "startLock")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The options of one queue.

    Args:
        members: ids of the hosts that have a copy; empty: all.
        exclusive: while this host leads only its program appends.
        start_lock: no writer gets in before this host leads.
    """

    members: frozenset[int] = frozenset()
    exclusive: bool = False
    start_lock: bool = False

    def __str__(self) -> str:
        words = [f"members={'+'.join(map(str, sorted(self.members)))}"] if self.members else []
        words += [f"exclusive={str(self.exclusive).lower()}"] if self.exclusive else []
        words += [f"startLock={str(self.start_lock).lower()}"] if self.start_lock else []
        return " ".join(words)


def options_of(name: str, options: Mapping[str, QueueOptions]) -> QueueOptions:
    """The options of a queue."""
    if name in options:
        return options[name]
    fitting = (each for pattern, each in options.items() if fnmatchcase(name, pattern))
    return next(fitting, QueueOptions())


def is_pattern(name: str) -> bool:
    """True for what may be the name of several queues."""
    return not _WILD.isdisjoint(name)


def _members(text: str) -> frozenset[int]:
    ids = hosts_of(text)
    if not 1 <= len(ids) <= MEMBERS_MAX:
        raise Unfit(f"1 to {MEMBERS_MAX} members expected, {len(ids)} came")
    return ids


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "members": _members,
    "exclusive": yes_or_no,
    "startLock": yes_or_no,
}


def _parse(text: str) -> dict[str, QueueOptions]:
    found: dict[str, QueueOptions] = {}
    for each in text.split(",") if text else ():
        name, equals, words = each.strip().partition("=")
        if not equals or not name or name in found:
            raise ValueError
        values: dict[str, object] = {}
        for word in words.split():
            key, _, value = word.partition("=")
            if key not in _PARSERS:
                raise Unfit(f"queue {name!r}: one of {', '.join(_KEYS)} expected, {key!r} came")
            if key in values:
                raise ValueError
            values[key] = _PARSERS[key](value)
        members = values.get("members", frozenset())
        assert isinstance(members, frozenset)
        found[name] = QueueOptions(
            members=members,
            exclusive=values.get("exclusive") is True,
            start_lock=values.get("startLock") is True,
        )
    return found


QUEUE_OPTIONS: Final = ValueKind(
    wanted="options such as {members: [1, 2, 3], exclusive: true} for each of some queues",
    parse=_parse,
    schema={
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "members": {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 1, "maximum": 127},
                    "minItems": 1,
                    "maxItems": MEMBERS_MAX,
                },
                "exclusive": {"type": "boolean"},
                "startLock": {"type": "boolean"},
            },
            "additionalProperties": False,
        },
    },
    takes_mapping=True,
)
