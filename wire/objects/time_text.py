"""Dates and times in the form of Java's `toString`.

They are parsed and printed again, so `12:34:00` becomes `12:34`.

Source: section 9.5 of the format, and the vectors `scalars.jsonl`.
"""

import calendar
import re
from typing import Final

from wire.errors import WireError

_DATE_FORM: Final = r"([+-]?[0-9]{4,10})-([0-9]{2})-([0-9]{2})"
_TIME_FORM: Final = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?"
_ZONE_FORM: Final = r"(?:[Zz]|([+-])([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?)?)"
_REGION_FORM: Final = r"(?:\[([A-Za-z][A-Za-z0-9~/._+:-]*)\])?"
_DATE: Final = re.compile(_DATE_FORM)
_TIME: Final = re.compile(_TIME_FORM)
_DATE_TIME: Final = re.compile(f"{_DATE_FORM}[Tt]{_TIME_FORM}")
_ZONED: Final = re.compile(f"{_DATE_FORM}[Tt]{_TIME_FORM}{_ZONE_FORM}{_REGION_FORM}")
_YEAR_MAX: Final = 999_999_999
_ZONE_SECONDS_MAX: Final = 18 * 3600


def time_text(text: str) -> str:
    """A local time, printed again from its parts."""
    return _time(_parts(_TIME, text))


def date_text(text: str) -> str:
    """A local date, printed again from its parts."""
    return _date(_parts(_DATE, text))


def date_time_text(text: str) -> str:
    """A local date and time, printed again from its parts."""
    parts = _parts(_DATE_TIME, text)
    return f"{_date(parts[:3])}T{_time(parts[3:])}"


def zoned_text(text: str) -> str:
    """A date and time with its offset; quoted where a region follows, whose rules are not known."""
    parts = _parts(_ZONED, text)
    region = f"[{parts[11]}]" if parts[11] else ""
    shown = f"{_date(parts[:3])}T{_time(parts[3:7])}{_zone(parts[7:11])}{region}"
    return f'"{shown}"' if region else shown


def _parts(form: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = form.fullmatch(text)
    if match is None:
        raise WireError(f"a date or time was expected, {text[:40]!r} came")
    return match.groups(default="")


def _date(parts: tuple[str, ...]) -> str:
    year_text, month, day = parts
    year = int(year_text)
    bare = year_text.lstrip("+-")
    # a sign stands where there are more than four digits, or before a year that is really negative
    wrong_sign = (year_text[0] == "+" and len(bare) == 4) or (year_text[0] == "-" and year == 0)
    if wrong_sign or (bare == year_text and len(bare) > 4) or abs(year) > _YEAR_MAX:
        raise WireError(f"a year was expected, {year_text} came")
    same_leap_year = year % 400 + 2000
    if not 1 <= int(month) <= 12:
        raise WireError(f"a month was expected, {month} came")
    if not 1 <= int(day) <= calendar.monthrange(same_leap_year, int(month))[1]:
        raise WireError(f"a day of month {month} was expected, {day} came")
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month}-{day}"


def _time(parts: tuple[str, ...]) -> str:
    hour, minute, second, fraction = parts
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise WireError(f"a time of day was expected, {hour}:{minute}:{second} came")
    nanos = fraction.ljust(9, "0")
    while nanos.endswith("000"):
        nanos = nanos[:-3]
    if nanos:
        return f"{hour}:{minute}:{second}.{nanos}"
    return f"{hour}:{minute}:{second}" if int(second or 0) else f"{hour}:{minute}"


def _zone(parts: tuple[str, ...]) -> str:
    sign, hours, minutes, seconds = parts
    if not int(hours or 0) and not int(minutes or 0) and not int(seconds or 0):
        return "Z"
    total = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    if int(minutes or 0) > 59 or int(seconds or 0) > 59 or total > _ZONE_SECONDS_MAX:
        raise WireError(f"an offset of at most 18 hours was expected, {hours}:{minutes} came")
    end = f":{seconds}" if int(seconds or 0) else ""
    return f"{sign}{hours}:{minutes or '00'}{end}"
