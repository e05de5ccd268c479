"""Rows of Arrow, appended to a queue as documents of a dataclass: the way back from `to_arrow`.

Theory of operation. A record batch is taken by columns. A column whose values are those of the
field already, as whole numbers, floats and texts without nulls, is taken as it is; those of any
other column are converted one by one. Each row becomes a message, and each message what Java's
binary wire writes for the same class. A batch is appended under one lock once all of its rows fit.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cqrepl.queue import Queue
from cqrepl.typed.plainvalues import NoPlainValue, value_of
from wire.objects.annotated import described
from wire.objects.documents import encode
from wire.objects.shapes import ShapeMember, shape_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BLOCK_ROWS: Final = 4096
_AS_THEY_ARE: Final = {
    "integer": pa.types.is_integer,
    "float": pa.types.is_float64,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "boolean": pa.types.is_boolean,
}


def append_arrow(
    queue: Queue, data: Any, kind: "type[DataclassInstance]", *, now_ms: int | None = None
) -> int:
    """Appends each row as a message of a class; the number of rows.

    Args:
        data: a record batch, a table, or what has Arrow's C stream interface, as a frame of polars.
            Columns that the class does not have are left out.
        now_ms: as for `append_many`.

    Raises:
        TypeError: the data is no rows of Arrow, or the class has no form on the wire.
        ValueError: a row does not fit the class, and says which. Batches before its own stay.
        QueueLocked, QueueError, OSError: as `append_many`.
    """
    members = shape_of(kind).members
    appended = 0
    for batch in _batches(data):
        payloads: list[bytes] = []
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            block = batch.slice(start, BLOCK_ROWS)
            rows = _messages(block, kind, members, appended + start)
            payloads += [encode(message) for message in rows]
        if payloads:
            queue.append_many(payloads, now_ms=now_ms)
        appended += batch.num_rows
    return appended


def _batches(data: Any) -> "Iterator[pa.RecordBatch]":
    if isinstance(data, pa.RecordBatch):
        return iter([data])
    if isinstance(data, pa.Table):
        return iter(data.to_batches())
    if hasattr(data, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(data))
    raise TypeError(f"rows of Arrow were expected, a {type(data).__name__} came")


def _messages(
    batch: "pa.RecordBatch", kind: Any, members: Sequence[ShapeMember], before: int
) -> Iterator[Any]:
    names = batch.schema.names
    given = [member for member in members if member.name in names]
    for member in given:
        if names.count(member.name) > 1:
            raise NoPlainValue(f"{member.name}: one column of this name expected, several came")
    for member in members:
        if member.is_required and member not in given:
            wanted = described(member.shape.annotation)
            raise NoPlainValue(f"{member.name}: a column of {wanted} expected, none came")
    columns = [_values(batch.column(member.name), member, before) for member in given]
    attributes = [member.attribute for member in given]
    if not columns:
        return (kind() for _ in range(batch.num_rows))
    is_by_name = any(each.kw_only for each in dataclasses.fields(kind))
    if not is_by_name and attributes == [member.attribute for member in members]:
        return (kind(*values) for values in zip(*columns, strict=True))
    return (kind(**dict(zip(attributes, row, strict=True))) for row in zip(*columns, strict=True))


def _values(column: "pa.Array", member: ShapeMember, before: int) -> list[object]:
    shape = member.shape
    values: list[object] = column.to_pylist()
    is_as_it_is = _AS_THEY_ARE.get(shape.kind)
    has_no_null = not column.null_count or shape.is_nullable
    if shape.width is None and is_as_it_is is not None and has_no_null and is_as_it_is(column.type):
        return values
    found = []
    for at, value in enumerate(values, before + 1):
        try:
            found.append(value_of(shape, value, member.name))
        except NoPlainValue as error:
            raise NoPlainValue(f"row {at}: {error}") from error
    return found
