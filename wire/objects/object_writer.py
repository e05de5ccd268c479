"""Writes Python values as objects, in the codes that Java takes for the same objects.

    value                            item
    int                              as narrow as the value allows, never as a float; beyond 64 bits
                                     as text
    Int8 ... Float64, Hex64          with the code of their width
    float                            a double by its value
    Decimal                          text, as Java's BigDecimal; it has no NaN and is never infinite
    str, bool, None                  text, true or false, null
    bytes; BytesLiteral              a block that says it holds bytes; one that does not
    dict                             a block: names that are text as event names, else as objects
    list, tuple                      a block of values
    set, frozenset                   type `!set` and a block of values, in the order of their bytes
    array.array                      type `long[]` ... `double[]` and a block of narrow numbers
    datetime's types, UUID           the codes for them
    enum member                      its name as text
    Typed, TypeLiteral, LongArray, History, LocalTime ... as they are named
    dataclass                        its fields by their annotations (`wire.objects.annotated`)

A dataclass or an enum has its type name in front where the class says one, as `wire_type`. Java
loads a class by such a name, and does not know those of Python's classes.

Source: section 6.5 of the format; vectors `objects`.
"""

import array
import datetime
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Final

from wire.codes import Code
from wire.objects.body_writer import BodyWriter
from wire.objects.conversions import INT64_MAX, INT64_MIN
from wire.objects.times import wire_time
from wire.objects.values import (
    BytesLiteral,
    Float32,
    Float64,
    History,
    Int8,
    Int16,
    Int32,
    Int64,
    LongArray,
    TimeText,
    Typed,
    TypeLiteral,
    Whole,
)
from wire.objects.variants import name_number
from wire.strings import decode_name, encode_name

_ARRAYS: Final = {
    "h": ("short[]", Code.INT16),
    "i": ("int[]", Code.INT32),
    "q": ("long[]", Code.INT64),
    "f": ("float[]", Code.FLOAT32),
    "d": ("double[]", Code.FLOAT64),
}
_UINT32_MAX: Final = (1 << 32) - 1
_DECIMAL_EXPONENT_MAX: Final = (1 << 31) - 64_000  # less some digits: Java's scale has 32 bits
_BYTE_ARRAY: Final = "byte[]"
MARKED: Final = (Typed, TypeLiteral, LongArray, History)  # dataclasses that are one value


def write_object(writer: BodyWriter, value: object) -> None:
    """A value, as Java's `object(x)` writes it.

    >>> writer = BodyWriter()
    >>> write_object(writer, {"a": 1, "b": ["x", None]})
    >>> writer.data.hex()
    '8210000000b90161a101b901628203000000e178bb'

    Raises:
        TypeError: the wire has no form for a value of this type.
        ValueError: it has none for this value.
    """
    if isinstance(value, Enum):  # also one that is a number or a text besides
        name = given_type(type(value))
        if name is not None:
            writer.type_prefix(name)
        writer.text(value.name)
        return
    for kind in type(value).__mro__:
        write = _WRITE.get(kind)
        if write is not None:
            write(writer, value)
            return
    if is_dataclass(value) and not isinstance(value, type):
        from wire.objects.annotated import write_typed  # the two call each other

        write_typed(writer, value)
        return
    raise TypeError(f"a value with a form on the wire was expected, {value!r} came")


def write_untyped(writer: BodyWriter, value: object) -> None:
    """A value as Java's `untypedObject(x)` writes it: numbers by value, enums and byte arrays
    without their type."""
    if isinstance(value, Int8 | Int16 | Int32 | Int64):
        writer.number(value.code, value)
    elif isinstance(value, Float32):
        writer.float32(value)
    elif isinstance(value, Float64):
        writer.float64(value)
    elif isinstance(value, Enum):
        writer.text(value.name)
    elif isinstance(value, Typed) and isinstance(value.value, str | bytes):
        write_object(writer, value.value)
    else:
        write_object(writer, value)


def write_body(writer: BodyWriter, value: object) -> None:
    """A document body: the fields of a dict or a dataclass by name, any other value alone."""
    if is_dataclass(value) and not isinstance(value, (type, *MARKED)):
        from wire.objects.annotated import write_fields  # the two call each other

        event = given_event(type(value))
        if event is None:
            write_fields(writer, value)
            return
        writer.event(event)
        with writer.block():
            write_fields(writer, value)
    elif isinstance(value, Mapping) and value:
        for name, item in value.items():
            write_name(writer, name)
            write_object(writer, item)
    else:
        write_object(writer, value)


