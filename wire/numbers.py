"""The items of numbers: which code Java's writer takes for a value.

Theory of operation. A whole number is as narrow as its value allows, not as the writer
method says (`wire.writer.encode_int`). A floating-point number goes out as a whole number where it
is one, else as a decimal with 2, 4 or 6 places where the division gives the very same number back,
else as a 32-bit float where that is exact, and only then in 8 bytes. The sign of -0.0 is lost.

The releases around 2.20 chose differently: 0 to 127 are one byte without a code, a number that is
exactly a 32-bit float goes out as one before decimals are tried, and 32-bit floats never become
decimals. Readers need to know nothing of this.

Source: sections 6.2, 6.3, 6.6 and 6.7 of the format; vectors `ints`, `floats` and `legacy`.
"""

import math
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from wire import stopbit
from wire.codes import FIXED_WIDTH, STOP_BIT_SCALE, Code
from wire.writer import encode_int

_BARE_MAX: Final = 0x7F  # the greatest number that the 2.20 generation writes without a code
_LONG_LIMIT: Final = 2.0**63
_DECIMAL_STEPS: Final = (
    (Code.FLOAT_STOP_2, 10_000),
    (Code.FLOAT_STOP_4, 100),
    (Code.FLOAT_STOP_6, 1),
)
_DECIMAL_UNITS: Final = 1_000_000
# the decimals that are tried, in millionths; both limits are outside
_DOUBLE_DECIMALS: Final = (-(1 << 35), 1 << 42)
_FLOAT_DECIMALS: Final = (-(1 << 14), 1 << 21)


def to_float32(value: float) -> float:
    """The nearest 32-bit float, infinite where it is out of their range."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def encode_fixed(code: Code, value: float) -> bytes:
    """The item of a number whose width is not chosen by its value."""
    try:
        return bytes([code]) + struct.pack(FIXED_WIDTH[code], value)
    except OverflowError:  # only 32-bit floats overflow; whole numbers out of range: struct.error
        return bytes([code]) + struct.pack("<f", to_float32(value))


def encode_float64(value: float) -> bytes:
    """The item of a double."""
    if _is_whole(value):
        return _whole(value, negative_min=-(1 << 31))
    return _decimal(value) or _shortest_float(value)


def encode_float32(value: float) -> bytes:
    """The item of a 32-bit float."""
    value = to_float32(value)
    if _is_whole(value):
        return _whole(value, negative_min=-(1 << 15))
    return _decimal32(value) or encode_fixed(Code.FLOAT32, value)


def encode_int_2_20(value: int) -> bytes:
    """The item of a whole number as the 2.20 generation writes it."""
    return bytes([value]) if 0 <= value <= _BARE_MAX else encode_int(value)


def encode_float64_2_20(value: float) -> bytes:
    """The item of a double as the 2.20 generation writes it."""
    if _is_whole(value):
        return bytes([int(value)]) if 0 <= value <= _BARE_MAX else encode_float64(value)
    if _is_float32(value):
        return encode_fixed(Code.FLOAT32, value)
    return _decimal(value) or encode_fixed(Code.FLOAT64, value)


def encode_float32_2_20(value: float) -> bytes:
    """The item of a 32-bit float as the 2.20 generation writes it."""
    value = to_float32(value)
    if _is_whole(value):
        return encode_float64_2_20(value) if 0 <= value <= _BARE_MAX else encode_float32(value)
    return encode_fixed(Code.FLOAT32, value)


class NumberStyle(NamedTuple):
    """The functions that encode a wire's numbers; `whole` is given the code that the writer method
    names."""

    whole: Callable[[Code, int], bytes]
    float64: Callable[[float], bytes]
    float32: Callable[[float], bytes]


COMPACT: Final = NumberStyle(lambda _code, value: encode_int(value), encode_float64, encode_float32)
COMPACT_2_20: Final = NumberStyle(
    lambda _code, value: encode_int_2_20(value), encode_float64_2_20, encode_float32_2_20
)
FIXED: Final = NumberStyle(
    encode_fixed,
    lambda value: encode_fixed(Code.FLOAT64, value),
    lambda value: encode_fixed(Code.FLOAT32, value),
)


def _is_whole(value: float) -> bool:
    # as Java asks: does the value survive the (saturating) conversion to a long
    return -_LONG_LIMIT <= value <= _LONG_LIMIT and value == math.trunc(value)


def _is_float32(value: float) -> bool:
    return math.isnan(value) or to_float32(value) == value


def _whole(value: float, negative_min: int) -> bytes:
    """A whole number: the widths differ from those of integers, 256 is a UINT16 here."""
    if 0 <= value <= 0xFF:
        return encode_fixed(Code.UINT8, int(value))
    if 0 <= value <= 0xFFFF:
        return encode_fixed(Code.UINT16, int(value))
    if -0x80 <= value < 0:
        return encode_fixed(Code.INT8, int(value))
    if -0x8000 <= value < 0:
        return encode_fixed(Code.INT16, int(value))
    if _is_float32(value):
        return encode_fixed(Code.FLOAT32, value)
    if 0 <= value <= 0xFFFFFFFF:
        return encode_fixed(Code.UINT32, int(value))
    if negative_min <= value < 0:
        return encode_fixed(Code.INT32, int(value))
    return encode_fixed(Code.FLOAT64, value)


def _shortest_float(value: float) -> bytes:
    return encode_fixed(Code.FLOAT32 if _is_float32(value) else Code.FLOAT64, value)


def _millionths(value: float, limits: tuple[int, int]) -> int | None:
    """The value in millionths, rounded half up; None where decimals are not tried."""
    scaled = value * _DECIMAL_UNITS
    if not limits[0] - 1 < scaled < limits[1] + 1:  # also NaN
        return None
    below = math.floor(scaled)
    rounded = below + (scaled - below >= 0.5)
    return rounded if limits[0] < rounded < limits[1] else None


def _decimal(value: float) -> bytes:
    """The double as a decimal; nothing where it is none."""
    units = _millionths(value, _DOUBLE_DECIMALS)
    if units is None or units / _DECIMAL_UNITS != value:
        return b""
    return next(
        _stop_bit(code, scaled)
        for code, divisor in _DECIMAL_STEPS
        for scaled in [_divided(units, divisor)]
        if scaled / STOP_BIT_SCALE[code] == value
    )


def _decimal32(value: float) -> bytes:
    """The 32-bit float as a decimal; nothing where it is none. The division is one of floats."""
    units = _millionths(value, _FLOAT_DECIMALS)
    if units is None or to_float32(units / _DECIMAL_UNITS) != value:
        return b""
    return next(
        _stop_bit(code, scaled)
        for code, divisor in _DECIMAL_STEPS
        for scaled in [_divided(units, divisor)]
        if to_float32(scaled / STOP_BIT_SCALE[code]) == value
    )


def _divided(value: int, divisor: int) -> int:
    """Java's division: towards zero."""
    return -(-value // divisor) if value < 0 else value // divisor


def _stop_bit(code: Code, value: int) -> bytes:
    return bytes([code]) + stopbit.encode(value)
