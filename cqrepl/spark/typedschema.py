"""A class whose fields are the columns of a table, as text that travels. Knows no Spark.

A class that was made of JSON cannot be pickled, so each task makes it anew of its text. A field
keeps its name; a column of queues that is called so, in upper or lower case, has a `_` before it
then, as Spark takes both for one.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cqrepl.typed.schemafile import SchemaError, chosen_class, classes_of, json_schema
from wire.objects.object_writer import given_event
from wire.objects.shapes import Shape, ShapeMember, shape_of

COLUMNS: Final = (
    "queue", "index", "cycle", "sequence", "timestamp", "file", "position", "length", "hash",
    "payload",
)  # fmt: skip
MISFIT: Final = "_misfit"
ERROR: Final = "_error"


@dataclass(frozen=True, slots=True)
class TypedSchema:
    """A class, as text of JSON Schema that travels; of one method."""

    text: str
    event: str | None

    @property
    def kind(self) -> Any:
        """The dataclass.

        Raises:
            SchemaError: the text is none, or of several classes.
        """
        return _kind_of(self.text, self.event)

    @property
    def shape(self) -> Shape:
        """The shape of the class."""
        return _shape_of(self.text, self.event)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns there are: fields, those of queues, and the two of what does not fit."""
        return (*self._fields(), *(self.name_of(each) for each in COLUMNS), MISFIT, ERROR)

    @property
    def usual(self) -> tuple[str, ...]:
        """The columns where none are asked for."""
        ends = (MISFIT, ERROR)
        return (self.name_of("queue"), self.name_of("index"), *self._fields(), *ends)

    def member(self, name: str) -> ShapeMember | None:
        """The field that a column is; None where it is none."""
        return next((each for each in self.shape.members if each.name == name), None)

    def column_of(self, name: str) -> str | None:
        """The column of queues that a column is; None where it is none."""
        return next((each for each in COLUMNS if self.name_of(each) == name), None)

    def name_of(self, column: str) -> str:
        """The name of a column of queues beside the fields."""
        lowered = {name.lower() for name in self._fields()}
        return f"_{column}" if column in lowered else column

    def _fields(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.shape.members)


@lru_cache(maxsize=16)
def _kind_of(text: str, event: str | None) -> type:
    try:
        kinds = classes_of(text, "schema")
    except TypeError as error:
        raise SchemaError(f"schema: {error}") from error
    kind = chosen_class(kinds, event)
    if kind is None:
        known = ", ".join(given_event(each) or each.__name__ for each in kinds)
        raise SchemaError(
            f"one method of the schema expected, {event or 'none'} came; it has {known}"
        )
    return kind


@lru_cache(maxsize=16)
def _shape_of(text: str, event: str | None) -> Shape:
    return shape_of(_kind_of(text, event))


def schema_text(*kinds: type) -> str:
    """Dataclasses as the option `schema` takes them; several have a `wire_event` each.

    Raises:
        TypeError: one cannot be read.
    """
    return json.dumps(json_schema(*kinds))
