"""Dates and times: Java's text form on the wire, Python's types beside it.

On the wire they are text in the form of Java's `toString`: seconds are left out when they and the
fraction are 0, a fraction has 3, 6 or 9 digits, offset 0 is `Z`, a region stands in brackets.
Python's types have neither nanoseconds nor years outside 1 to 9999, so that such values stay text
(`LocalTime("12:00:00.000000001")`). A region is kept as text too: its rules are not looked up.
"""

import datetime
import re
from collections.abc import Callable
from typing import Final

from wire.codes import Code
from wire.errors import WireError
from wire.objects.time_text import date_text, date_time_text, time_text, zoned_text
from wire.objects.values import (
    TIME_OF_CODE,
    LocalDate,
    LocalDateTime,
    LocalTime,
    TimeText,
    ZonedDateTime,
)

PythonTime = datetime.date | datetime.time | datetime.datetime

_FINER: Final = re.compile(r"\.[0-9]{7}")
_CANONICAL: Final[dict[int, Callable[[str], str]]] = {
    Code.TIME: time_text,
    Code.DATE: date_text,
    Code.DATE_TIME: date_time_text,
    Code.ZONED_DATE_TIME: lambda text: zoned_text(text).strip('"'),
}
_PARSERS: Final[dict[int, Callable[[str], PythonTime]]] = {
    Code.TIME: datetime.time.fromisoformat,
    Code.DATE: datetime.date.fromisoformat,
    Code.DATE_TIME: datetime.datetime.fromisoformat,
    Code.ZONED_DATE_TIME: datetime.datetime.fromisoformat,
}


def canonical(code: Code, text: str) -> str:
    """The same date or time as Java prints it.

    Raises:
        WireError: the text is no date or time of this kind.
    """
    return _CANONICAL[code](text)


def wire_time(value: PythonTime) -> TimeText:
    """The text form of a Python date or time; one with an offset is a ZonedDateTime.

    >>> wire_time(datetime.time(12, 34))
    LocalTime('12:34')
    >>> wire_time(datetime.datetime(2020, 2, 29, 12, 34, 56, 500000, datetime.timezone.utc))
    ZonedDateTime('2020-02-29T12:34:56.500Z')
    """
    text = value.isoformat()
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return LocalDateTime(canonical(Code.DATE_TIME, text))
        region = getattr(value.tzinfo, "key", None)  # zoneinfo's name of the region
        name = f"[{region}]" if region else ""
        return ZonedDateTime(canonical(Code.ZONED_DATE_TIME, text + name))
    if isinstance(value, datetime.time):
        return LocalTime(canonical(Code.TIME, text))
    return LocalDate(canonical(Code.DATE, text))


def python_time(code: int, text: str) -> PythonTime | TimeText:
    """The date or time that a text says: a Python type where it fits, else checked text.

    Raises:
        WireError: the text is no date or time of this kind.
    """
    shown = _CANONICAL[code](text)
    if "[" in shown or _FINER.search(shown):
        return TIME_OF_CODE[code](shown)
    try:
        return _PARSERS[code](shown)
    except ValueError:  # a year that Python does not have
        return TIME_OF_CODE[code](shown)


def nanos_of_day(text: str) -> int:
    """A time of day in nanoseconds."""
    hour, minute, *rest = time_text(text).split(":")
    second, _, fraction = (rest or ["0"])[0].partition(".")
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)


def epoch_day(text: str) -> int:
    """A date as a number of days since 1970-01-01; any year of the proleptic calendar."""
    match = re.fullmatch(r"([+-]?\d+)-(\d\d)-(\d\d)", date_text(text))
    assert match is not None
    year, month, day = (int(part) for part in match.groups())
    cycles, year = divmod(year - 1, 400)  # the calendar repeats every 400 years
    ordinal = datetime.date(year + 1, month, day).toordinal() + cycles * 146_097
    return ordinal - datetime.date(1970, 1, 1).toordinal()


def wire_date(day: int) -> str:
    """The text form of the date so many days after 1970-01-01.

    Raises:
        WireError: Java has no such date.
    """
    cycles, rest = divmod(day + datetime.date(1970, 1, 1).toordinal() - 1, 146_097)
    date = datetime.date.fromordinal(rest + 1)
    year = date.year + 400 * cycles
    if abs(year) > 999_999_999:
        raise WireError(f"a date was expected, day {day} came")
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{date.month:02d}-{date.day:02d}"
