"""The schema that a sample of documents suggests.

Theory of operation. Each document adds to a count for each field: in how many it is, which types
its values have, and the same for the fields within it. Documents that are calls of a method are
kept apart by the method. A field of all documents, which is never null, is required; one whose
values are whole numbers here and fractions there is a double, as Java writes 100.0 as a whole
number; one of several types is any value. Which texts mean a decimal, a date or a constant nothing
in them tells: they are texts.
"""

import datetime
import keyword
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Final

from cqrepl.typed.documentfields import fields_of
from wire.codes import Code
from wire.errors import WireError
from wire.objects.annotated import Name, skip_history
from wire.objects.object_reader import HISTORY_NAME
from wire.objects.values import Typed
from wire.reader import Reader

FIELDS_MAX: Final = 1000  # of one object: beyond, it is a map of names to values
SHARE: Final = "share"  # in a field's metadata: of documents that have it, 0 to 1
_DEPTH_MAX: Final = 32
_EMPTY: Final = "empty"
_TYPES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    datetime.datetime: "datetime.datetime",
    datetime.date: "datetime.date",
    datetime.time: "datetime.time",
    uuid.UUID: "uuid.UUID",
}
_CLASSES: Final[dict[str, Any]] = {name: kind for kind, name in _TYPES.items()}


@dataclass(slots=True)
class FieldCounts:
    """The values that a field had: how many, of which types, and what was in them."""

    count: int = 0
    types: Counter[str] = field(default_factory=Counter)
    fields: dict[str, "FieldCounts"] = field(default_factory=dict)
    objects: int = 0
    items: "FieldCounts | None" = None
    title: str | None = None  # the type name in front of an object

    def add(self, value: object, depth: int = 0) -> None:
        """Counts one value."""
        self.count += 1
        if isinstance(value, Typed):
            self.title = self.title or value.name
            value = value.value
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            self.types["object"] += 1
            self.add_fields(value, depth)
        elif value in ([], {}):
            self.types[_EMPTY] += 1
        elif isinstance(value, list) and depth < _DEPTH_MAX:
            self.types["list"] += 1
            self.items = self.items or FieldCounts()
            for each in value:
                self.items.add(each, depth + 1)
        elif value is None:
            self.types["null"] += 1
        else:
            self.types[_TYPES.get(type(value), "Any")] += 1

    def add_fields(self, fields: Mapping[Any, object], depth: int = 0) -> None:
        """Counts the fields of one object."""
        self.objects += 1
        for name, value in fields.items():
            if isinstance(name, str) and (name in self.fields or len(self.fields) < FIELDS_MAX):
                self.fields.setdefault(name, FieldCounts()).add(value, depth + 1)


class DocumentSample:
    """Documents that were looked at: fields by the method of a call, None for other documents."""

    def __init__(self) -> None:
        self.documents = 0
        self.others = 0  # texts, single values, bytes without meaning
        self.events: dict[str | None, FieldCounts] = {}

    def add(self, data: bytes | memoryview) -> None:
        """Looks at one excerpt."""
        try:
            fields = fields_of(data)
        except WireError:
            fields = None
        if not fields:
            self.others += 1
            return
        self.documents += 1
        event = _event_of(data)
        rest = {name: value for name, value in fields.items() if name != HISTORY_NAME}
        if event is not None and set(rest) == {event}:
            seen = self.events.setdefault(event, FieldCounts())
            seen.add(rest[event])
        else:
            self.events.setdefault(None, FieldCounts(types=Counter(object=0))).add_fields(fields)

    def classes(self) -> tuple[type, ...]:
        """A dataclass for each method whose argument is an object, and one for all else."""
        found = []
        for event, seen in self.events.items():
            if seen.fields:
                found.append(_class(seen, _class_name(seen.title or event or "Document"), event))
        return tuple(found)


def _event_of(data: bytes | memoryview) -> str | None:
    """The method that a document calls, whose argument is an object."""
    if not data or data[0] == ord("{"):
        return None
    reader = Reader(memoryview(data))
    skip_history(reader)
    if reader.peek_code() != Code.EVENT_NAME:
        return None
    return reader.read_name()


def _class_name(name: str) -> str:
    word = name.rpartition(".")[2].rpartition("$")[2]
    word = "".join(each if each.isalnum() else "_" for each in word)
    word = word[:1].upper() + word[1:]
    return word if word.isidentifier() and not keyword.iskeyword(word) else f"Type_{word}"


def annotation_of(seen: FieldCounts, name: str) -> Any:
    """The annotation that fits all values, null apart."""
    types = {each for each in seen.types if each != "null" and seen.types[each]}
    if _EMPTY in types and len(types) > 1:
        types -= {_EMPTY}  # an empty block is a list or an object
    if types == {_EMPTY}:
        return list[Any]
    if types == {"object"} and len(seen.fields) < FIELDS_MAX:
        return _class(seen, _class_name(seen.title or name), None)
    if types == {"object"}:
        return dict[str, Any]
    if types == {"list"}:
        items = seen.items or FieldCounts()
        inner = annotation_of(items, name) if items.count else Any
        is_nullable = bool(items.types["null"]) and inner is not Any
        return GenericAlias(list, (inner | None if is_nullable else inner,))
    if types <= {"int", "float"} and types:
        return float if "float" in types else int
    return _CLASSES.get(next(iter(types)), Any) if len(types) == 1 else Any


def _class(seen: FieldCounts, title: str, event: str | None) -> type:
    fields: list[Any] = []
    for at, (name, inner) in enumerate(seen.fields.items()):
        annotation = annotation_of(inner, name)
        is_required = inner.count == seen.objects and not inner.types["null"]
        if not is_required and annotation is not Any:
            annotation = annotation | None
        share = (inner.count - inner.types["null"]) / max(1, seen.objects)
        is_plain = name.isidentifier() and not keyword.iskeyword(name) and name[0] != "_"
        attribute = name if is_plain else f"field_{at}"
        if not is_plain:
            annotation = Annotated[annotation, Name(name)]
        optional = field(default=None, metadata={SHARE: share})
        fields.append((attribute, annotation) if is_required else (attribute, annotation, optional))
    fields.sort(key=lambda each: len(each))
    namespace: dict[str, object] = {}
    if event is not None:
        namespace = {"wire_event": event, "__annotations__": {"wire_event": ClassVar[str]}}
    return make_dataclass(title, fields, namespace=namespace)
