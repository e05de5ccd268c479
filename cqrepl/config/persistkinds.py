"""The kind of value that groups of storages have: who writes the log, how long a write waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.config.valuekinds import Unfit, ValueKind
from cqrepl.console.units import parse_time_ms
from cqrepl.replicator.queuestate.wirenames import check_name

PREFIX: Final = "p-"
GROUPS_MAX: Final = 64
LOGS_MAX: Final = 256
_KEYS: Final = ("ownLog", "defaults", "properties")
_DEFAULTS: Final = ("mode", "ackTimeout")
_MODES: Final = ("async", "sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistGroup:
    """One group of storages.

    Args:
        own_logs: names of logs that engines write themselves.
        timeout_ms: of storages that are given none; 0: they are asynchronous; None: it is not said.
        properties: a file of Java properties that says more.
    """

    own_logs: tuple[str, ...] = ()
    timeout_ms: int | None = None
    properties: Path | None = None

    def __str__(self) -> str:
        """The settings in the words of a file, for people."""
        said = [f"ownLog: [{', '.join(self.own_logs)}]"] if self.own_logs else []
        if self.timeout_ms is not None:
            said.append(f"defaults: {{ackTimeout: {self.timeout_ms}ms}}")
        said += [f"properties: {self.properties}"] if self.properties is not None else []
        return f"{{{', '.join(said)}}}"

    def queues(self, name: str) -> dict[str, bool]:
        """The queues of a group of this name: True for one that an engine writes itself."""
        own = {f"{PREFIX}{name}-{each}": True for each in self.own_logs}
        return {f"{PREFIX}{name}": False} | own


def _parse(text: str) -> dict[str, PersistGroup]:
    found: dict[str, PersistGroup] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = each.partition("=")
        check_name(name)
        if name in found:
            raise Unfit(f"expected one group of a name, got two of {name!r}")
        found[name] = _group(name, rest)
    if len(found) > GROUPS_MAX:
        raise Unfit(f"expected at most {GROUPS_MAX} groups of storages, got {len(found)}")
    return found


def _group(name: str, text: str) -> PersistGroup:
    said = _pairs(text.split(), _KEYS, f"group {name!r}")
    logs = tuple(filter(None, said.get("ownLog", "").split("+")))
    for log in logs:
        check_name(log)
    if len(set(logs)) < len(logs) or len(logs) > LOGS_MAX:
        raise Unfit(f"group {name!r}: expected at most {LOGS_MAX} logs, each once, in 'ownLog'")
    properties = said.get("properties")
    return PersistGroup(
        own_logs=logs,
        timeout_ms=_timeout(name, said["defaults"]) if "defaults" in said else None,
        properties=Path(properties) if properties else None,
    )


def _timeout(name: str, text: str) -> int:
    said = _pairs(text.split(";"), _DEFAULTS, f"'defaults' of group {name!r}")
    try:
        timeout = parse_time_ms(said.get("ackTimeout", "0ms"))
    except ValueError as error:
        raise Unfit(f"'ackTimeout' of group {name!r}: {error}") from None
    mode = said.get("mode", "sync" if timeout else "async")
    if mode not in _MODES:
        raise Unfit(f"expected async or sync as 'mode' of group {name!r}, got {mode[:60]!r}")
    if mode == "sync" and not timeout:
        raise Unfit(f"group {name!r}: expected an 'ackTimeout' above 0 with 'mode: sync', got 0")
    return timeout if mode == "sync" else 0


def _pairs(parts: list[str], names: tuple[str, ...], of: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in filter(None, parts):
        key, _, value = each.partition("=")
        if key not in names or key in found:
            raise Unfit(f"expected {', '.join(names)} of {of}, each once, got {key[:60]!r}")
        found[key] = value
    return found


_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "ownLog": {"type": "array", "items": {"type": "string"}, "maxItems": LOGS_MAX},
        "defaults": {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "enum": list(_MODES)},
                "ackTimeout": {"type": "string"},
            },
            "additionalProperties": False,
        },
        "properties": {"type": "string"},
    },
    "additionalProperties": False,
}
PERSIST: Final = ValueKind(
    wanted="groups of storages such as {fix: {defaults: {mode: sync, ackTimeout: 10ms}}}",
    parse=_parse,
    schema={"type": "object", "additionalProperties": dict(_SCHEMA)},
    takes_mapping=True,
    takes_deep=True,
)
