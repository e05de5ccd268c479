"""Dataclasses as messages: each field is written and read by its annotation.

>>> from dataclasses import dataclass
>>> from typing import Annotated
>>> from wire.objects.values import Hex64
>>> @dataclass
... class Acknowledgement:
...     index: Annotated[Hex64, Name("idx")]
...     nanos: Annotated[int, Name("ns")] = 0
>>> writer = BodyWriter()
>>> write_fields(writer, Acknowledgement(Hex64(0x451600000000), 5))
>>> writer.data.hex(" ")
'c3 69 64 78 af 00 00 00 00 16 45 00 00 c2 6e 73 a1 05'
>>> read_fields(Acknowledgement, Fields(Reader(bytes(writer.data))))
Acknowledgement(index=Hex64(0x451600000000), nanos=5)

    annotation                       writes                        reads
    int                              as Java's long; beyond, text  any whole number
    Int8 ... Int64, UInt8 ...        the method of that width      a whole number that fits
    Hex64                            64 bits, shown as hex         a whole number that fits
    float, Float64, Float32          the method of that width      any number
    Decimal                          text                          any number
    str, bool                        text, true or false           text, a date or a time; the same
    bytes, BytesLiteral              bytes; a block of them        the same
    an Enum                          the name as text              text of a name
    a dataclass                      a block of its fields         the same, under a type or not
    list[T], tuple[T, ...]           a block of values             the same
    dict[K, V]                       a block of names and values   the same
    T | None                         null for None                 null for None
    object, Any, and every other     as an object                  an object of that type

Fields are found by name, in any order; one that is absent takes the default of the dataclass, and
is a WireError without one. Fields that the class does not have are stepped over, but one of those
that it has must be there. Values without any names, as a wire without names has them, are taken in
the order of the fields: as many as there are fields, and nothing else. A class may say its type
name: `wire_type: ClassVar[str] = "Foo"`.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from wire.codes import Code
from wire.errors import WireError
from wire.objects import conversions
from wire.objects.body_writer import BodyWriter
from wire.objects.conversions import next_code
from wire.objects.lookup import Fields
from wire.objects.object_reader import NESTING_MAX, read_object
from wire.objects.object_writer import given_type, write_object
from wire.objects.values import (
    BytesLiteral,
    Float32,
    Float64,
    Hex64,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    Whole,
)
from wire.reader import Reader

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_M = TypeVar("_M", bound="DataclassInstance")
_Write = Callable[..., object]
_Read = Callable[[Reader, int], object]  # the value, how deep it is nested


class Name(NamedTuple):
    """The name of a field on the wire, where it is not that of the attribute."""

    name: str


class _Form(NamedTuple):
    """The functions that write and read values of one annotation."""

    write: _Write
    read: _Read


def _leaf(write: _Write, read: Callable[[Reader], object]) -> _Form:
    return _Form(write, lambda value, _depth: read(value))


class _Member(NamedTuple):
    """A field of a dataclass: the attribute, the name on the wire, the form."""

    attribute: str
    name: str
    form: _Form
    is_required: bool


def write_fields(writer: BodyWriter, message: "DataclassInstance") -> None:
    """The fields of a message, with their names."""
    for member in _members(type(message)):
        writer.name(member.name)
        member.form.write(writer, getattr(message, member.attribute))


def write_typed(writer: BodyWriter, message: "DataclassInstance") -> None:
    """A message as an object: the type name that its class says, then a block of its fields."""
    with writer.marshallable(given_type(type(message))):
        write_fields(writer, message)


def read_fields(kind: type[_M], fields: Fields, depth: int = 0) -> _M:
    """A message of this class; `depth` says how deep it is nested in other messages.

    Raises:
        WireError: a field is absent and has no default, or is of another type.
    """
    values: dict[str, object] = {}
    members = _members(kind)
    fields.check_fit(kind.__name__, [member.name for member in members])
    for member in members:
        value = fields.find(member.name)
        if value is not None:
            values[member.attribute] = member.form.read(value, depth)
        elif member.is_required:
            raise WireError(f"a field {member.name!r} of {kind.__name__} was expected, none came")
    return kind(**values)


def type_name(kind: type) -> str:
    """The type name that is taken in front of a message of this class."""
    return given_type(kind) or kind.__name__


@functools.cache
def _members(kind: "type[DataclassInstance]") -> tuple[_Member, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(
        _Member(field.name, _name(hints[field.name], field.name), form(hints[field.name]), required)
        for field in dataclasses.fields(kind)
        if field.init
        for required in [
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
    )


def _name(annotation: object, attribute: str) -> str:
    marks = getattr(annotation, "__metadata__", ())
    return next((mark.name for mark in marks if isinstance(mark, Name)), attribute)


def form(annotation: object) -> _Form:
    """The functions that write and read values of an annotation.

    Raises:
        TypeError: there is no form for it.
    """
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    found = _FORMS.get(annotation)
    if found is not None:
        return found
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _generic(origin, typing.get_args(annotation))
    if not isinstance(annotation, type):
        raise TypeError(f"a type with a form on the wire was expected, {annotation!r} came")
    if issubclass(annotation, Enum):
        return _enum(annotation)
    if dataclasses.is_dataclass(annotation) and annotation.__module__ != Int8.__module__:
        return _nested(annotation)
    return _object(annotation)


def _whole(width: type[Whole], method: Callable[[BodyWriter, int], None]) -> _Form:
    return _leaf(
        lambda writer, value: method(writer, width(value)),
        lambda value: width(conversions.read_integer(value, width.least, width.greatest)),
    )


def _optional(inner: _Form) -> _Form:
    def write(writer: BodyWriter, value: object) -> None:
        if value is None:
            writer.null()
        else:
            inner.write(writer, value)

    def read(value: Reader, depth: int) -> object:
        return None if next_code(value, "a value") == Code.NULL else inner.read(value, depth)

    return _Form(write, read)


def _generic(origin: object, arguments: tuple[object, ...]) -> _Form:
    if origin in (typing.Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        if len(rest) == 1 and len(arguments) > 1:
            return _optional(form(rest[0]))
    elif origin is list or (origin is tuple and arguments[1:] == (...,)):
        return _sequence(form(arguments[0]), list if origin is list else tuple)
    elif origin is dict:
        return _map(form(arguments[0]), form(arguments[1]))
    raise TypeError(f"a type with a form on the wire was expected, {origin!r} of {arguments} came")


def _sequence(inner: _Form, collect: Callable[[list[object]], object]) -> _Form:
    def write(writer: BodyWriter, values: list[object]) -> None:
        with writer.sequence():
            for value in values:
                inner.write(writer, value)

    def read(value: Reader, depth: int) -> object:
        block = value.read_block()
        items: list[object] = []
        while block.peek_code() is not None:
            items.append(inner.read(block, depth + 1))
        return collect(items)

    return _Form(write, read)


def _map(key: _Form, inner: _Form) -> _Form:
    def write(writer: BodyWriter, values: dict[object, object]) -> None:
        with writer.block():
            for name, value in values.items():
                if isinstance(name, str):
                    writer.event(name)
                else:
                    writer.event_object()
                    key.write(writer, name)
                inner.write(writer, value)

    def read(value: Reader, depth: int) -> object:
        block = value.read_block()
        found: dict[object, object] = {}
        while (code := block.peek_code()) is not None:
            if code == Code.EVENT_OBJECT:
                block.position += 1
                name = key.read(block, depth + 1)
            else:
                name = block.read_name()
            found[name] = inner.read(block, depth + 1)
        return found

    return _Form(write, read)


def _enum(kind: type[Enum]) -> _Form:
    def read(value: Reader) -> Enum:
        start = value.position
        value.read_type()
        name = conversions.read_text(value)
        if name is None or name not in kind.__members__:
            raise WireError(f"a name of {kind.__name__} was expected, {name!r} came", start)
        return kind[name]

    return _leaf(lambda writer, value: writer.text(value.name), read)


def _nested(kind: "type[DataclassInstance]") -> _Form:
    def write(writer: BodyWriter, message: "DataclassInstance") -> None:
        with writer.block():
            write_fields(writer, message)

    def read(value: Reader, depth: int) -> object:
        start, given = value.position, value.read_type()
        if depth == NESTING_MAX:
            raise WireError(f"at most {NESTING_MAX} nested messages were expected", start)
        if given is not None and given != type_name(kind):
            raise WireError(f"a {type_name(kind)} was expected, a {given} came", start)
        return read_fields(kind, Fields(value.read_block()), depth + 1)

    return _Form(write, read)


def _object(kind: type) -> _Form:
    def read(value: Reader) -> object:
        start = value.position
        found = read_object(value, keep_widths=True)
        if kind is dict and found == []:
            return {}  # an empty block is a list or a map
        if not isinstance(found, kind):
            raise WireError(f"a {kind.__name__} was expected, {found!r:.40} came", start)
        return found

    return _leaf(write_object, read)


def _given(write: _Write, read: Callable[[Reader], object]) -> _Form:
    """The form of a value that null is no value of."""

    def read_given(value: Reader) -> object:
        start = value.position
        found = read(value)
        if found is None:
            raise WireError("a value was expected, null came", start)
        return found

    return _leaf(write, read_given)


def _write_whole(writer: BodyWriter, value: int) -> None:
    if conversions.INT64_MIN <= value <= conversions.INT64_MAX:
        writer.int64(value)
    else:
        write_object(writer, value)


def _read_literal(value: Reader) -> BytesLiteral | None:
    payload = conversions.read_literal(value)
    return None if payload is None else BytesLiteral(payload)


_FORMS: Final[dict[object, _Form]] = {
    int: _leaf(_write_whole, conversions.read_integer),
    bool: _leaf(BodyWriter.boolean, conversions.read_boolean),
    float: _leaf(BodyWriter.float64, conversions.read_double),
    Float64: _leaf(BodyWriter.float64, lambda value: Float64(conversions.read_double(value))),
    Float32: _leaf(BodyWriter.float32, lambda value: Float32(conversions.read_double(value))),
    Int8: _whole(Int8, BodyWriter.int8),
    Int16: _whole(Int16, BodyWriter.int16),
    Int32: _whole(Int32, BodyWriter.int32),
    UInt8: _whole(UInt8, BodyWriter.uint8),
    UInt16: _whole(UInt16, BodyWriter.uint16),
    UInt32: _whole(UInt32, BodyWriter.uint32),
    Int64: _whole(Int64, BodyWriter.int64),
    Hex64: _whole(Hex64, BodyWriter.hex_int),
    Decimal: _leaf(write_object, conversions.read_decimal),
    str: _leaf(BodyWriter.text, conversions.read_string),
    bytes: _given(BodyWriter.bytes_value, conversions.read_bytes),
    BytesLiteral: _given(BodyWriter.bytes_literal, _read_literal),
    object: _leaf(write_object, read_object),
    typing.Any: _leaf(write_object, read_object),
}
