"""Columns made by the native codec, without an object of Python for a value."""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cqrepl.arrow.columntypes import arrow_type
from wire.objects.nativeforms import column_batch
from wire.objects.shapes import Shape, ShapeMember

Buffers = tuple[int, int, bytes | None, tuple[Any, ...]]


class MadeRows(NamedTuple):
    """The rows that were made, from the first on: arrays of as many values."""

    rows: int
    arrays: "list[pa.Array]"


class MessageColumns:
    """Makes arrays of the fields of messages of one class.

    Attributes:
        is_native: whether there is a native codec that knows all kinds of fields of the class.
    """

    def __init__(self, kind: type, members: Sequence[ShapeMember], shape: Shape) -> None:
        self._batch = column_batch(kind, members)
        self.is_native = self._batch is not None
        # the crate gives them in the order of the class
        names = [member.name for member in members]
        given = [member for member in shape.members if member.name in names]
        self._shapes = [member.shape for member in given]
        self._order = [[each.name for each in given].index(name) for name in names]

    def read(self, payload: bytes, offsets: "array[int]", row: int, end: int) -> MadeRows:
        """Rows from `row` on; ends at `end`, or at an excerpt that the plain codec has to read."""
        rows, columns = self._batch.read(payload, offsets.tobytes(), row, end)
        made = [_array(shape, each) for shape, each in zip(self._shapes, columns, strict=True)]
        return MadeRows(rows, [made[at] for at in self._order])


def _array(shape: Shape, column: Buffers) -> "pa.Array":
    """An array that shares the memory of the buffers."""
    count, nulls, bits, values = column
    kind, valid = arrow_type(shape), None if bits is None else pa.py_buffer(bits)
    if shape.kind == "message":
        parts = [
            _array(each.shape, inner) for each, inner in zip(shape.members, values, strict=True)
        ]
        return pa.StructArray.from_buffers(kind, count, [valid], nulls, children=parts)
    if shape.kind == "list" and shape.item is not None:
        ends, item = values
        buffers = [valid, pa.py_buffer(ends)]
        children = [_array(shape.item, item)]
        return pa.ListArray.from_buffers(kind, count, buffers, nulls, children=children)
    buffers = [valid, *map(pa.py_buffer, values)]
    return pa.Array.from_buffers(kind, count, buffers, nulls)
