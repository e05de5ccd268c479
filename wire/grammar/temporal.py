"""The grammar of dates and times: text in the form of Java's `toString`.

    date             2020-02-29     more than four digits of a year have a sign: +12020-02-29
    time             12:34          12:34:56     12:34:56.789     .789012     .789012345
    date and time    2020-02-29T12:34
    with a zone      2020-02-29T12:34Z     2020-02-29T12:34+01:00[Europe/Berlin]

Building takes only what Java prints: no seconds where they and the fraction are 0, a fraction of 3,
6 or 9 digits that does not end in 000, offset 0 as `Z`. Parsing takes a few forms more, as Java
does. `wire.grammar` is the entry and lists all parts.
"""

import calendar
import re
from typing import Final

from construct import Construct, ExprAdapter

from wire.codes import Code
from wire.grammar.parts import LongText, require, tagged

_MONTH_DAY: Final = r"-(?P<month>0[1-9]|1[0-2])-(?P<day>[0-3][0-9])"
_HOUR: Final = r"(?:[01][0-9]|2[0-3])"
_SIXTY: Final = r"[0-5][0-9]"
_OFFSET_HOUR: Final = r"(?:0[0-9]|1[0-7]|18(?!:00:(?!00)|:(?!00)))"  # 18:00:00 is the greatest
_REGION: Final = r"(?:\[[A-Za-z][A-Za-z0-9~/._+:-]*\])?"

# what is read
_DATE: Final = r"(?P<year>[0-9]{4}|-(?!0+-)[0-9]{4,10}|\+[0-9]{5,10})" + _MONTH_DAY
_TIME: Final = rf"{_HOUR}:{_SIXTY}(?::{_SIXTY}(?:\.[0-9]{{0,9}})?)?"
_OFFSET: Final = rf"(?:[Zz]|[+-]{_OFFSET_HOUR}(?::{_SIXTY}){{0,2}})"

# what is printed
_DATE_PRINTED: Final = r"(?P<year>[0-9]{4}|-(?!0000)[0-9]{4}|[+-][1-9][0-9]{4,8})" + _MONTH_DAY
_FRACTION: Final = r"\.(?:[0-9]{3}){0,2}(?!000)[0-9]{3}"
_TIME_PRINTED: Final = rf"{_HOUR}:{_SIXTY}(?::(?!00(?!\.)){_SIXTY}(?:{_FRACTION})?)?"
_OFFSET_PRINTED: Final = rf"(?:Z|[+-](?!00:00(?!:)){_OFFSET_HOUR}:{_SIXTY}(?::(?!00){_SIXTY})?)"


def _checked(form: str, text: str) -> str:
    match = re.fullmatch(form, text)
    require(match is not None, "the text is a date or time of this form")
    assert match is not None
    if "year" in match.groupdict():
        year, month, day = (int(match[part]) for part in ("year", "month", "day"))
        require(abs(year) <= 999_999_999, "a year has at most nine digits")
        same_leap_year = year % 400 + 2000  # the calendar repeats every 400 years
        days = calendar.monthrange(same_leap_year, month)[1]
        require(1 <= day <= days, "the month has such a day")
    return text


def _form(read: str, printed: str) -> Construct:
    """A text of these forms, behind its length."""
    return ExprAdapter(
        LongText, lambda text, _: _checked(read, text), lambda text, _: _checked(printed, text)
    )


TIME_OPERANDS: Final[dict[int, Construct]] = {
    Code.TIME: _form(_TIME, _TIME_PRINTED),
    Code.DATE: _form(_DATE, _DATE_PRINTED),
    Code.DATE_TIME: _form(f"{_DATE}[Tt]{_TIME}", f"{_DATE_PRINTED}T{_TIME_PRINTED}"),
    Code.ZONED_DATE_TIME: _form(
        f"{_DATE}[Tt]{_TIME}{_OFFSET}{_REGION}",
        f"{_DATE_PRINTED}T{_TIME_PRINTED}{_OFFSET_PRINTED}{_REGION}",
    ),
}
Time, Date, DateTime, ZonedDateTime = (
    tagged(code, operand) for code, operand in TIME_OPERANDS.items()
)
