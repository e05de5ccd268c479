"""Classes of messages as Python's source, with the share of documents beside optional fields."""

import dataclasses
import json
import typing
from enum import Enum
from typing import Final

from cqrepl.typed.documentsample import SHARE
from wire.objects.object_writer import given_event
from wire.objects.shapes import Shape, ShapeMember, shape_of

_NAMES: Final = {
    "float": "float",
    "float32": "wire.Float32",
    "decimal": "Decimal",
    "text": "str",
    "boolean": "bool",
    "bytes": "bytes",
    "date": "datetime.date",
    "time": "datetime.time",
    "moment": "datetime.datetime",
    "uuid": "uuid.UUID",
    "object": "Any",
}
# what stands in the source -> the line that it needs, in the order of lines
_IMPORTS: Final = (
    ("datetime.", "import datetime"),
    ("uuid.", "import uuid"),
    ("@dataclass", "from dataclasses import dataclass"),
    ("field(", "from dataclasses import field"),
    ("Decimal", "from decimal import Decimal"),
    ("(Enum)", "from enum import Enum"),
)
_TYPING: Final = ("Annotated", "Any", "ClassVar")


def source_of(kinds: tuple[type, ...]) -> str:
    """The source of a module that has these classes, and those within them; empty for none."""
    source = _ClassSource()
    for kind in kinds:
        source.write(shape_of(kind), given_event(kind))
    if not source.classes:
        return ""
    body = "\n\n\n".join(source.classes) + "\n"
    lines = [line for mark, line in _IMPORTS if mark in body]
    names = [name for name in _TYPING if name in source.used]
    lines += [f"from typing import {', '.join(names)}"] if names else []
    lines += ["", "import wire"] if "wire." in body else []
    return "\n".join(lines) + f"\n\n\n{body}"


class _ClassSource:
    """Writes classes, those within others first; one class once."""

    def __init__(self) -> None:
        self.classes: list[str] = []
        self.used: set[str] = set()
        self._titles: dict[object, str] = {}

    def write(self, shape: Shape, event: str | None = None) -> str:
        """Writes a class; the name that it has."""
        kind = shape.annotation
        assert isinstance(kind, type)
        if kind in self._titles:
            return self._titles[kind]
        title = kind.__name__
        while title in self._titles.values():
            title += "_"
        self._titles[kind] = title
        shares = {each.name: each.metadata.get(SHARE) for each in dataclasses.fields(kind)}
        fields = [self._field(each, shares[each.attribute]) for each in shape.members]
        lines = ["@dataclass", f"class {title}:"]
        if event is not None:
            self.used.add("ClassVar")
            lines.append(f"    wire_event: ClassVar[str] = {json.dumps(event)}")
        self.classes.append("\n".join([*lines, *fields]))
        return title

    def _field(self, member: ShapeMember, share: float | None) -> str:
        name = self._annotation(member.shape)
        if member.name != member.attribute:
            self.used.add("Annotated")
            name = f"Annotated[{name}, wire.Name({json.dumps(member.name)})]"
        line = f"    {member.attribute}: {name}"
        if not member.is_required:
            default = member.default
            if isinstance(default, Enum):
                line += f" = {type(default).__name__}.{default.name}"
            elif isinstance(default, list | dict):
                line += f" = field(default_factory=lambda: {default!r})"
            else:
                line += f" = {default!r}"
        return line if share is None else f"{line}  # {100 * share:.3g} %"

    def _annotation(self, shape: Shape) -> str:
        name = self._bare(shape)
        return f"{name} | None" if shape.is_nullable else name

    def _bare(self, shape: Shape) -> str:
        if shape.kind == "message":
            inner = dataclasses.replace(shape, annotation=_class_in(shape.annotation))
            return self.write(inner)
        if shape.kind in ("enum", "open_enum"):
            name = self._enum(_class_in(shape.annotation))
            return name if shape.kind == "enum" else f"{name} | str"
        if shape.kind == "list" and shape.item is not None:
            return f"list[{self._annotation(shape.item)}]"
        if shape.kind == "map" and shape.item is not None and shape.key is not None:
            return f"dict[{self._annotation(shape.key)}, {self._annotation(shape.item)}]"
        if shape.kind == "integer":
            return "int" if shape.width is None else f"wire.{shape.width.__name__}"
        if shape.kind == "object":
            self.used.add("Any")
        return _NAMES[shape.kind]

    def _enum(self, kind: type) -> str:
        if kind not in self._titles:
            self._titles[kind] = kind.__name__
            members = [f"    {name} = {json.dumps(name)}" for name in vars(kind)["_member_names_"]]
            self.classes.append("\n".join([f"class {kind.__name__}(Enum):", *members]))
        return self._titles[kind]


def _class_in(annotation: object) -> type:
    """The class of an annotation that may hold null or text besides."""
    if isinstance(annotation, type):
        return annotation
    kinds = [each for each in typing.get_args(annotation) if isinstance(each, type)]
    return next(each for each in kinds if each not in (type(None), str))
