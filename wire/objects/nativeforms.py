"""The native codec, told the schemas of Python: readers of objects, of messages and of columns.

Theory of operation. A shape becomes nested tuples, from which the crate makes its own. A shape with
a kind that the crate does not know has no native reader, and the plain one is used; so is it for
each document that the crate finds unusual, for which a reader gives `NotImplemented`.

    form      (kind, is_nullable, detail)
    detail    integer: (least, greatest, class or None, bytes of a column); float: class or None;
              decimal, date, time, moment: class; enum: names and members; map: form;
              list: (form, is_tuple); message: (type name, class, fields)
    field     (name, form, is_required, default, factory or None)
"""

import dataclasses
import datetime
import functools
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from wire.codec import NATIVE
from wire.objects.annotated import type_name
from wire.objects.body_writer import BodyWriter
from wire.objects.conversions import INT64_MAX, INT64_MIN
from wire.objects.object_writer import MARKED, given_event
from wire.objects.shapes import Shape, ShapeMember, shape_of
from wire.objects.times import python_time
from wire.objects.values import Float32, Float64, Hex64, Typed, TypeLiteral

DEPTH_MAX: Final = 32
DECIMAL_SCALE: Final = 18
_COLUMN_DIGITS: Final = 38
_BYTES_OF: Final = {"Int8": 1, "UInt8": 1, "Int16": 2, "UInt16": 2, "Int32": 4, "UInt32": 4}
_TEXT_KINDS: Final = frozenset({"text", "enum", "open_enum", "uuid"})
# kinds of which the crate writes the items; it takes no value of a subclass of these
_WRITTEN_AS_THEY_ARE: Final[frozenset[object]] = frozenset(
    {float, Float64, Float32, Decimal, str, bool, bytes, uuid.UUID}
    | {datetime.date, datetime.time, datetime.datetime}
)
Form = tuple[str, bool, object]
Field = dataclasses.Field[Any]
_COLUMN_KINDS: Final = frozenset(
    {"float", "float32", "decimal", "text", "boolean", "bytes", "date", "moment", "uuid"}
)


class NoNativeForm(Exception):
    """The crate has no form for a kind."""


def object_reader() -> Callable[[bytes | bytearray | memoryview], object]:
    """A function that reads a body into Python's own types, or gives `NotImplemented`."""
    return _declined if _OBJECTS is None else _OBJECTS.read


def shown_reader() -> Callable[[bytes | bytearray | memoryview], object]:
    """A function that reads the values that Java's text of a body shows, or gives
    `NotImplemented`."""
    if NATIVE is None:
        return _declined
    reader: Any = NATIVE.ObjectReader(python_time, _uuid, Typed, TypeLiteral, True)
    read: Callable[[bytes | bytearray | memoryview], object] = reader.read
    return read


def message_reader(kind: type) -> Callable[[bytes | bytearray | memoryview], object] | None:
    """A function that reads a body into a message of a class: None for a call of another method,
    `NotImplemented` for what the plain codec has to read. None where there is no native reader."""
    if NATIVE is None:
        return None
    try:
        form = _message(shape_of(kind), 0, _ObjectForms())
        reader: Any = NATIVE.MessageReader(form, event_bytes(kind), _OBJECTS)
    except (NoNativeForm, TypeError):
        return None
    read: Callable[[bytes | bytearray | memoryview], object] = reader.read
    return read


def message_writer(kind: type) -> Callable[[object], object] | None:
    """A function that writes a message of a class as a document, or gives `NotImplemented`; None
    where there is no native writer."""
    if NATIVE is None or not dataclasses.is_dataclass(kind) or issubclass(kind, MARKED):
        return None
    event = given_event(kind)
    try:
        form = _written_message(shape_of(kind), 0)
        item = None if event is None else _item(lambda writer: writer.event(event))
        writer: Any = NATIVE.MessageWriter(form, item)
    except (NoNativeForm, TypeError):
        return None
    write: Callable[[object], object] = writer.write
    return write


def _written_message(shape: Shape, depth: int) -> tuple[object, ...]:
    """The class of a message, and of each field the item of its name, attribute and form."""
    members = [
        (
            _item(functools.partial(BodyWriter.name, name=member.name)),
            member.attribute,
            _written_form(member.shape, depth),
        )
        for member in shape.members
    ]
    return _bare(shape), members


def _written_form(shape: Shape, depth: int) -> Form:
    """The form of a value that is written: (kind, is_nullable, detail)."""
    if depth > DEPTH_MAX:
        raise NoNativeForm
    detail: object = None
    annotation = _bare(shape)
    if shape.kind == "integer" and annotation is not Hex64:
        detail = _integer(shape)[:2]
    elif shape.kind in ("enum", "open_enum"):
        kind = _enum(shape)
        detail = {
            each: _item(functools.partial(BodyWriter.text, text=each.name))
            for each in kind.__members__.values()
        }
    elif shape.kind == "message":
        detail = _written_message(shape, depth + 1)
    elif shape.kind in ("list", "map") and shape.item is not None:
        detail = _written_form(shape.item, depth + 1)
    elif annotation in _WRITTEN_AS_THEY_ARE:
        detail = annotation
    else:
        raise NoNativeForm
    return shape.kind, shape.is_nullable, detail


def _item(write: Callable[[BodyWriter], object]) -> bytes:
    writer = BodyWriter()
    write(writer)
    return bytes(writer.data)


def column_batch(kind: type, wanted: Sequence[ShapeMember]) -> Any:
    """The crate's maker of columns of these fields of a class; None where there is none.

    Its method `read(payload, offsets, row, end)` gives the number of rows, and for each field
    (number of values, number of nulls, bits or None, buffers).
    """
    if NATIVE is None:
        return None
    shape = shape_of(kind)
    names = {member.name for member in wanted}
    try:
        form = _message(shape, 0, _ColumnForms())
        flags = [member.name in names for member in shape.members]
        return NATIVE.ColumnBatch(form, event_bytes(kind), flags)
    except (NoNativeForm, TypeError):
        return None


