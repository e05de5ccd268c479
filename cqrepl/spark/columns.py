"""Excerpts as the record batches that Spark takes.

    queue      string   the queue's name
    index      bigint   the 64-bit index; never negative
    cycle      int
    sequence   bigint
    length     int      of the payload, in bytes
    payload    binary   as it is; or string, where it is decoded (option `payload`):
                            text   UTF-8; bytes that are none as `\\xHH`
                            wire   JSON of what the payload says; text and hexadecimal as strings

Spark takes a batch only with exactly the schema it has planned, order and nullability included, and
looks at the first one only: so all are made with one schema, that of the plan. Buffers are those of
`Queue.read_columns`, but for offsets, which Spark wants with 32 bits.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cqrepl.payload import json_of
from cqrepl.queue.columns import Columns
from cqrepl.queue.index import cycle_of, index_of
from cqrepl.spark.options import OptionError
from wire.header import EMPTY_STORED

_TYPES: Final = {
    "queue": "string",
    "index": "bigint",
    "cycle": "int",
    "sequence": "bigint",
    "length": "int",
    "payload": "binary",
}
_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
}
Field = tuple[str, str, bool]  # name, type as Spark spells it, and whether it may be null


def type_of(name: str, payload_form: str) -> str:
    """The type of a column as Spark spells it."""
    return "string" if name == "payload" and payload_form != "raw" else _TYPES[name]


def spark_schema(names: Sequence[str], payload_form: str) -> str:
    """The schema of some columns, in Spark's words."""
    return ", ".join(f"`{name}` {type_of(name, payload_form)} not null" for name in names)


def arrow_schema(fields: Sequence[Field], payload_form: str) -> "pa.Schema":
    """The Arrow schema of the fields that Spark has planned.

    Raises:
        OptionError: one is no column of a queue, or of another type.
    """
    for name, found, _ in fields:
        if name not in _TYPES:
            raise OptionError("schema", f"columns of {', '.join(_TYPES)}", repr(name))
        expected = type_of(name, payload_form)
        if found != expected:
            raise OptionError("schema", f"{name} {expected}", found)
    return pa.schema([pa.field(name, _ARROW[found], null) for name, found, null in fields])


class BatchMaker:
    """Makes record batches of one schema from columns that lie within one cycle."""

    def __init__(self, schema: "pa.Schema", payload_form: str) -> None:
        self._schema = schema
        self._make: dict[str, Callable[[_Excerpts], pa.Array]] = {
            "queue": lambda each: pa.repeat(pa.scalar(each.name, pa.string()), each.count),
            "index": lambda each: each.index,
            "cycle": lambda each: pa.repeat(pa.scalar(each.cycle, pa.int32()), each.count),
            "sequence": lambda each: pc.subtract(each.index, each.index_base),
            "length": lambda each: pc.binary_length(each.payload),
            "payload": {"raw": _raw, "text": _text, "wire": _wire}[payload_form],
        }

    def make(self, columns: Columns, name: str, shift: int) -> "pa.RecordBatch":
        """The record batch of some excerpts of the queue of this name."""
        excerpts = _Excerpts(columns, name, shift)
        arrays = [self._make[column](excerpts) for column in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Excerpts:
    """Columns as Arrow arrays."""

    def __init__(self, columns: Columns, name: str, shift: int) -> None:
        self.name = name
        self.count = columns.rows
        self.cycle = cycle_of(columns.indexes[0], shift)
        self.index_base = index_of(self.cycle, 0, shift)
        self.index = pa.Int64Array.from_buffers(
            pa.int64(), self.count, [None, pa.py_buffer(columns.indexes)]
        )
        wide = pa.Int64Array.from_buffers(
            pa.int64(), self.count + 1, [None, pa.py_buffer(columns.offsets)]
        )
        offsets = wide.cast(pa.int32()).buffers()[1]
        self.payload = pa.BinaryArray.from_buffers(
            pa.binary(), self.count, [None, offsets, pa.py_buffer(columns.payload)]
        )


def _raw(excerpts: _Excerpts) -> "pa.Array":
    return excerpts.payload


def _text(excerpts: _Excerpts) -> "pa.Array":
    try:
        return excerpts.payload.cast(pa.string())
    except pa.ArrowInvalid:  # some are not UTF-8
        texts = [_decoded(each.as_buffer()) for each in excerpts.payload]
        return pa.array(texts, pa.string())


def _decoded(payload: "pa.Buffer") -> str:
    data = payload.to_pybytes()
    return "" if data == EMPTY_STORED else data.decode(errors="backslashreplace")


def _wire(excerpts: _Excerpts) -> "pa.Array":
    return pa.array(
        [json_of(memoryview(each.as_buffer())) for each in excerpts.payload], pa.string()
    )
