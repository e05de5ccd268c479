"""Schemas as files: a dataclass as JSON Schema, and back.

Theory of operation. A schema is a dataclass, wherever it comes from: Python's annotations say how a
field is read. As a file it is JSON Schema (draft 2020-12), of which these words are used, and a
word of our own for the method that a message is the argument of:

    {"title": "Order", "x-event": "order", "type": "object",
     "properties": {"px": {"type": "number"}, "id": {"type": "integer", "format": "int32"},
                    "day": {"type": ["string", "null"], "format": "date"}},
     "required": ["px"]}

    integer   format int8 ... uint32, int64, hex64; without one any whole number
    number    format float32; without one a double
    string    format decimal, date, time, date-time, uuid; contentEncoding base64: bytes
    enum      texts; in anyOf with {"type": "string"} for one that may get members
    object    properties and required, or additionalProperties; array: items
    null      in `type`, or as one of anyOf
    {}        any value

Several messages are an object with "oneOf". A queue's own schema is `schema.json` in its directory.
"""

import dataclasses
import datetime
import json
import types
import uuid
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, cast

from cqrepl.queue.format.errors import QueueError
from wire.objects.annotated import Name
from wire.objects.object_writer import given_event
from wire.objects.shapes import Shape, ShapeMember, shape_of
from wire.objects.values import (
    Float32,
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

KEPT_NAME: Final = "schema.json"
EVENT: Final = "x-event"
SIZE_MAX: Final = 1 << 20
DEPTH_MAX: Final = 32
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_WIDTHS: Final[dict[str, type[Whole]]] = {
    each.__name__.lower(): each
    for each in (Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, Hex64)
}
_FORMATS: Final[dict[str, type]] = {
    "decimal": Decimal,
    "date": datetime.date,
    "time": datetime.time,
    "date-time": datetime.datetime,
    "uuid": uuid.UUID,
}
_OF_KIND: Final[dict[str, dict[str, object]]] = {
    "float": {"type": "number"},
    "float32": {"type": "number", "format": "float32"},
    "decimal": {"type": "string", "format": "decimal"},
    "text": {"type": "string"},
    "boolean": {"type": "boolean"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "moment": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "object": {},
}


class SchemaError(QueueError):
    """A file that is no schema; the message says where."""


def json_schema(*kinds: type) -> dict[str, object]:
    """The classes as one JSON Schema."""
    found = [_message_json(kind) for kind in kinds]
    return {"$schema": _DRAFT} | (found[0] if len(found) == 1 else {"oneOf": found})


def classes_of(text: str, name: str) -> tuple[type, ...]:
    """The dataclasses of a JSON Schema.

    Args:
        name: of the file, for errors.

    Raises:
        SchemaError: it is none of the kind described above.
    """
    try:
        if len(text) > SIZE_MAX:
            raise ValueError(f"at most {SIZE_MAX} characters expected")
        given = json.loads(text)
        if not isinstance(given, dict):
            raise ValueError(f"an object expected, got {given!r:.40}")
        each = given.get("oneOf", [given])
        if not isinstance(each, list) or not each:
            raise ValueError("oneOf: a list of schemas expected")
        return tuple(_class_of(one, "Document", "", 0) for one in each)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{name}: {error}") from error


def read_schema(path: Path) -> tuple[type, ...]:
    """The dataclasses of a file.

    Raises:
        SchemaError, OSError: it is no schema, or cannot be read.
    """
    try:
        return classes_of(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path}: UTF-8 expected: {error.reason}") from error


def kept_schema(queue_dir: Path) -> tuple[type, ...]:
    """The classes of the schema that a queue keeps; none where it keeps no schema.

    Raises:
        SchemaError, OSError: as `read_schema`.
    """
    path = queue_dir / KEPT_NAME
    return read_schema(path) if path.is_file() else ()


def kept_class(queue_dir: Path) -> Any:
    """The one class of the schema that a queue keeps.

    Raises:
        ValueError: it keeps none, or one of several classes.
        SchemaError, OSError: as `read_schema`.
    """
    kinds = kept_schema(queue_dir)
    if len(kinds) != 1:
        known = ", ".join(given_event(each) or each.__name__ for each in kinds) or "no schema"
        raise ValueError(f"a class, or one in {queue_dir / KEPT_NAME}, was expected, {known} came")
    return kinds[0]


def chosen_class(kinds: tuple[type, ...], event: str | None) -> type | None:
    """The class of an event; without one the only class there is. None where that says none."""
    found = [kind for kind in kinds if event is None or given_event(kind) == event]
    return found[0] if len(found) == 1 else None


def paths_of(kinds: tuple[type, ...]) -> tuple[tuple[str, ...], ...]:
    """Paths of all fields of the only class, as columns of a table; none where there are more."""
    if len(kinds) != 1:
        return ()
    event = given_event(kinds[0])
    head = () if event is None else (event,)
    return tuple(head + path for path in _leaves(shape_of(kinds[0])))


def _leaves(shape: Shape) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for member in shape.members:
        inner = _leaves(member.shape) if member.shape.kind == "message" else []
        found += [(member.name, *path) for path in inner] or [(member.name,)]
    return found


# ---------------------------------------------------------------- class -> JSON


def _message_json(kind: type) -> dict[str, object]:
    event = given_event(kind)
    mark: dict[str, object] = {} if event is None else {EVENT: event}
    return {"title": kind.__name__} | mark | _shape_json(shape_of(kind))


def _shape_json(shape: Shape) -> dict[str, object]:
    found = _bare_json(shape)
    if not shape.is_nullable or not found:
        return found
    if isinstance(found.get("type"), str):
        return found | {"type": [found["type"], "null"]}
    return {"anyOf": [*cast("list[object]", found.get("anyOf", [found])), {"type": "null"}]}


def _bare_json(shape: Shape) -> dict[str, object]:
    if shape.kind == "integer":
        whole: dict[str, object] = {"type": "integer"}
        width = shape.width
        return whole if width is None else whole | {"format": width.__name__.lower()}
    if shape.kind == "enum":
        return {"enum": list(shape.names)}
    if shape.kind == "open_enum":
        return {"anyOf": [{"enum": list(shape.names)}, {"type": "string"}]}
    if shape.kind == "list" and shape.item is not None:
        return {"type": "array", "items": _shape_json(shape.item)}
    if shape.kind == "map" and shape.item is not None:
        return {"type": "object", "additionalProperties": _shape_json(shape.item)}
    if shape.kind == "message":
        required = [each.name for each in shape.members if each.is_required]
        properties = {each.name: _member_json(each) for each in shape.members}
        return {"type": "object", "properties": properties, "required": required}
    return dict(_OF_KIND[shape.kind])


def _member_json(member: ShapeMember) -> dict[str, object]:
    """With the default, where JSON has it and it is not the usual one of an optional field."""
    found = _shape_json(member.shape)
    default = member.default
    if isinstance(default, Enum):
        default = default.name
    elif isinstance(default, Decimal):
        default = str(default)
    has_one = not member.is_required and isinstance(default, bool | int | float | str)
    return found | {"default": default} if has_one else found


# ---------------------------------------------------------------- JSON -> class


def _class_of(given: object, name: str, where: str, depth: int) -> type:
    if not isinstance(given, dict):
        raise ValueError(f"{where or 'the schema'}: an object expected, got {given!r:.40}")
    if depth > DEPTH_MAX:
        raise ValueError(f"{where}: at most {DEPTH_MAX} nested objects expected")
    properties, required = given.get("properties"), given.get("required", [])
    if not isinstance(properties, dict) or not properties:
        raise ValueError(f"{where or 'the schema'}: properties expected, got {properties!r:.40}")
    if not isinstance(required, list) or set(map(str, required)) - set(properties):
        raise ValueError(f"{where or 'the schema'}: required: names of properties expected")
    title = str(given.get("title", name))
    title = title if title.isidentifier() else name
    fields: list[Any] = []
    for at, (key, value) in enumerate(properties.items()):
        there = f"{where}.{key}".removeprefix(".")
        annotation = _annotation(value, f"{title}_{at}", there, depth + 1)
        fields.append(_field(at, key, annotation, value, is_required=key in required))
    fields.sort(key=lambda field: len(field) == 3)  # a field without a default comes first
    event, namespace = given.get(EVENT), {}
    if event is not None:
        if not isinstance(event, str) or not event:
            raise ValueError(f"{EVENT}: the name of a method expected, got {event!r:.40}")
        namespace = {"wire_event": event, "__annotations__": {"wire_event": ClassVar[str]}}
    return dataclasses.make_dataclass(title, fields, namespace=namespace)


def _field(at: int, key: str, annotation: Any, value: object, *, is_required: bool) -> Any:
    """A field as `make_dataclass` takes it. A name that Python does not have stands beside it."""
    is_plain = key.isidentifier() and not key.startswith("_") and key not in _RESERVED
    if not is_plain:
        annotation = Annotated[annotation, Name(key)]
    attribute = key if is_plain else f"field_{at}"
    if is_required:
        return attribute, annotation
    if isinstance(value, dict) and "default" in value:
        return attribute, annotation, dataclasses.field(default=_default(annotation, value))
    return attribute, _or_none(annotation), dataclasses.field(default=None)


_RESERVED: Final = frozenset({"None", "True", "False", "and", "as", "assert", "async", "await",
    "break", "class", "continue", "def", "del", "elif", "else", "except", "finally", "for", "from",
    "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
    "return", "try", "while", "with", "yield", "wire_event", "wire_type"})  # fmt: skip


def _default(annotation: Any, value: Mapping[str, object]) -> object:
    """The default that a schema says, as the type of the field has it."""
    default = value["default"]
    if isinstance(default, list | dict):
        raise ValueError("default: a text, a number, true, false or null expected")
    shape = shape_of(annotation)
    if shape.kind == "enum" and isinstance(default, str) and isinstance(shape.annotation, type):
        return vars(shape.annotation)["_member_map_"].get(default, default)
    if shape.kind == "decimal" and isinstance(default, str):
        return Decimal(default)
    return default


def _or_none(annotation: Any) -> Any:
    return annotation if shape_of(annotation).is_nullable else annotation | None


def _annotation(given: object, name: str, where: str, depth: int) -> Any:
    if given is True or given == {}:
        return Any
    if not isinstance(given, dict):
        raise ValueError(f"{where}: a schema expected, got {given!r:.40}")
    if "anyOf" in given:
        return _any_of(given["anyOf"], name, where, depth)
    kinds = given.get("type")
    if isinstance(kinds, list):
        rest = [each for each in kinds if each != "null"]
        if len(rest) != 1:
            raise ValueError(f"{where}: one type, or one and null expected, got {kinds}")
        inner = _typed(given, rest[0], name, where, depth)
        return inner | None if len(rest) < len(kinds) and inner is not Any else inner
    return _typed(given, kinds, name, where, depth)


def _any_of(given: object, name: str, where: str, depth: int) -> Any:
    if not isinstance(given, list) or not given:
        raise ValueError(f"{where}: anyOf: a list of schemas expected")
    rest = [each for each in given if each != {"type": "null"}]
    kinds = [_annotation(each, f"{name}_{at}", where, depth) for at, each in enumerate(rest)]
    found: Any = kinds[0] if kinds else None
    for kind in kinds[1:]:
        found = found | kind
    found = found | None if len(rest) < len(given) else found
    if shape_of(found).kind == "object":
        raise ValueError(f"{where}: anyOf: a schema and null, or an enum and a string expected")
    return found


def _typed(given: Mapping[str, object], kind: object, name: str, where: str, depth: int) -> Any:
    form = given.get("format")
    if "enum" in given:
        names = given["enum"]
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise ValueError(f"{where}: enum: texts expected, got {names!r:.40}")
        return Enum(name, {each: each for each in names})
    if kind == "integer":
        return int if form is None else _known(_WIDTHS, form, where)
    if kind == "number":
        return Float32 if form == "float32" else float
    if kind == "boolean":
        return bool
    if kind == "string":
        if given.get("contentEncoding") == "base64":
            return bytes
        return str if form is None else _known(_FORMATS, form, where)
    if kind == "array":
        item = _annotation(given.get("items", {}), name, f"{where}[]", depth)
        return types.GenericAlias(list, (item,))
    if kind == "object" and "additionalProperties" in given:
        item = _annotation(given["additionalProperties"], name, f"{where}{{}}", depth)
        return types.GenericAlias(dict, (str, item))
    if kind == "object":
        return _class_of(given, name, where, depth)
    raise ValueError(f"{where}: a type of JSON expected, got {kind!r:.40}")


def _known(table: Mapping[str, type], form: object, where: str) -> type:
    found = table.get(str(form))
    if found is None:
        known = ", ".join(sorted(table))
        raise ValueError(f"{where}: format: one of {known} expected, got {form!r:.40}")
    return found
