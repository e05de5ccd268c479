"""The kinds of values that services have: boards of tasks, checkpoints, and what is kept."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cqrepl.broker.service import BoardSettings
from cqrepl.cluster.checkpoints import CheckpointSettings
from cqrepl.config.valuekinds import Unfit, ValueKind
from cqrepl.console.units import parse_time_ms
from cqrepl.replicator.queuestate.wirenames import check_name

BOARDS_MAX: Final = 64
_SHOWN: Final = 60
_MINUTE_S: Final = 60.0


def _time(least_ms: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        found = parse_time_ms(text)
        if found < least_ms:
            raise ValueError(f"a time of at least {least_ms}ms expected, {text!r} came")
        return found

    return parse


def _count(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"a number from {least} to {most} expected, {text!r} came")
        return int(text)

    return parse


def _fields(
    text: str, between: str, kinds: Mapping[str, Callable[[str], object]], of: str
) -> dict[str, object]:
    """The values in a text, by their names.

    Raises:
        Unfit: with what was expected of which, and what came.
    """
    found: dict[str, object] = {}
    for each in filter(None, (part.strip() for part in text.split(between))):
        name, _, value = each.partition("=")
        if name not in kinds or name in found:
            wanted = ", ".join(kinds)
            raise Unfit(f"expected {wanted} of {of}, each once, got {name[:_SHOWN]!r}")
        try:
            found[name] = kinds[name](value)
        except ValueError as error:
            raise Unfit(f"{name!r} of {of}: {error}") from None
    return found


_BOARD: Final[Mapping[str, Callable[[str], object]]] = {
    "group": str,
    "workerLease": _time(1000),
    "attempts": _count(1, 1000),
    "backoff": _time(1),
    "keepFinished": _time(0),
    "maxTasks": _count(1, 100_000_000),
}
_CHECKPOINT: Final[Mapping[str, Callable[[str], object]]] = {
    "interval": _time(1000),
    "records": _count(1, 10**12),
    "keep": _count(2, 1000),
    "directory": Path,
}
_RETENTION: Final[Mapping[str, Callable[[str], object]]] = {"minAge": _time(0)}


def _boards(text: str) -> dict[str, BoardSettings]:
    found: dict[str, BoardSettings] = {}
    groups: dict[str, str] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = each.partition("=")
        check_name(name)
        if name in found:
            raise Unfit(f"expected one board of a name, got two of {name!r}")
        said = _fields(rest, " ", _BOARD, f"board {name!r}")
        group = said.get("group")
        if not isinstance(group, str) or not group:
            raise Unfit(f"expected the 'group' of board {name!r}, which is its log, got none")
        if group in groups:
            raise Unfit(f"expected one service of a group, got {groups[group]!r} and {name!r}")
        groups[group] = name
        found[name] = _board(group, said)
    if len(found) > BOARDS_MAX:
        raise Unfit(f"expected at most {BOARDS_MAX} boards, got {len(found)}")
    return found


def _board(group: str, said: Mapping[str, object]) -> BoardSettings:
    usual = BoardSettings(group=group)
    lease = said.get("workerLease")
    return replace(
        usual,
        lease_seconds=lease / 1000 if isinstance(lease, int) else usual.lease_seconds,
        attempts=_number(said, "attempts", usual.attempts),
        backoff_ms=_number(said, "backoff", usual.backoff_ms),
        keep_ms=_number(said, "keepFinished", usual.keep_ms),
        tasks_max=_number(said, "maxTasks", usual.tasks_max),
    )


def _number(said: Mapping[str, object], name: str, otherwise: int) -> int:
    value = said.get(name, otherwise)
    assert isinstance(value, int)
    return value


def _checkpoint(text: str) -> CheckpointSettings:
    said = _fields(text, ",", _CHECKPOINT, "a checkpoint")
    usual, directory = CheckpointSettings(), said.get("directory")
    interval = said.get("interval")
    return replace(
        usual,
        interval_seconds=interval / 1000 if isinstance(interval, int) else usual.interval_seconds,
        records=_number(said, "records", usual.records),
        keep=_number(said, "keep", usual.keep),
        directory=directory if isinstance(directory, Path) else None,
    )


def _retention(text: str) -> int:
    return _number(_fields(text, ",", _RETENTION, "retention"), "minAge", 24 * 3_600_000)


def _object(**properties: str) -> dict[str, object]:
    """In the words of JSON Schema."""
    kinds: dict[str, object] = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": kinds, "additionalProperties": False}


_BOARD_SCHEMA: Final = _object(
    group="string",
    workerLease="string",
    attempts="integer",
    backoff="string",
    keepFinished="string",
    maxTasks="integer",
) | {"required": ["group"]}
TASKS: Final = ValueKind(
    wanted="boards such as {jobs: {group: g0, workerLease: 30s, attempts: 3}}",
    parse=_boards,
    schema={"type": "object", "additionalProperties": _BOARD_SCHEMA},
    takes_mapping=True,
)
CHECKPOINT: Final = ValueKind(
    wanted="a rule such as {interval: 10m, records: 1000000, keep: 2}",
    parse=_checkpoint,
    schema=_object(interval="string", records="integer", keep="integer", directory="string"),
    takes_mapping=True,
    words={"{interval: 10m, records: 1000000, keep: 2}": CheckpointSettings()},
)
RETENTION: Final = ValueKind(
    wanted="a rule such as {minAge: 24h}",
    parse=_retention,
    schema=_object(minAge="string"),
    takes_mapping=True,
    words={"{minAge: 24h}": 24 * 3_600_000},
)
