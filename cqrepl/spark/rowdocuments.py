"""Rows as documents: what a queue gets where there is no column `payload`. Knows no Spark.

key, value           a document of these two fields; each binary or string, or null
fields of a schema   the document of the class, byte for byte as `wire.encode` makes it
"""

from collections.abc import Iterator

import pyarrow as pa

import wire
from cqrepl.spark.tableoptions import TableError
from cqrepl.spark.typedschema import TypedSchema
from cqrepl.typed.plainvalues import NoPlainValue, message_of

PAIR = ("key", "value")


def documents_of(typed: TypedSchema, rows: "pa.Array") -> "pa.Array":
    """The documents of structs of fields; null where a struct is.

    Raises:
        TableError: a row does not fit the schema.
    """
    shape = typed.shape
    documents: list[bytes | None] = []
    for row in rows.to_pylist():
        try:
            documents.append(None if row is None else wire.encode(message_of(shape, row)))
        except (NoPlainValue, wire.WireError, ValueError) as error:
            name = getattr(shape.annotation, "__name__", "the schema")
            raise TableError(f"expected fields of {name}: {error}") from error
    return pa.array(documents, pa.binary())


def payload_batches(
    typed: TypedSchema | None, batches: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """The batches with the one column `payload`, of fields of the schema, or of pairs.

    Raises:
        TableError: as `documents_of`.
    """
    for batch in batches:
        if typed is not None:
            documents = documents_of(typed, batch.to_struct_array())
        else:
            pairs = (dict(zip(PAIR, pair, strict=True)) for pair in _pairs(batch))
            documents = pa.array([wire.encode(pair) for pair in pairs], pa.binary())
        yield pa.RecordBatch.from_arrays([documents], names=["payload"])


def _pairs(batch: "pa.RecordBatch") -> Iterator[tuple[object, object]]:
    return zip(*(batch.column(name).to_pylist() for name in PAIR), strict=True)
