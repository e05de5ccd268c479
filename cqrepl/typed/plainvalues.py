"""Values of JSON, CSV and Arrow as values of a message: the way back from an export.

shape               JSON                     a cell of CSV
integer, float      a number                 digits
decimal             a text or a number       digits
boolean             true, false              true, false
bytes               Base64                   Base64
date, time, moment  ISO 8601                 ISO 8601
enum                the name                 the name
message, list, map  an object, an array      JSON
null                null                     an empty cell, but for a text that may not be null
"""

import base64
import datetime
import json
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from wire.objects.annotated import described
from wire.objects.shapes import Shape, ShapeMember

_IN_JSON: Final = frozenset({"message", "list", "map", "object"})


class NoPlainValue(ValueError):
    """A value that does not fit the class; says the path to it."""


def message_of(shape: Shape, values: Mapping[str, object], *, is_text: bool = False) -> Any:
    """A message of this shape from values under the names of its fields; those of others are left
    out.

    Args:
        is_text: they are cells of CSV.

    Raises:
        NoPlainValue: a field does not fit, or has no default and no value.
    """
    return _message(shape, values, "", is_text=is_text)


def _message(shape: Shape, values: object, where: str, *, is_text: bool) -> Any:
    if not isinstance(values, Mapping):
        raise NoPlainValue(f"{where}: an object expected, {values!r:.40} came")
    assert isinstance(shape.annotation, type) or shape.is_nullable
    found = {}
    for member in shape.members:
        path = f"{where}.{member.name}".removeprefix(".")
        value = values.get(member.name)
        is_given = member.name in values and not (is_text and value == "" and _is_absent(member))
        if is_given:
            found[member.attribute] = _value(member.shape, value, path, is_text=is_text)
        elif member.is_required:
            raise NoPlainValue(f"{path}: {described(member.shape.annotation)} expected, none came")
    return class_of(shape)(**found)


def _is_absent(member: ShapeMember) -> bool:
    """True where an empty cell says that there is no such field."""
    return not (member.is_required and member.shape.kind == "text")


def class_of(shape: Shape) -> Any:
    """The class of a message that may be null."""
    annotation: Any = shape.annotation
    if not shape.is_nullable:
        return annotation
    return next(each for each in annotation.__args__ if each is not type(None))


def value_of(shape: Shape, value: object, path: str) -> object:
    """A value of Arrow or JSON as one of this shape.

    Raises:
        NoPlainValue: it does not fit; the error names it by this path.
    """
    return _value(shape, value, path, is_text=False)


def _value(shape: Shape, value: object, path: str, *, is_text: bool) -> object:
    if value is None or (is_text and value == "" and shape.is_nullable):
        if shape.is_nullable or shape.kind == "object":
            return None
        raise NoPlainValue(f"{path}: {described(shape.annotation)} expected, null came")
    try:
        if is_text and shape.kind in _IN_JSON:
            value = json.loads(str(value))
        return _converted(shape, value, path, is_text=is_text)
    except NoPlainValue:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        wanted = described(shape.annotation)
        raise NoPlainValue(f"{path}: {wanted} expected, {value!r:.40} came") from error


def _converted(shape: Shape, value: object, path: str, *, is_text: bool) -> object:
    if shape.kind == "message":
        return _message(shape, value, path, is_text=False)
    if shape.kind == "list" and shape.item is not None:
        if not isinstance(value, list):
            raise TypeError
        item = shape.item
        return [_value(item, each, f"{path}[{at}]", is_text=False) for at, each in enumerate(value)]
    if shape.kind == "map" and shape.item is not None:
        # Arrow has a list of pairs
        pairs: Any = value.items() if isinstance(value, Mapping) else value
        item = shape.item
        return {key: _value(item, each, f"{path}[{key!r}]", is_text=False) for key, each in pairs}
    if shape.kind in ("enum", "open_enum"):
        return _member(shape, value)
    if shape.kind == "integer":
        width = int if shape.width is None else shape.width
        return width(_whole(value, is_text=is_text))
    return _LEAVES[shape.kind](value, is_text)


def _member(shape: Shape, value: object) -> object:
    kinds: Any = getattr(shape.annotation, "__args__", (shape.annotation,))
    kind = next(each for each in kinds if isinstance(each, type) and issubclass(each, Enum))
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    if shape.kind == "enum" or not isinstance(value, str):
        raise ValueError
    return value


def _whole(value: object, *, is_text: bool) -> int:
    if is_text and isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _number(value: object, is_text: bool) -> float:
    if value in ("NaN", "Infinity", "-Infinity") or (is_text and isinstance(value, str)):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _boolean(value: object, is_text: bool) -> bool:
    if is_text and value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: object, is_text: bool) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _bytes(value: object, is_text: bool) -> bytes:
    if isinstance(value, Mapping):
        value = value["!!binary"]
    return value if isinstance(value, bytes) else base64.b64decode(str(value), validate=True)


def _parsed(kind: Any) -> Callable[[object, bool], object]:
    """A reader of texts in ISO 8601; what is of this type already stays."""

    def read(value: object, is_text: bool) -> object:
        if isinstance(value, kind):
            return value
        if not isinstance(value, str):
            raise TypeError
        return kind.fromisoformat(value)

    return read


def _moment(value: object, is_text: bool) -> datetime.datetime:
    """A date and time; the zone of a column of Arrow is no region of its values, which are UTC."""
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is None else value.astimezone(datetime.UTC)
    return datetime.datetime.fromisoformat(_text(value, is_text))


def _decimal(value: object, is_text: bool) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError
    if not isinstance(value, Decimal):
        return Decimal(str(value))
    # a column of Arrow has one scale: the zeros that it adds say nothing
    whole = value.to_integral_value()
    return whole if whole == value else value.normalize()


def _uuid(value: object, is_text: bool) -> uuid.UUID:
    return uuid.UUID(_text(value, is_text))


_LEAVES: Final[dict[str, Callable[[Any, bool], object]]] = {
    "float": _number,
    "float32": _number,
    "decimal": _decimal,
    "text": _text,
    "boolean": _boolean,
    "bytes": _bytes,
    "date": _parsed(datetime.date),
    "time": _parsed(datetime.time),
    "moment": _moment,
    "uuid": _uuid,
    "object": lambda value, _: value,
}