def write_name(writer: BodyWriter, name: object) -> None:
    """A field name that reads back as it is: as an event name or an object where Java's form of a
    field name would lose something."""
    if not isinstance(name, str) or not _is_latin(name):
        writer.event_object()
        write_object(writer, name)
        return
    number = name_number(name)
    if number is None or str(number) == name:
        writer.name(name)
    else:
        writer.event(name)


def write_map(writer: BodyWriter, entries: Iterable[tuple[object, object]]) -> None:
    """A block of names and values."""
    with writer.block():
        for name, value in entries:
            if isinstance(name, str) and _is_latin(name):
                writer.event(name)
            else:
                writer.event_object()
                write_object(writer, name)
            write_object(writer, value)


def write_sequence(writer: BodyWriter, values: Iterable[object]) -> None:
    """A block of values."""
    with writer.block():
        for value in values:
            write_object(writer, value)


def _is_latin(name: str) -> bool:
    return decode_name(encode_name(name)) == name


def _write_int(writer: BodyWriter, value: int) -> None:
    if not INT64_MIN <= value <= INT64_MAX:
        writer.text(str(value))  # as Java's BigInteger
    elif abs(value) > _UINT32_MAX:
        writer.fixed(Code.INT64, value)  # or it might become a float, and come back as one
    else:
        writer.int64(value)


def _write_time(
    writer: BodyWriter, value: datetime.date | datetime.time | datetime.datetime
) -> None:
    _write_time_text(writer, wire_time(value))


def _write_time_text(writer: BodyWriter, value: TimeText) -> None:
    writer.time(value.code, value)


def _write_set(writer: BodyWriter, values: Iterable[object]) -> None:
    writer.type_prefix("!set")
    with writer.block():
        start = len(writer.data)
        items = []
        for value in values:
            write_object(writer, value)
            items.append(bytes(writer.data[start:]))
            del writer.data[start:]
        writer.data += b"".join(sorted(items))  # the same bytes for the same set


def _write_array(writer: BodyWriter, values: "array.array[int] | array.array[float]") -> None:
    if values.typecode not in _ARRAYS:
        raise TypeError(f"an array of h, i, q, f or d was expected, {values.typecode} came")
    name, width = _ARRAYS[values.typecode]
    writer.type_prefix(name)
    writer.array(values, width)


def _write_decimal(writer: BodyWriter, value: Decimal) -> None:
    if not value.is_finite() or abs(value.adjusted()) > _DECIMAL_EXPONENT_MAX:
        raise ValueError(
            f"a finite Decimal that Java's BigDecimal holds was expected, {value} came"
        )
    writer.text(str(value))


def given_type(kind: type) -> str | None:
    """The type name that a class says for itself; None where it says none."""
    name = getattr(kind, "wire_type", None)
    return None if name is None else str(name)


def given_event(kind: type) -> str | None:
    """The method that a class says it is the argument of; None where it says none."""
    name = getattr(kind, "wire_event", None)
    return None if name is None else str(name)


def _write_typed(writer: BodyWriter, value: Typed) -> None:
    if value.name == _BYTE_ARRAY and isinstance(value.value, bytes):
        writer.raw_bytes(value.value)
        return
    writer.type_prefix(value.name)
    write_object(writer, value.value)


# looked up along the classes of a value, so that the closest one counts: bool before int
_WRITE: Final[dict[type, Callable[..., object]]] = {
    type(None): lambda writer, _: writer.null(),
    bool: BodyWriter.boolean,
    Whole: lambda writer, value: writer.fixed(value.code, value),
    int: _write_int,
    Float32: lambda writer, value: writer.fixed(Code.FLOAT32, value),
    Float64: lambda writer, value: writer.fixed(Code.FLOAT64, value),
    float: BodyWriter.float64,
    Decimal: _write_decimal,
    TimeText: _write_time_text,
    str: BodyWriter.text,
    BytesLiteral: BodyWriter.bytes_literal,
    bytes: BodyWriter.bytes_value,
    bytearray: BodyWriter.bytes_value,
    memoryview: BodyWriter.bytes_value,
    datetime.date: _write_time,
    datetime.time: _write_time,
    uuid.UUID: BodyWriter.uuid,
    Typed: _write_typed,
    TypeLiteral: lambda writer, value: writer.type_literal(value.name),
    LongArray: BodyWriter.long_array,
    History: BodyWriter.history,
    dict: lambda writer, value: write_map(writer, value.items()),
    list: write_sequence,
    tuple: write_sequence,
    set: _write_set,
    frozenset: _write_set,
    array.array: _write_array,
}
