"""The columns of a queue as a table, and the type of each as Spark spells it. Knows no Spark."""

from collections.abc import Iterable
from typing import Final

from cqrepl.spark.tableoptions import OptionError

TYPES: Final = {
    "queue": "string",
    "index": "bigint",
    "cycle": "int",
    "sequence": "bigint",
    "timestamp": "timestamp",
    "file": "string",
    "position": "bigint",
    "length": "int",
    "hash": "binary",
    "payload": "binary",
}
Field = tuple[str, str, bool]  # name, type as Spark spells it, and whether it may be null


def type_of(name: str, payload_form: str) -> str:
    """The type of a column as Spark spells it."""
    return "string" if name == "payload" and payload_form != "raw" else TYPES[name]


def check_fields(fields: Iterable[Field], payload_form: str) -> None:
    """Does nothing where the fields that Spark has planned are columns of a queue.

    Raises:
        OptionError: one is none, or of another type.
    """
    for name, found, _ in fields:
        if name not in TYPES:
            raise OptionError("schema", f"columns of {', '.join(TYPES)}", repr(name))
        expected = type_of(name, payload_form)
        if found != expected:
            raise OptionError("schema", f"{name} {expected}", found)
