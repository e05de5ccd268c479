"""The shape of a message: its fields, their kinds and what is in them, as plain values.

All that reads messages in another way than into objects starts here: columns of Arrow, a schema as
JSON, the native codec. A shape says the same as the annotations that it is made from.

    kind                 annotation
    integer              int; Int8 ... UInt32, Int64, Hex64, whose name is `width`
    float, float32       float, Float64; Float32
    decimal, text, boolean, bytes      Decimal, str, bool, bytes
    date, time, moment, uuid           datetime.date, .time, .datetime; uuid.UUID
    enum; open_enum      an Enum; an Enum | str; `names` has its members
    message              a dataclass; `members` has its fields
    list, map            list[T], tuple[T, ...]; dict[K, V]: `item`, and `key`
    object               every other
"""

import dataclasses
import datetime
import types
import typing
import uuid
from decimal import Decimal
from enum import Enum
from typing import Final

from wire.objects.annotated import name_of
from wire.objects.values import (
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

DEPTH_MAX: Final = 64
_KINDS: Final[dict[object, str]] = {
    int: "integer",
    bool: "boolean",
    float: "float",
    Float64: "float",
    Float32: "float32",
    Decimal: "decimal",
    str: "text",
    bytes: "bytes",
    datetime.date: "date",
    datetime.time: "time",
    datetime.datetime: "moment",
    uuid.UUID: "uuid",
    **dict.fromkeys((Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, Hex64), "integer"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The kind of a value, and what is in it."""

    kind: str
    annotation: object
    is_nullable: bool = False
    width: type[Whole] | None = None
    names: tuple[str, ...] = ()
    members: "tuple[ShapeMember, ...]" = ()
    item: "Shape | None" = None
    key: "Shape | None" = None


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeMember:
    """A field: the attribute, the name on the wire, its shape; `default` where it is not
    required."""

    attribute: str
    name: str
    shape: Shape
    is_required: bool
    default: object = None


def shape_of(annotation: object, outer: tuple[object, ...] = ()) -> Shape:
    """The shape of a dataclass, or of any other annotation.

    Raises:
        TypeError: it nests deeper than `DEPTH_MAX`, or in itself.
    """
    if len(outer) > DEPTH_MAX or annotation in outer:
        raise TypeError(f"a class that does not hold itself was expected, {annotation} came")
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    kind = _KINDS.get(annotation) if isinstance(annotation, type) else None
    if kind is not None:
        if isinstance(annotation, type) and issubclass(annotation, Whole):
            return Shape(kind, annotation, width=annotation)
        return Shape(kind, annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(annotation, arguments, outer)
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return Shape("list", annotation, item=shape_of(arguments[0], (*outer, annotation)))
    if origin is dict:
        key, item = (shape_of(each, (*outer, annotation)) for each in arguments)
        return Shape("map", annotation, item=item, key=key)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return Shape("enum", annotation, names=tuple(annotation.__members__))
    if isinstance(annotation, type) and _is_message(annotation):
        return Shape("message", annotation, members=_members(annotation, outer))
    return Shape("object", annotation)


def _is_message(annotation: type) -> bool:
    is_own = annotation.__module__ == Int8.__module__  # Typed and its like are one value each
    return dataclasses.is_dataclass(annotation) and not is_own


def _union(annotation: object, arguments: tuple[object, ...], outer: tuple[object, ...]) -> Shape:
    rest = [each for each in arguments if each is not type(None)]
    is_nullable = len(rest) < len(arguments)
    if len(rest) == 1:
        return dataclasses.replace(
            shape_of(rest[0], outer), annotation=annotation, is_nullable=is_nullable
        )
    enums = [each for each in rest if isinstance(each, type) and issubclass(each, Enum)]
    names = tuple(enums[0].__members__) if enums else ()
    return Shape("open_enum" if enums else "object", annotation, is_nullable, names=names)


def _members(kind: type, outer: tuple[object, ...]) -> tuple[ShapeMember, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    found = []
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        hint, default = hints[field.name], field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        is_required = default is dataclasses.MISSING
        found.append(
            ShapeMember(
                field.name,
                name_of(hint, field.name),
                shape_of(hint, (*outer, kind)),
                is_required,
                None if is_required else default,
            )
        )
    return tuple(found)
