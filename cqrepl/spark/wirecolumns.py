"""Documents in a column as fields, and fields as documents: functions for any DataFrame.

    from cqrepl.spark import from_wire, to_wire
    orders = frame.select(from_wire("payload", Order).alias("order")).select("order.*")
    frame.select(to_wire(struct("sym", "px"), Order).alias("payload"))

Both take Arrow batches. Reading makes columns by the native codec, without an object of Python for
a value; writing makes an object for each row.
"""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructType

from cqrepl.arrow.typedrows import TypedRows
from cqrepl.kernel.batch import number_from
from cqrepl.queue.read.columns import Columns
from cqrepl.spark.rowdocuments import documents_of
from cqrepl.spark.schemachoice import typed_schema
from cqrepl.spark.sparktypes import members_type
from cqrepl.spark.typedschema import ERROR, TypedSchema, schema_text

if TYPE_CHECKING:
    from pyspark.sql import Column

_ARROW_UDF: Any = arrow_udf  # its stub asks for a number that Spark keeps to itself


def from_wire(column: "Column | str", schema: type | str, event: str | None = None) -> "Column":
    """A struct of the fields of the documents in a binary column, and of `_error`.

    A document that does not fit has null fields and the reason in `_error`; the call of another
    method, and null, is null.

    Args:
        schema: a dataclass, a file of JSON Schema, or its text.
        event: the method, where the schema has several.

    Raises:
        OptionError: the schema is none.
    """
    typed = _typed(schema, event)
    found = members_type(typed.shape.members).add(ERROR, StringType())
    read: Column = _ARROW_UDF(_reader(typed, found), returnType=found)(_column(column))
    return read


def to_wire(column: "Column | str", schema: type | str, event: str | None = None) -> "Column":
    """The documents, binary, of the structs in a column, whose fields have the schema's names.

    A null struct is null. A struct that does not fit ends the query with a line.

    Args: as `from_wire`.

    Raises:
        OptionError: the schema is none.
    """
    write = _writer(_typed(schema, event))
    made: Column = _ARROW_UDF(write, returnType=BinaryType())(_column(column))
    return made


def _typed(schema: type | str, event: str | None) -> TypedSchema:
    return typed_schema(schema if isinstance(schema, str) else schema_text(schema), event)


def _column(column: "Column | str") -> "Column":
    return col(column) if isinstance(column, str) else column


def _reader(typed: TypedSchema, found: StructType) -> Callable[[Any], Any]:
    """A function of an array of payloads; it travels to the tasks."""

    def read(payloads: pa.Array) -> pa.Array:
        rows = TypedRows(typed.kind, typed.shape.members, keep_misfits=True, tells_index=False)
        made = pa.Table.from_batches(rows.batches(_columns_of(payloads)), schema=rows.schema)
        fields = [column.combine_chunks() for column in made.columns]
        target = to_arrow_type(found, timezone="UTC")
        parts = [*fields[1:-2], fields[-1]]
        cast = [each.cast(field.type) for each, field in zip(parts, target, strict=True)]
        structs = pa.StructArray.from_arrays(cast, fields=list(target))
        if len(structs) == len(payloads):
            return structs
        # payloads of which there is no row, as calls of other methods, become null
        places: list[int | None] = [None] * len(payloads)
        for at, row in enumerate(fields[0].to_pylist()):
            places[row] = at
        return structs.take(pa.array(places, pa.int64()))

    return read


def _columns_of(payloads: "pa.Array") -> Columns:
    """The payloads that are not null, as excerpts of a queue; their indexes are their places."""
    wide = payloads.cast(pa.large_binary())
    if not len(wide):
        return Columns(indexes=array("q"), offsets=array("q", [0]), payload=b"", next_index=0)
    if wide.null_count:
        places = array("q", (at for at, each in enumerate(wide.is_valid().to_pylist()) if each))
        wide = wide.drop_null()
    else:
        places = number_from(0, len(wide))
    data = wide.buffers()[2]
    offsets = array("q", wide.buffers()[1].to_pybytes())[wide.offset :][: len(wide) + 1]
    whole = b"" if data is None else data.to_pybytes()
    return Columns(indexes=places, offsets=offsets, payload=whole, next_index=len(payloads))


def _writer(typed: TypedSchema) -> Callable[[Any], Any]:
    """A function of an array of structs; it travels to the tasks."""

    def write(structs: pa.Array) -> pa.Array:
        return documents_of(typed, structs)

    return write
