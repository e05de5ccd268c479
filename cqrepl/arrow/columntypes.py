"""Types of Arrow for the shapes of messages, and values of Python as their values.

shape               type                             value
integer             int64; int8 ... uint32 by width  a number beyond does not fit
float; float32      double; float
decimal             decimal128(38, 18)               a longer one does not fit
text, enum          large_string                     the name of the member
boolean, bytes      bool, large_binary
date, time          date32, time64(us)
moment              timestamp(us, UTC)               one without an offset is taken as UTC
uuid                large_string
message             struct of its fields
list, map           list, map
object              large_string                     JSON
"""

import datetime
from collections.abc import Callable
from decimal import Context, Decimal
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from cqrepl.console.payload import json_text, plain_json
from wire.objects.shapes import Shape, ShapeMember

DECIMAL_DIGITS: Final = 38
DECIMAL_SCALE: Final = 18
_INT64_LIMIT: Final = 1 << 63
_WIDE: Final = Context(prec=80)
_UNIT: Final = Decimal(1).scaleb(-DECIMAL_SCALE)
_DECIMAL_LIMIT: Final = Decimal(10) ** (DECIMAL_DIGITS - DECIMAL_SCALE)
_LEAF_TYPES: Final = {
    "float": pa.float64(),
    "float32": pa.float32(),
    "decimal": pa.decimal128(DECIMAL_DIGITS, DECIMAL_SCALE),
    "text": pa.large_string(),
    "enum": pa.large_string(),
    "open_enum": pa.large_string(),
    "boolean": pa.bool_(),
    "bytes": pa.large_binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "moment": pa.timestamp("us", "UTC"),
    "uuid": pa.large_string(),
    "object": pa.large_string(),
}
_WIDTHS: Final = {
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
}
Convert = Callable[[Any], object]


class NoColumnValue(ValueError):
    """A value that the type of its column does not hold."""


def arrow_field(member: ShapeMember) -> "pa.Field":
    """The column of a field. Any may be null: that of an excerpt that does not fit is."""
    return pa.field(member.name, arrow_type(member.shape))


def arrow_type(shape: Shape) -> "pa.DataType":
    """The type of a shape."""
    if shape.kind == "integer":
        return _WIDTHS.get("" if shape.width is None else shape.width.__name__, pa.int64())
    if shape.kind == "message":
        return pa.struct([arrow_field(each) for each in shape.members])
    if shape.kind == "list" and shape.item is not None:
        return pa.list_(arrow_type(shape.item))
    if shape.kind == "map" and shape.item is not None and shape.key is not None:
        return pa.map_(arrow_type(shape.key), arrow_type(shape.item))
    return _LEAF_TYPES[shape.kind]


def converter(shape: Shape) -> Convert:
    """A function that turns a value of a message into one that pyarrow takes for the type.

    It raises `NoColumnValue` for a value that the type does not hold.
    """
    convert = _bare_converter(shape)
    return lambda value: None if value is None else convert(value)


def _bare_converter(shape: Shape) -> Convert:
    if shape.kind == "message":
        parts = [(each.attribute, each.name, converter(each.shape)) for each in shape.members]
        return lambda value: {
            name: convert(getattr(value, attribute)) for attribute, name, convert in parts
        }
    if shape.kind == "list" and shape.item is not None:
        item = converter(shape.item)
        return lambda values: [item(value) for value in values]
    if shape.kind == "map" and shape.item is not None and shape.key is not None:
        key, inner = converter(shape.key), converter(shape.item)
        return lambda values: [(key(name), inner(value)) for name, value in values.items()]
    return _LEAVES.get(shape.kind, _same)


def _same(value: Any) -> object:
    return value


def _integer(value: int) -> int:
    if not -_INT64_LIMIT <= value < _INT64_LIMIT:
        raise NoColumnValue(f"a number of 64 bits was expected, {value} came")
    return int(value)


def _decimal(value: Decimal) -> Decimal:
    exponent = value.as_tuple().exponent
    # not `abs`: it rounds to 28 digits
    if not isinstance(exponent, int) or not value.copy_abs() < _DECIMAL_LIMIT:
        raise NoColumnValue(f"a decimal below 10^20 was expected, {value} came")
    scaled = value.quantize(_UNIT, context=_WIDE)
    if scaled != value:
        raise NoColumnValue(f"a decimal of at most 18 places was expected, {value} came")
    return scaled


def _moment(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise NoColumnValue(f"text was expected, {value!r:.40} has half a character") from error
    return str(value)


def _name(value: Enum | str) -> str:
    return value.name if isinstance(value, Enum) else _text(value)


_LEAVES: Final[dict[str, Convert]] = {
    "integer": _integer,
    "decimal": _decimal,
    "moment": _moment,
    "text": _text,
    "enum": _name,
    "open_enum": _name,
    "uuid": str,
    "object": lambda value: json_text(plain_json(value)),
}
