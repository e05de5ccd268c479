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
    an Enum | str                    the name, or the text         text; of a name, the member
    a dataclass                      a block of its fields         the same, under a type or not
    list[T], tuple[T, ...]           a block of values             the same
    dict[K, V]                       a block of names and values   the same
    T | None                         null for None                 null for None
    object, Any, and every other     as an object                  an object of that type

Fields are found by name, in any order; one that is absent takes the default of the dataclass, and
is a WireError without one. Fields that the class does not have are stepped over, but one of those
that it has must be there. Values without any names, as a wire without names has them, are taken in
the order of the fields: as many as there are fields, and nothing else. A class may say its type
name: `wire_type: ClassVar[str] = "Foo"`; and that it is the argument of a method call, by the name
of the method: `wire_event: ClassVar[str] = "order"`.

Classes and writers change at different times. Each of these has one result:

    a field that only the writer has      stepped over
    a field that only the class has       its default; without one a `FieldError`
    a wider number than the class says    the number where the annotation holds it (`int` holds
                                          each), else a `FieldError`; never cut
    a whole number for a `float`          the nearest double
    a fraction for an `int`               a `FieldError`
    a new member of an enum               a `FieldError`; with `Side | str` the text

A `FieldError` says the path to the field, the type that was expected and the value that came.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from wire.codes import Code
from wire.errors import FieldError, WireError
from wire.objects import conversions
from wire.objects.body_writer import BodyWriter
from wire.objects.conversions import next_code
from wire.objects.lookup import Fields
from wire.objects.object_reader import HISTORY_NAME, NESTING_MAX, read_event, read_object
from wire.objects.object_writer import given_event, given_type, write_object
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
    """A field of a dataclass: the attribute, the name on the wire, the form, the annotation."""

    attribute: str
    name: str
    form: _Form
    is_required: bool
    annotation: object


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
            values[member.attribute] = _read_part(
                member.form, value, depth, member.name, member.annotation
            )
        elif member.is_required:
            reason = f"a field {member.name!r} of {kind.__name__} was expected, none came"
            raise FieldError(member.name, described(member.annotation), "no field", reason)
    return kind(**values)


def read_message(kind: type[_M], reader: Reader) -> _M:
    """A message of this class from a document body: its fields, or the call of the method that the
    class names as its `wire_event`.

    Raises:
        WireError: as `read_fields`; or it is the call of another method.
    """
    event = given_event(kind)
    if event is None:
        return read_fields(kind, Fields(reader))
    skip_history(reader)
    start, found = reader.position, read_event(reader)
    if found != event:
        raise WireError(f"a call of {event!r} was expected, {found!r} came", start)
    message = _nested(kind).read(reader, 0)
    if reader.peek_code() is not None:
        raise WireError(f"the end was expected behind the call of {event!r}", reader.position)
    assert isinstance(message, kind)
    return message


def skip_history(reader: Reader) -> None:
    """Steps over the history that Java's services write in front of a call."""
    start = reader.position
    if read_event(reader) == HISTORY_NAME and reader.peek_code() is not None:
        reader.skip_value()
    else:
        reader.position = start


def _read_part(form: _Form, value: Reader, depth: int, path: str, annotation: object) -> object:
    """A value that is a part of another one, which errors name by its path."""
    start, end = value.position, value.end
    try:
        return form.read(value, depth)
    except FieldError as error:
        raise error.within(path) from error
    except WireError as error:
        found = shown_value(Reader(value.data, start, end))
        reason, position = error.reason, error.position
        raise FieldError(path, described(annotation), found, reason, position) from error


def shown_value(value: Reader) -> str:
    """The value that stands next as short text for people; its code where it cannot be read."""
    code = value.peek_code()
    try:
        return f"{read_object(value)!r:.40}"
    except WireError:
        return "nothing" if code is None else f"code 0x{code:02X}"


def described(annotation: object) -> str:
    """An annotation as people write it."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(annotation))


def check_class(kind: type) -> None:
    """Does nothing for a dataclass whose annotations all have a form on the wire.

    Raises:
        TypeError: it is none, or one has not.
    """
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise TypeError(f"a dataclass was expected, {kind!r} came")
    _members(kind)


def type_name(kind: type) -> str:
    """The type name that is taken in front of a message of this class."""
    return given_type(kind) or kind.__name__


@functools.cache
def _members(kind: "type[DataclassInstance]") -> tuple[_Member, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(
        _Member(field.name, name_of(hint, field.name), form(hint), required, hint)
        for field in dataclasses.fields(kind)
        if field.init
        for hint in [hints[field.name]]
        for required in [
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
    )


def name_of(annotation: object, attribute: str) -> str:
    """The name of a field on the wire: that of the attribute, or the one that its `Name` says."""
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
        if next_code(value, "a value") != Code.NULL:
            return inner.read(value, depth)
        value.position += 1
        return None

    return _Form(write, read)


def _generic(origin: object, arguments: tuple[object, ...]) -> _Form:
    if origin in (typing.Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        if len(rest) == 1 and len(arguments) > 1:
            return _optional(form(rest[0]))
        kinds = [each for each in rest if isinstance(each, type) and issubclass(each, Enum)]
        if len(kinds) == 1 and sorted(map(str, rest)) == sorted(map(str, [kinds[0], str])):
            open_form = _open_enum(kinds[0])
            return open_form if len(rest) == len(arguments) else _optional(open_form)
    elif origin is list or (origin is tuple and arguments[1:] == (...,)):
        return _sequence(form(arguments[0]), list if origin is list else tuple, arguments[0])
    elif origin is dict:
        return _map(form(arguments[0]), form(arguments[1]), arguments[1])
    raise TypeError(f"a type with a form on the wire was expected, {origin!r} of {arguments} came")


def _sequence(inner: _Form, collect: Callable[[list[object]], object], annotation: object) -> _Form:
    def write(writer: BodyWriter, values: list[object]) -> None:
        with writer.sequence():
            for value in values:
                inner.write(writer, value)

    def read(value: Reader, depth: int) -> object:
        block = value.read_block()
        items: list[object] = []
        while block.peek_code() is not None:
            items.append(_read_part(inner, block, depth + 1, f"[{len(items)}]", annotation))
        return collect(items)

    return _Form(write, read)


def _map(key: _Form, inner: _Form, annotation: object) -> _Form:
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
            found[name] = _read_part(inner, block, depth + 1, f"[{name!r}]", annotation)
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


def _open_enum(kind: type[Enum]) -> _Form:
    """The form of an enum that may get members which this process does not know."""

    def write(writer: BodyWriter, value: Enum | str) -> None:
        writer.text(value.name if isinstance(value, kind) else str(value))

    def read(value: Reader) -> Enum | str:
        start = value.position
        value.read_type()
        name = conversions.read_text(value)
        if name is None:
            raise WireError(f"a name of {kind.__name__} was expected, null came", start)
        return kind[name] if name in kind.__members__ else name

    return _leaf(write, read)


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