def event_bytes(kind: type) -> bytes | None:
    """The method that a class is the argument of, as the wire has it."""
    event = given_event(kind)
    try:
        return None if event is None else event.encode("latin-1")
    except UnicodeEncodeError as error:
        raise NoNativeForm from error


def _declined(data: bytes | bytearray | memoryview) -> object:
    return NotImplemented


class _ObjectForms:
    """Forms of values as objects."""

    def kind(self, shape: Shape) -> object:
        annotation = _bare(shape)
        if shape.kind in ("date", "time", "moment", "decimal"):
            return annotation
        if shape.kind in ("float", "float32"):
            return None if annotation is float else annotation
        if shape.kind in ("text", "boolean", "bytes", "uuid"):
            return None
        if shape.kind == "object" and annotation in (object, Any):
            return None
        raise NoNativeForm

    def default(
        self, member: ShapeMember, field: "dataclasses.Field[Any]"
    ) -> tuple[object, object]:
        factory = field.default_factory
        return member.default, None if factory is dataclasses.MISSING else factory


class _ColumnForms:
    """Forms of values as columns."""

    def kind(self, shape: Shape) -> object:
        known = (
            "float",
            "float32",
            "decimal",
            "text",
            "boolean",
            "bytes",
            "date",
            "moment",
            "uuid",
        )
        if shape.kind in known:
            return None
        raise NoNativeForm

    def default(
        self, member: ShapeMember, field: "dataclasses.Field[Any]"
    ) -> tuple[object, object]:
        return _column_default(member.shape, member.default), None


def _column_default(shape: Shape, value: object) -> tuple[str, object]:
    """A default as a kind and a value of the crate."""
    if value is None:
        return "null", None
    if shape.kind == "boolean" and isinstance(value, bool):
        return "boolean", value
    if shape.kind == "integer" and isinstance(value, int) and INT64_MIN <= value <= INT64_MAX:
        return "whole", int(value)
    if shape.kind in ("float", "float32") and isinstance(value, int | float):
        return "float", float(value)
    if shape.kind in _TEXT_KINDS:
        text = value.name if isinstance(value, Enum) else str(value)
        if text.isascii():
            return "text", text
    if shape.kind == "bytes" and isinstance(value, bytes):
        return "bytes", value
    if shape.kind == "decimal" and isinstance(value, Decimal) and value.is_finite():
        scaled = value.scaleb(DECIMAL_SCALE)
        if scaled == scaled.to_integral_value() and abs(scaled) < 10**_COLUMN_DIGITS:
            return "decimal", int(scaled)
    if shape.kind == "list" and value in ([], ()):
        return "none", None
    raise NoNativeForm


_Maker = _ObjectForms | _ColumnForms


def _form(shape: Shape, depth: int, maker: _Maker) -> Form:
    if depth > DEPTH_MAX:
        raise NoNativeForm
    if shape.kind == "integer":
        return shape.kind, shape.is_nullable, _integer(shape)
    if shape.kind in ("enum", "open_enum"):
        members = dict(_enum(shape).__members__)
        return shape.kind, shape.is_nullable, members
    if shape.kind == "message":
        return shape.kind, shape.is_nullable, _message(shape, depth + 1, maker)
    if shape.kind == "list" and shape.item is not None:
        is_tuple = str(_bare(shape)).startswith("tuple")
        return shape.kind, shape.is_nullable, (_form(shape.item, depth + 1, maker), is_tuple)
    if shape.kind == "map" and shape.item is not None and isinstance(maker, _ObjectForms):
        return shape.kind, shape.is_nullable, _form(shape.item, depth + 1, maker)
    return shape.kind, shape.is_nullable, maker.kind(shape)


def _integer(shape: Shape) -> tuple[int, int, object, int]:
    width = shape.width
    if width is None:
        return INT64_MIN, INT64_MAX, None, 8
    return width.least, width.greatest, width, _BYTES_OF.get(width.__name__, 8)


def _message(shape: Shape, depth: int, maker: _Maker) -> tuple[object, ...]:
    kind: Any = _bare(shape)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if any(field.kw_only for field in fields.values()) or len(shape.members) != len(
        [field for field in fields.values() if field.init]
    ):
        raise NoNativeForm
    members = []
    for member in shape.members:
        try:
            name = member.name.encode("latin-1")
        except UnicodeEncodeError as error:
            raise NoNativeForm from error
        part = _form(member.shape, depth, maker)
        default, factory = (None, None)
        if not member.is_required:
            default, factory = maker.default(member, fields[member.attribute])
        members.append((name, part, member.is_required, default, factory))
    return type_name(kind), kind, members


def _bare(shape: Shape) -> object:
    """The annotation of a shape without null."""
    if not shape.is_nullable:
        return shape.annotation
    rest = [each for each in getattr(shape.annotation, "__args__", ()) if each is not type(None)]
    return rest[0] if len(rest) == 1 else shape.annotation


def _enum(shape: Shape) -> type[Enum]:
    kinds: Any = getattr(shape.annotation, "__args__", (shape.annotation,))
    found: type[Enum]
    (found,) = (each for each in kinds if isinstance(each, type) and issubclass(each, Enum))
    return found


def _uuid(value: int) -> uuid.UUID:
    return uuid.UUID(int=value)


_OBJECTS: Final[Any] = (
    None if NATIVE is None else NATIVE.ObjectReader(python_time, _uuid, Typed, TypeLiteral, False)
)
