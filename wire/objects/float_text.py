"""Floating-point numbers as Java prints them.

Theory of operation. A double is printed with a power of a thousand where that is exact (`100E3`),
in plain decimals where at most 18 of them are exact, and else like Java's `Double.toString`. Java
17 sometimes prints one digit more than identifies the number; here it is always the shortest that
does.

Source: section 9.4 of the format, and the vectors `floats.jsonl`.
"""

import math
from typing import Final

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
