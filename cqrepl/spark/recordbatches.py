"""Excerpts as the record batches that Spark takes.

    queue      string   the queue's name
    index      bigint   the 64-bit index; never negative
    cycle      int
    sequence   bigint
    timestamp  timestamp  when its cycle begins: an excerpt has no time of its own
    file       string   the name of the store file
    position   bigint   of the excerpt's header in the store file
    length     int      of the payload, in bytes
    hash       binary   BLAKE2b of the payload, 16 bytes
    payload    binary   as it is; or string, where it is decoded (option `payload`):
                            text   UTF-8; bytes that are none as `\\xHH`
                            wire   JSON of what the payload says; text and hexadecimal as strings

Spark takes a batch only with exactly the schema it has planned, order and nullability included, and
looks at the first one only: so all are made with one schema, that of the plan.

Nothing here costs time in Python for each excerpt, but for payloads that are decoded. Payloads are
copied once, side by side, and not at all where they are not wanted.
"""

import hashlib
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cqrepl.console.payload import json_of
from cqrepl.kernel.batch import gather_payloads
from cqrepl.queue import ExcerptBatch, cycle_of, sequence_of
from cqrepl.queue.files.cycles import Cycles
from cqrepl.spark.tablecolumns import Field, check_fields
from cqrepl.spark.tableoptions import BATCH_EXCERPTS
from wire.header import EMPTY_STORED, HEADER_BYTES

_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_HASH_BYTES: Final = 16


def arrow_schema(fields: Sequence[Field], payload_form: str) -> "pa.Schema":
    """The Arrow schema of the fields that Spark has planned.

    Raises:
        OptionError: one is no column of a queue, or of another type.
    """
    check_fields(fields, payload_form)
    return pa.schema([pa.field(name, _ARROW[found], null) for name, found, null in fields])


class BatchMaker:
    """Makes record batches of one schema from excerpts of one cycle."""

    def __init__(self, schema: "pa.Schema", payload_form: str) -> None:
        self._schema = schema
        self._make: dict[str, Callable[[_Excerpts], pa.Array]] = {
            "queue": lambda each: _repeated(each.name, "string", len(each.batch)),
            "index": lambda each: _counted(each.batch.index_first, len(each.batch)),
            "cycle": lambda each: _repeated(each.cycle, "int", len(each.batch)),
            "sequence": lambda each: _counted(each.sequence, len(each.batch)),
            "timestamp": lambda each: _repeated(each.start_ms * 1000, "timestamp", len(each.batch)),
            "file": lambda each: _repeated(each.file, "string", len(each.batch)),
            "position": lambda each: pc.subtract(_longs(each.batch.offsets), HEADER_BYTES),
            "hash": _hash,
            "length": lambda each: _longs(each.batch.lengths).cast(pa.int32()),
            "payload": {"raw": _raw, "text": _text, "wire": _wire}[payload_form],
        }

    def make(self, batch: ExcerptBatch, name: str, cycles: Cycles) -> "pa.RecordBatch":
        """The record batch of some excerpts of the queue of this name, as a tailer gives them."""
        excerpts = _Excerpts(batch, name, cycles)
        arrays = [self._make[column](excerpts) for column in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Excerpts:
    """A batch, and where it comes from."""

    def __init__(self, batch: ExcerptBatch, name: str, cycles: Cycles) -> None:
        self.batch = batch
        self.name = name
        self.cycle = cycle_of(batch.index_first, cycles.shift)
        self.sequence = sequence_of(batch.index_first, cycles.shift)
        self._cycles = cycles

    @property
    def start_ms(self) -> int:
        """The time when their cycle begins, in milliseconds since 1970."""
        return self._cycles.ends_ms(self.cycle) - self._cycles.roll_cycle.length_ms

    @property
    def file(self) -> str:
        """The name of their store file."""
        return self._cycles.path_of(self.cycle).name

    def payloads(self) -> "pa.BinaryArray":
        batch = self.batch
        data, starts = gather_payloads(batch.data, batch.offsets, batch.lengths)
        offsets = _longs(starts).cast(pa.int32()).buffers()[1]
        buffers = [None, offsets, pa.py_buffer(data)]
        return pa.BinaryArray.from_buffers(pa.binary(), len(batch), buffers)


def _longs(values: "array[int]") -> "pa.Int64Array":
    """The same numbers, in the same memory."""
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


@lru_cache(maxsize=1)
def _numbers(count: int) -> "pa.Int64Array":
    return pa.array(range(count), pa.int64())


def _counted(first: int, count: int) -> "pa.Int64Array":
    """`first`, `first + 1`, and so on; without a Python object for each."""
    numbers = _numbers(max(1 << (count - 1).bit_length(), BATCH_EXCERPTS)).slice(0, count)
    # taken from an array, as pyarrow looks for pandas whenever it converts a single value
    return pc.add(numbers, _longs(array("q", [first]))[0])


def _repeated(value: str | int, type_name: str, count: int) -> "pa.Array":
    """The same value so many times, in memory that the batches of a cycle have in common."""
    return _repeats(value, type_name, 1 << (count - 1).bit_length()).slice(0, count)


@lru_cache(maxsize=4)  # one for each such column
def _repeats(value: str | int, type_name: str, count: int) -> "pa.Array":
    return pa.repeat(pa.scalar(value, _ARROW[type_name]), count)


def _raw(excerpts: _Excerpts) -> "pa.Array":
    return excerpts.payloads()


def _hash(excerpts: _Excerpts) -> "pa.Array":
    hashes = [
        hashlib.blake2b(payload, digest_size=_HASH_BYTES).digest() for _, payload in excerpts.batch
    ]
    return pa.array(hashes, pa.binary())


def _text(excerpts: _Excerpts) -> "pa.Array":
    payloads = excerpts.payloads()
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:  # some are not UTF-8
        texts = [_decoded(each.as_buffer()) for each in payloads]
        return pa.array(texts, pa.string())


def _decoded(payload: "pa.Buffer") -> str:
    data = payload.to_pybytes()
    return "" if data == EMPTY_STORED else data.decode(errors="backslashreplace")


def _wire(excerpts: _Excerpts) -> "pa.Array":
    # an unpaired surrogate, which Java's strings may hold, becomes its escape in JSON
    texts = [json_of(payload).encode("utf-8", "backslashreplace") for _, payload in excerpts.batch]
    return pa.array(texts, pa.string())
