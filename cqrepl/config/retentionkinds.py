"""The rules by which a host deletes old store files of its queues."""

from typing import Final

from cqrepl.config.valuekinds import Unfit, ValueKind
from cqrepl.console.units import parse_size, parse_time_ms
from cqrepl.service.retentionrules import RetentionRule

_SHOWN: Final = 60
_KEEP_MAX: Final = 1_000_000


def _rules(text: str) -> tuple[RetentionRule, ...]:
    found: dict[str, RetentionRule] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        queues, equals, rest = each.partition("=")
        if not equals or not queues or queues in found:
            raise Unfit(f"expected queues, each once, in 'retention', got {each[:_SHOWN]!r}")
        found[queues] = _rule(queues, rest)
    return tuple(found.values())


def _rule(queues: str, text: str) -> RetentionRule:
    said = {}
    for each in text.split():
        name, _, value = each.partition("=")
        if name not in ("keep", "keepTime", "freeBelow", "interval") or name in said:
            raise Unfit(
                f"queue {queues!r}: expected keep, keepTime, freeBelow and interval of"
                f" 'retention', each once, got {name[:_SHOWN]!r}"
            )
        said[name] = value
    keep = said.get("keep", "1")
    if not keep.isdecimal() or not 1 <= int(keep) <= _KEEP_MAX:
        raise Unfit(f"queue {queues!r}: expected a 'keep' from 1, got {keep[:_SHOWN]!r}")
    try:
        interval_ms = parse_time_ms(said.get("interval", "60s"))
        rule = RetentionRule(
            queues=queues,
            keep=int(keep),
            keep_ms=parse_time_ms(said["keepTime"]) if "keepTime" in said else 0,
            free_below_bytes=parse_size(said["freeBelow"]) if "freeBelow" in said else 0,
            interval_seconds=interval_ms / 1000,
        )
    except ValueError as error:
        raise Unfit(f"queue {queues!r}: {error}") from None
    if interval_ms < 1000:
        raise Unfit(f"queue {queues!r}: expected an 'interval' of at least 1s, got {interval_ms}ms")
    return rule


RETENTIONS: Final = ValueKind(
    wanted="rules such as {orders: {keep: 3, keepTime: 3d, freeBelow: 10GiB, interval: 60s}},",
    parse=_rules,
    schema={
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "keep": {"type": "integer", "minimum": 1},
                "keepTime": {"type": "string"},
                "freeBelow": {"type": ["string", "integer"]},
                "interval": {"type": "string"},
            },
            "additionalProperties": False,
        },
    },
    takes_mapping=True,
)
