"""The grammar of numbers: taken from any code that holds one, built with the code that Java takes.

Building takes the first form that can hold the number: that is the whole rule. `wire.grammar` is
the entry and lists all parts of the grammar.

    Number     a whole number of up to 64 bits, by any method of Java that writes one
    Index      one that is shown in hexadecimal
    Double     a `double`; 256.0 is another code than the whole number 256, -0.0 loses its sign
    Single     a `float`
    FIXED      the widths that a wire of fixed width keeps, and boxed numbers everywhere
    ..._2_20   what the releases around 2.20 wrote; every reader takes it
"""

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from construct import (
    Byte,
    Construct,
    ExprAdapter,
    ExprValidator,
    Float32l,
    Float64l,
    Int8sl,
    Int8ul,
    Int16sl,
    Int16ul,
    Int32sl,
    Int32ul,
    Int64sl,
    Select,
    obj_,
)

from wire.codes import Code
from wire.grammar.parts import INT64_MAX, INT64_MIN, StopBit, require, tagged

# the number is its own code
Bare = ExprValidator(Byte, obj_ < 0x80)
FIXED: Final[dict[int, Construct]] = {
    Code.UINT8: tagged(Code.UINT8, Int8ul),
    Code.INT8: tagged(Code.INT8, Int8sl),
    Code.INT16: tagged(Code.INT16, Int16sl),
    Code.UINT16: tagged(Code.UINT16, Int16ul),
    Code.INT32: tagged(Code.INT32, Int32sl),
    Code.UINT32: tagged(Code.UINT32, Int32ul),
    Code.INT64: tagged(Code.INT64, Int64sl),
    Code.FLOAT32: tagged(Code.FLOAT32, Float32l),
    Code.FLOAT64: tagged(Code.FLOAT64, Float64l),
}

# ---- whole numbers -------------------------------------------------------------------------------


def saturated(value: float) -> int:
    """Java's conversion of a double to a long."""
    if value != value:
        return 0
    if abs(value) < 1 << 63:
        return int(value)
    return INT64_MAX if value > 0 else INT64_MIN


def _truncated(floating: Construct) -> Construct:
    """A whole number that goes as a float; building takes only those that survive."""

    def encode(value: int, _: object) -> int:
        require(saturated(to_single(value)) == value, "the number survives as a float")
        return value

    return ExprAdapter(floating, lambda value, _: saturated(value), encode)


def _scaled(scale: int) -> Construct:
    return ExprAdapter(
        StopBit, lambda value, _: saturated(float(value) / scale), lambda value, _: value * scale
    )


# codes that are read and never chosen
_OTHER_WHOLE: Final = (
    Bare,
    tagged(Code.INT64_0X, Int64sl),
    tagged(Code.SET_LOW_INT8, Int8ul),
    tagged(Code.SET_LOW_INT16, Int16ul),
)
Number = Select(
    FIXED[Code.UINT8],
    FIXED[Code.INT8],
    FIXED[Code.INT16],
    FIXED[Code.UINT16],
    FIXED[Code.INT32],
    FIXED[Code.UINT32],
    tagged(Code.FLOAT32, _truncated(Float32l)),
    FIXED[Code.INT64],
    *_OTHER_WHOLE,
    tagged(Code.FLOAT64, _truncated(Float64l)),
    tagged(Code.FLOAT_STOP_2, _scaled(100)),
    tagged(Code.FLOAT_STOP_4, _scaled(10_000)),
    tagged(Code.FLOAT_STOP_6, _scaled(1_000_000)),
)
Number_2_20 = Select(Bare, Number)
Index = Select(tagged(Code.INT64_0X, Int64sl), Number)  # shown in hexadecimal, never shortened

# ---- floating point ------------------------------------------------------------------------------


def to_single(value: float) -> float:
    """The nearest 32-bit float."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def _floating(form: Construct, require_of: Callable[[float], object]) -> Construct:
    """A form that a floating-point number takes if the claim holds for it."""

    def encode(value: float, _: object) -> float:
        require(bool(require_of(value)), "the number has this form")
        return value

    return ExprAdapter(form, lambda value, _: float(value), encode)


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and float(saturated(value)) == value


def _is_single(value: float) -> bool:
    return math.isnan(value) or to_single(value) == value


def _whole(code: int) -> Construct:
    as_int = ExprAdapter(FIXED[code], lambda value, _: value, lambda value, _: int(value))
    return _floating(as_int, _is_whole)


def _decimals(least: int, greatest: int, rounded: Callable[[float], float]) -> list[Construct]:
    """A number with 2, 4 or 6 decimals: when dividing the digits gives the very same number back.

    Args:
        least, greatest: limits of the number in millionths, both outside.
        rounded: the precision of the division.
    """

    def decimal(code: int, places: int) -> Construct:
        def encode(value: float, _: object) -> int:
            require(math.isfinite(value * 1e6), "the number is finite")
            millionths = math.floor(Fraction(value * 1e6) + Fraction(1, 2))
            require(least < millionths < greatest, "the number is in the range of decimals")
            require(rounded(millionths / 1e6) == value, "the number has six decimals")
            digits = int(Fraction(millionths, 10 ** (6 - places)))  # towards zero
            require(rounded(digits / 10**places) == value, "the number has so many decimals")
            return digits

        return tagged(
            code, ExprAdapter(StopBit, lambda digits, _: float(digits) / 10**places, encode)
        )

    codes = (Code.FLOAT_STOP_2, 2), (Code.FLOAT_STOP_4, 4), (Code.FLOAT_STOP_6, 6)
    return [decimal(code, places) for code, places in codes]


_DECIMALS: Final = _decimals(-(1 << 35), 1 << 42, float)
_SINGLE_DECIMALS: Final = _decimals(-(1 << 14), 1 << 21, to_single)
_WHOLE_SINGLE: Final = _floating(FIXED[Code.FLOAT32], lambda n: _is_whole(n) and _is_single(n))
_EXACT_SINGLE: Final = _floating(FIXED[Code.FLOAT32], _is_single)
_SMALL: Final = tuple(map(_whole, (Code.UINT8, Code.INT8, Code.UINT16, Code.INT16)))
_WHOLE: Final = (
    *_SMALL,
    _WHOLE_SINGLE,
    _whole(Code.UINT32),
    _whole(Code.INT32),
    _floating(FIXED[Code.FLOAT64], _is_whole),
)
_BARE: Final = _floating(
    ExprAdapter(Bare, lambda value, _: value, lambda value, _: int(value)), _is_whole
)
_READ_ONLY: Final = tuple(
    _floating(form, lambda _: False)
    for form in (FIXED[Code.INT64], FIXED[Code.FLOAT64], *_OTHER_WHOLE)
)
_ALL_WIDE: Final = (FIXED[Code.FLOAT64], *_READ_ONLY)
_ALL_NARROW: Final = (FIXED[Code.FLOAT32], *_WHOLE, *_DECIMALS, *_ALL_WIDE)


def _as_single(form: Construct) -> Construct:
    return ExprAdapter(form, lambda value, _: to_single(value), lambda value, _: value)


Double = Select(*_WHOLE, *_DECIMALS, _EXACT_SINGLE, *_ALL_WIDE)
Single = _as_single(Select(*_SMALL, _WHOLE_SINGLE, *_SINGLE_DECIMALS, *_ALL_NARROW))
Double_2_20 = Select(_BARE, *_WHOLE, _EXACT_SINGLE, *_DECIMALS, *_ALL_WIDE)
Single_2_20 = _as_single(Select(_BARE, *_SMALL, *_ALL_NARROW))
