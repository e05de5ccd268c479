"""Values of the wire that Python has no type for.

Each is a plain Python value with a mark: `Int8(5) == 5`, `Float32(1.5) == 1.5`, so what was read
can be used as it is. A mark says how the value is written: `5` goes out as narrow as it allows,
`Int32(5)` as Java writes an `Integer` object, in 4 bytes.

>>> Int8(5) + 1
6
>>> Int8(200)
Traceback (most recent call last):
...
ValueError: Int8 holds -128 to 127, 200 came
>>> Typed("WireType", "TEXT")
Typed(name='WireType', value='TEXT')
"""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from wire.codes import Code
from wire.numbers import to_float32


class Whole(int):
    """A whole number of a fixed width; `code` is what it is written with."""

    code: ClassVar[Code] = Code.INT64
    least: ClassVar[int] = -(1 << 63)
    greatest: ClassVar[int] = (1 << 63) - 1

    def __new__(cls, value: int = 0) -> Self:
        if not cls.least <= value <= cls.greatest:
            name = cls.__name__
            raise ValueError(f"{name} holds {cls.least} to {cls.greatest}, {value} came")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class Int8(Whole):
    """A Java `byte`."""

    code = Code.INT8
    least, greatest = -(1 << 7), (1 << 7) - 1


class Int16(Whole):
    """A Java `short`."""

    code = Code.INT16
    least, greatest = -(1 << 15), (1 << 15) - 1


class Int32(Whole):
    """A Java `int`."""

    code = Code.INT32
    least, greatest = -(1 << 31), (1 << 31) - 1


class Int64(Whole):
    """A Java `long`."""


class UInt8(Whole):
    """A number of 8 bits without a sign."""

    code = Code.UINT8
    least, greatest = 0, (1 << 8) - 1


class UInt16(Whole):
    """A number of 16 bits without a sign."""

    code = Code.UINT16
    least, greatest = 0, (1 << 16) - 1


class UInt32(Whole):
    """A number of 32 bits without a sign."""

    code = Code.UINT32
    least, greatest = 0, (1 << 32) - 1


class Hex64(Whole):
    """A Java `long` that is shown in hexadecimal, as indexes are."""

    code = Code.INT64_0X

    def __repr__(self) -> str:
        return f"Hex64({int(self):#x})"


class Float64(float):
    """A Java `Double`, always 8 bytes."""

    def __repr__(self) -> str:
        return f"Float64({float(self)!r})"


class Float32(float):
    """A Java `Float`: the nearest 32-bit float of what is given."""

    def __new__(cls, value: float = 0.0) -> Self:
        return super().__new__(cls, to_float32(value))

    def __repr__(self) -> str:
        return f"Float32({float(self)!r})"


class BytesLiteral(bytes):
    """Raw bytes without the array code, as replicated excerpts are; read back as any block is."""

    def __repr__(self) -> str:
        return f"BytesLiteral({bytes(self)!r})"


class TimeText(str):
    """A date or time in Java's text form, where Python's own types cannot hold it."""

    __slots__ = ()
    code: ClassVar[Code] = Code.TIME

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class LocalTime(TimeText):
    """A time of day, to the nanosecond."""

    __slots__ = ()


class LocalDate(TimeText):
    """A date of any year."""

    __slots__ = ()
    code = Code.DATE


class LocalDateTime(TimeText):
    """A date and time of day."""

    __slots__ = ()
    code = Code.DATE_TIME


class ZonedDateTime(TimeText):
    """A date and time with an offset, and maybe a region."""

    __slots__ = ()
    code = Code.ZONED_DATE_TIME


@dataclass(frozen=True, slots=True)
class Typed:
    """A value under a type name. A name is only ever kept: nothing is loaded or called for it."""

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class TypeLiteral:
    """A class as a value."""

    name: str


@dataclass(frozen=True, slots=True)
class LongArray:
    """An array of longs that lives in place; the places behind `values` hold 0."""

    values: tuple[int, ...]
    used: int = 0
    capacity: int = 0  # as many as there are values where that is more

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", max(self.capacity, len(self.values), 1))
        rest = self.capacity - len(self.values)
        object.__setattr__(self, "values", (*self.values, *(0,) * rest))


@dataclass(frozen=True, slots=True)
class History:
    """The way of a message so far: pairs of source id and index, and times in nanoseconds."""

    sources: tuple[tuple[int, int], ...] = ()
    timings: tuple[int, ...] = ()


WHOLE_OF_CODE: Final[dict[int, type[Whole]]] = {
    Code.UINT8: Int32,
    Code.UINT16: Int32,
    Code.SET_LOW_INT8: Int32,
    Code.SET_LOW_INT16: Int32,
    Code.INT32: Int32,
    Code.UINT32: Int64,
    Code.INT64: Int64,
    Code.INT64_0X: Int64,
    Code.INT8: Int8,
    Code.INT16: Int16,
}
TIME_OF_CODE: Final[dict[int, type[TimeText]]] = {
    Code.TIME: LocalTime,
    Code.DATE: LocalDate,
    Code.DATE_TIME: LocalDateTime,
    Code.ZONED_DATE_TIME: ZonedDateTime,
}
