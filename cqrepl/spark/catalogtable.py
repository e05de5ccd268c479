"""Tables of Spark's catalog that are queues: where the options of such a table are kept.

    CREATE TABLE orders USING chronicle OPTIONS (path '/data/orders', columns 'index,payload')

Theory of operation. Spark hands the options of a table to a data source in Python once, when it
asks for the columns of a table that is made without any; with them come the properties of a table,
which tell such a call from a `load`. A query on the table, in a later session even, makes the data
source anew with no option but those that stand in the query (`WITH (...)`). But the catalog keeps
the columns with their metadata, and gives both to the reader. So the options travel there.

A table whose columns its user has listed is put right behind Spark's back (`tablekeeper`). A writer
cannot be told its table: the columns that it is given are those of the query, whose metadata may be
another table's.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from cqrepl.spark.tableoptions import TableError

_OF_A_CATALOG: Final = "provider"  # a property of each table, and no option
_OPTION: Final = "option."
_PLACES: Final = ("path", "paths")
_KEPT: Final = "chronicle"


class WithMetadata(Protocol):
    """A column of Spark, as far as it is looked at here."""

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        """The notes that Spark keeps of it."""


def created_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being made, of all its properties; None: none is made."""
    if _OF_A_CATALOG not in options:
        return None
    kept = {
        name.removeprefix(_OPTION): text
        for name, text in options.items()
        if name.startswith(_OPTION)
    }
    if "path" in options:  # which Spark has made absolute
        kept["path"] = options["path"]
    return kept


def metadata_of(options: Mapping[str, str]) -> dict[str, str]:
    """The metadata that each column of a table carries: the table's options as JSON."""
    return {_KEPT: json.dumps(options, sort_keys=True)}


def kept_of(fields: Iterable[WithMetadata]) -> dict[str, str] | None:
    """The options that the columns of a table carry; None: they carry none."""
    for field in fields:
        kept = (field.metadata or {}).get(_KEPT)
        if kept is not None:
            return dict(json.loads(kept))
    return None


def options_for_reading(
    options: Mapping[str, str], fields: Iterable[WithMetadata]
) -> Mapping[str, str]:
    """The options that were given, or those of a table with what its query adds.

    Raises:
        TableError: neither tells where the queue is.
    """
    kept = kept_of(fields)
    if any(name in options for name in _PLACES):
        # the schema that its queue kept when a table was made is no option that its user gave
        schema = None if kept is None else kept.get("schema")
        return options if schema is None else {"schema": schema, **options}
    if kept is not None:
        return {**kept, **options}
    raise TableError(
        "option path: expected the directory of a queue, found none; a table whose columns are"
        " listed keeps its options where cqrepl.spark.register(spark) comes before CREATE TABLE,"
        " or before ALTER TABLE name SET LOCATION '...'"
    )


def options_for_writing(options: Mapping[str, str]) -> Mapping[str, str]:
    """The options that were given.

    Raises:
        TableError: there is no path, as where a table is the target.
    """
    if "path" in options:
        return options
    raise TableError(
        "option path: expected the directory of a queue, found none; a table of the catalog cannot"
        " be written: frame.write.format('chronicle').mode('append').save(path)"
    )
