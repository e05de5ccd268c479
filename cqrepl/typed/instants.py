"""Moments in time: of values that say them in a date, a text or a number, and as text in a zone."""

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, tzinfo
from functools import partial
from typing import Final

from cqrepl.console import payload
from cqrepl.console.units import since_1970_ns
from wire.objects.values import LocalDateTime, ZonedDateTime

# the least number that is taken for nano-, micro- and milliseconds since 1970; each is in the far
# future in the unit below it
_UNITS: Final = ((10**17, 1), (10**14, 1000), (10**11, 1_000_000), (0, 1_000_000_000))
_SECOND_NS: Final = 1_000_000_000
_FINEST_LENGTH: Final = 9


def instant_ns(value: object) -> int | None:
    """Nanoseconds since 1970 of a date, a date and time, or a number; None for anything else. A
    value without an offset is taken as UTC.

    >>> instant_ns(date(1970, 1, 2)), instant_ns(1_700_000_000), instant_ns("x")
    (86400000000000, 1700000000000000000, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        if isinstance(value, float) and not math.isfinite(value):
            return None
        scale = next(scale for least, scale in _UNITS if abs(value) >= least)
        return int(value * scale)
    if isinstance(value, LocalDateTime | ZonedDateTime):
        return _of_fine_text(str(value))
    if isinstance(value, datetime):
        return since_1970_ns(value)
    if isinstance(value, date):
        return since_1970_ns(datetime.combine(value, time(), UTC))
    return None


def _of_fine_text(text: str) -> int | None:
    """Of a text as Java prints it, to the nanosecond; its region is left out, its offset counts."""
    text = text.partition("[")[0]
    head, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if dot else ""
    try:
        moment = datetime.fromisoformat(head + rest[len(digits) :])
    except ValueError:  # a year that Python does not have
        return None
    return since_1970_ns(moment) + int(digits.ljust(_FINEST_LENGTH, "0") or 0)


def instant_text(time_ns: int, zone: tzinfo = UTC) -> str:
    """A moment as people read it, to the millisecond or as fine as it is; `Z`, or the offset of the
    zone.

    >>> instant_text(1_700_000_000_000_000_000)
    '2023-11-14T22:13:20.000Z'
    """
    seconds, fraction = divmod(time_ns, _SECOND_NS)
    try:
        moment = datetime.fromtimestamp(seconds, zone)
    except (ValueError, OverflowError, OSError):
        return str(time_ns)
    digits = f"{fraction:09}"
    while len(digits) > 3 and digits.endswith("000"):
        digits = digits[:-3]
    offset = _offset(moment)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{digits}{offset}"


def _offset(moment: datetime) -> str:
    offset = moment.isoformat()[19:]
    return "Z" if offset == "+00:00" else offset


def time_of(data: memoryview, field: str) -> int | None:
    """Nanoseconds since 1970 in a field of a payload of binary wire or JSON; None if it has none.

    Args:
        field: its name; with dots between them, the names of the fields that lead to it.
    """
    kind, value = payload.content_of(data)
    if kind == "text":
        try:
            value = json.loads(str(value))
        except (ValueError, RecursionError):
            return None
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return instant_ns(value)


def time_reader(field: str) -> Callable[[memoryview], int | None]:
    """`time_of` for this field."""
    return partial(time_of, field=field)
