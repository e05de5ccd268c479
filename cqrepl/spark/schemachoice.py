"""The schema of a table: the class whose fields are columns, and where it is told. Knows no Spark.

    schema=orders.json          a JSON Schema in a file, which the driver reads
    schema={"title": ...}       one as text, as `schema_text` makes it of a dataclass
    schema=none                 no fields, whatever the queue keeps
    (none of these)             `schema.json` of the queues, if all keep the same one, and neither
                                `payload` nor only columns of queues were asked for

What was told travels to the tasks as text (`typedschema`).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cqrepl.spark.queuefinder import Finder
from cqrepl.spark.tableoptions import (
    Given,
    OptionError,
    ReadOptions,
    finding_of,
    given_for_reading,
    local_path,
    read_options,
)
from cqrepl.spark.typedschema import COLUMNS, TypedSchema
from cqrepl.typed.schemafile import KEPT_NAME, SIZE_MAX, SchemaError

NONE: Final = "none"
_EXPECTED: Final = "a file of JSON Schema, its text, or none"


def options_with_schema(
    options: Mapping[str, str], asked: Iterable[str] | None = None
) -> ReadOptions:
    """The options of reading, with the schema that they tell, or that the queues keep.

    Args:
        asked: names of the columns that Spark has planned already.

    Raises:
        OptionError: an option cannot be used, or the schema is none.
    """
    given = given_for_reading(options)
    return read_options(options, _schema_of(given, None if asked is None else tuple(asked)))


def kept_options(given: Mapping[str, str], options: ReadOptions) -> Mapping[str, str]:
    """The options that a table of the catalog keeps: the schema as it is now, not its file."""
    return given if options.typed is None else {**given, "schema": options.typed.text}


def typed_schema(text: str, event: str | None) -> TypedSchema:
    """The schema that a text tells, as the option does.

    Raises:
        OptionError: it tells none.
    """
    if not text.lstrip().startswith("{"):
        path = Path(local_path("schema", text))
        try:
            if path.stat().st_size > SIZE_MAX:
                raise OptionError("schema", f"at most {SIZE_MAX} bytes", str(path))
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError("schema", _EXPECTED, f"{text!r}: {error}") from error
    return _checked(text, event)


def _checked(text: str, event: str | None) -> TypedSchema:
    found = TypedSchema(text, event)
    try:
        _ = found.kind
    except SchemaError as error:
        raise OptionError("schema", _EXPECTED, str(error)) from error
    return found


def _schema_of(given: Given, asked: tuple[str, ...] | None) -> TypedSchema | None:
    text, event = given.text("schema"), given.text("event")
    if text is not None and text.strip().lower() != NONE:
        if given.has("payload"):
            raise OptionError("payload", "no schema beside it", "both")
        return typed_schema(text.strip(), event)
    if asked is None and given.has("columns"):
        asked = tuple(name.strip() for name in (given.text("columns") or "").split(","))
    wants_none = text is not None or given.has("payload")
    if not wants_none and (asked is None or not set(asked) <= set(COLUMNS)):
        kept = _kept(Finder(finding_of(given)).find())
        if kept is not None:
            return _checked(kept, event)
    for name in ("event", "misfits"):
        if given.has(name):
            raise OptionError(name, "a schema beside it", "none")
    return None


def _kept(found: Mapping[str, Path]) -> str | None:
    """The schema that all these queues keep; None where none keeps any.

    Raises:
        OptionError: one keeps another one than the others, or none.
    """
    texts: dict[str | None, Path] = {}
    for path in found.values():
        file = path / KEPT_NAME
        try:
            texts.setdefault(file.read_text(encoding="utf-8"), path)
        except (FileNotFoundError, NotADirectoryError):
            texts.setdefault(None, path)
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError("schema", f"a schema in {file}", str(error)) from error
    if len(texts) > 1:
        first, second, *_ = texts.values()
        raise OptionError(
            "schema", f"one {KEPT_NAME} for all queues, or the option", f"others: {first}, {second}"
        )
    return next(iter(texts), None)
