"""How one value looks in the text of a document: text, floating-point numbers, dates and times.

Theory of operation. Each function takes a value and gives the characters that Java prints for it;
where they stand on the line is the layout's business. Three things are not what one would expect:

* text is quoted by its first and last character and by a set of characters, not by whether YAML
  needs it; text that holds a `'` and none of these is not quoted at all;
* a double is printed with a power of a thousand where that is exact (`100E3`), in plain decimals
  where at most 18 of them are exact, and else like Java's `Double.toString`. Java 17 sometimes
  prints one digit more than identifies the number; here it is always the shortest that does;
* dates and times are parsed and printed again, so `12:34:00` becomes `12:34`.

Source: sections 2 and 9.3 to 9.5 of the format, and the vectors `floats.jsonl`, `strings.jsonl` and
`scalars.jsonl`.
"""

import base64
import calendar
import math
import re
from typing import Final

from wire.errors import WireError
from wire.strings import decode_name, encode_text

# --- text ---------------------------------------------------------------------------------------

_NEEDS_DOUBLE_QUOTES: Final = re.compile(
    r"""^[?%*&@`0-9+\- ',#:{}\[\]|>!\\] | [ ]\Z | [?,#:{}\[\]|>\\^\x00-\x1f\x80-\U0010ffff] | "'""",
    re.VERBOSE,
)
_ESCAPED: Final = re.compile(r"[\x00-\x1f\\\x80-\U0010ffff]")
_ESCAPED_IN_QUOTES: Final = re.compile(r"[\x00-\x1f\\\x80-\U0010ffff\"]")
_TEXT_PAYLOADS: Final = (bytes([0x0A, *range(0x20, 0x80)]), bytes([0x09, *range(0x20, 0x7F)]))
_SHORT_ESCAPES: Final = {
    "\0": "\\0",
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    "\x1b": "\\e",
    '"': '\\"',
    "\\": "\\\\",
    "\x85": "\\N",
    "\xa0": "\\_",
    "\u2028": "\\L",
    "\u2029": "\\P",
}


def quoted(text: str) -> str:
    """Text as it stands in the dump: escaped, and in the quotes that Java gives it."""
    if not text or _NEEDS_DOUBLE_QUOTES.search(text):
        return f'"{_ESCAPED_IN_QUOTES.sub(_escape, text)}"'
    if '"' in text and "'" not in text:
        return f"'{_ESCAPED.sub(_escape, text)}'"
    return _ESCAPED.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    short = _SHORT_ESCAPES.get(char)
    if short is not None:
        return short
    if char <= "\xff":
        return f"\\x{ord(char):02X}"
    units = char.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def copied(text: str) -> str:
    """Text that Java copies unescaped, as UTF-8, and shows byte by byte: comments, type names."""
    return decode_name(encode_text(text))


def payload_text(payload: bytes) -> str:
    """Raw bytes: as text where they all look like it, else in Base64."""
    if any(not payload.translate(None, allowed) for allowed in _TEXT_PAYLOADS):
        return quoted(decode_name(payload))
    return "!!binary " + base64.b64encode(payload).decode("ascii")


# --- floating-point numbers ---------------------------------------------------------------------

_INT_MAX: Final = (1 << 31) - 1
_MOST_DECIMALS: Final = 18
_EXACT_BELOW: Final = 1e15  # the integers whose decimals are tried; above, Java gives up
# below a thousandth, with x = d * 1e7: the limit of |x|, what divides x, the exponent that is left
_SMALL_STEPS: Final = ((10, 1, 7), (100, 10, 6), (1000, 100, 5), (10_000, 1000, 4))


def float_text(value: float) -> str:
    """A double as Java's text wire prints it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if size == 0:
        return str(value)
    if size < 1e-7 or size >= 1e15:
        return _java_double(value)
    for unit, exponent in ((1e6, 6), (1e3, 3)):
        if min(int(size / unit), _INT_MAX) * unit == size:
            return f"{int(value / unit)}E{exponent}"
    if size < 1e-3:
        return _small(value)
    return _plain(value)


def double_text(value: float) -> str:
    """A double as Java's `Double.toString` prints it; always the shortest digits."""
    size = abs(value)
    if size == 0 or not math.isfinite(value):
        return float_text(value)
    return _shortest_plain(value) if 1e-3 <= size < 1e7 else _java_double(value)


def _small(value: float) -> str:
    scaled = _round_half_up(value * 1e16) / 1e9
    for limit, divisor, exponent in _SMALL_STEPS:
        if abs(scaled) < limit:
            return f"{_plain(scaled / divisor)}E-{exponent}"
    return f"{_plain(scaled / 10_000)}E-3"


def _round_half_up(value: float) -> int:
    below = math.floor(value)
    return below + (value - below >= 0.5)


def _plain(value: float) -> str:
    size = abs(value)
    sign = "-" if value < 0 else ""
    for decimals in range(_MOST_DECIMALS + 1):
        power = 10**decimals
        digits = _round_half_up(size * power)
        if digits / power == size:
            text = str(digits).rjust(decimals + 1, "0")
            whole, fraction = text[: len(text) - decimals], text[len(text) - decimals :]
            return f"{sign}{whole}.{fraction or '0'}"
        if digits >= _EXACT_BELOW:
            break
    return _shortest_plain(value)


def _shortest_plain(value: float) -> str:
    """The shortest digits that identify the number, without an exponent."""
    digits, exponent = _shortest_digits(abs(value))
    sign = "-" if value < 0 else ""
    if exponent <= 0:
        return f"{sign}0.{'0' * -exponent}{digits}"
    whole = digits[:exponent].ljust(exponent, "0")
    return f"{sign}{whole}.{digits[exponent:] or '0'}"


def _shortest_digits(size: float) -> tuple[str, int]:
    """Digits d1 d2 ... and exponent e with size = 0.d1d2... * 10^e."""
    mantissa, exponent = f"{size!r}e0".split("e")[:2]
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    return digits.rstrip("0"), len(whole) - leading + int(exponent)


def _java_double(value: float) -> str:
    """`Double.toString` outside 1e-3 <= |value| < 1e7, where it has an exponent."""
    digits, exponent = _shortest_digits(abs(value))
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


# --- dates and times ----------------------------------------------------------------------------

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
    return quoted(shown) if region else shown


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
