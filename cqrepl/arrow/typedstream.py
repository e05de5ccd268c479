"""The documents of a queue as a stream of record batches of typed columns.

Theory of operation. A dataclass is the schema; its fields are the columns, behind `index`. The
stream reads thousands of excerpts at a time, and makes one record batch of them: memory is bounded
by the batch, however long the queue is. It has the C stream interface of Arrow, so that polars,
pandas, DuckDB and pyarrow read it without a copy.

An excerpt that does not fit the schema is no row. It is counted, and the first of them are kept
with their bytes and the reason; with `keep_misfits` it is a row, whose fields are null, and which
has its bytes in the column `_misfit` and the reason in `_error`. Calls of other methods than that
of the class are passed by and counted.
"""

import datetime
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pyarrow as pa

from cqrepl.arrow.columntypes import NoColumnValue, arrow_field, converter
from cqrepl.arrow.messagecolumns import MessageColumns
from cqrepl.queue import NEXT_OF_EMPTY, Queue
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.read.columns import MAX_BYTES, MAX_ROWS, Columns
from cqrepl.typed.condition import Condition
from cqrepl.typed.instants import instant_ns, time_reader
from cqrepl.typed.messagefields import message_fields
from wire.errors import FieldError
from wire.objects.messages import Messages
from wire.objects.shapes import ShapeMember, shape_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MISFITS_KEPT: Final = 1000
INDEX: Final = "index"
MISFIT: Final = "_misfit"
ERROR: Final = "_error"


@dataclass(frozen=True, slots=True)
class Misfit:
    """An excerpt that does not fit the schema."""

    index: int
    payload: bytes
    error: FieldError


class TypedStream:
    """Record batches of a queue's documents; read once, from begin to end.

    Attributes:
        schema: of Arrow.
        rows: that it has given.
        misfits: excerpts that do not fit; `kept_misfits` has the first `MISFITS_KEPT`.
        passed: calls of other methods.
        next_index: behind the last excerpt that was read.
    """

    def __init__(
        self,
        queue: Queue,
        kind: "type[DataclassInstance]",
        reading: "StreamRange",
        *,
        closes: bool,
    ) -> None:
        self._queue = queue
        self._closes = closes
        self._reading = reading
        self._shape = shape_of(kind)
        self._read: Callable[[bytes | memoryview], Any] = Messages((kind,)).read
        self._members = chosen_members(self._shape.members, reading.columns)
        self._has_index = reading.columns is None or INDEX in reading.columns
        fields = [pa.field(INDEX, pa.int64(), nullable=False)] if self._has_index else []
        fields += [arrow_field(each) for each in self._members]
        if reading.keep_misfits:
            fields += [pa.field(MISFIT, pa.large_binary()), pa.field(ERROR, pa.large_string())]
        self.schema = pa.schema(fields)
        self._columns = MessageColumns(kind, self._members, self._shape)
        self.rows = self.misfits = self.passed = 0
        self.kept_misfits: list[Misfit] = []
        self.next_index = reading.index_first
        self._batches: Generator[Any, None, None] = self._made()

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        return self._batches

    def next_batches(self) -> "list[pa.RecordBatch] | None":
        """The record batches of the excerpts that are read next in one step, maybe none of them;
        None at the end. What was read up to now ends at `next_index`."""
        reading = self._reading
        columns = self._queue.read_columns(
            self.next_index, reading.index_last, reading.batch_rows, reading.batch_bytes
        )
        if not columns.rows:
            return None
        self.next_index = columns.next_index
        found = [batch for batch in self._batches_of(columns) if batch.num_rows]
        self.rows += sum(batch.num_rows for batch in found)
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The stream as a capsule, for what reads Arrow."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> "pa.RecordBatchReader":
        """The stream as a reader of pyarrow."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def read_all(self) -> "pa.Table":
        """All rows as a table."""
        return self.reader().read_all()

    def close(self) -> None:
        """Closes the queue, where the stream has opened it. At its end it does so itself."""
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _made(self) -> "Generator[Any, None, None]":
        try:
            while (batches := self.next_batches()) is not None:
                yield from batches
        finally:
            if self._closes:
                self._queue.close()

    def _batches_of(self, columns: Columns) -> "Iterator[pa.RecordBatch]":
        """The record batches of excerpts that were read together."""
        row, end = 0, columns.rows
        is_plain = self._reading.condition is not None or not self._columns.is_native
        while not is_plain and row < end:
            made = self._columns.read(columns.payload, columns.offsets, row, end)
            if made.rows:
                yield self._native_batch(columns, row, made.rows, made.arrays)
            row += made.rows
            if row < end:  # that excerpt is unusual: the plain codec reads it, or says why not
                yield self._plain_batch(columns, row, row + 1)
                row += 1
        if row < end:
            yield self._plain_batch(columns, row, end)

    def _native_batch(
        self, columns: Columns, row: int, count: int, arrays: "list[pa.Array]"
    ) -> "pa.RecordBatch":
        indexes = pa.array(columns.indexes[row : row + count], pa.int64())
        arrays = ([indexes] if self._has_index else []) + arrays
        if self._reading.keep_misfits:
            arrays += [pa.nulls(count, pa.large_binary()), pa.nulls(count, pa.large_string())]
        return pa.record_batch(arrays, schema=self.schema)

    def _plain_batch(self, columns: Columns, row: int, end: int) -> "pa.RecordBatch":
        rows = _PlainRows(self._members)
        payload = memoryview(columns.payload)
        for at in range(row, end):
            data = payload[columns.offsets[at] : columns.offsets[at + 1]]
            index = columns.indexes[at]
            try:
                message = self._read(data)
                if message is None:
                    self.passed += 1
                elif self._is_wanted(message):
                    rows.add(index, message)
            except FieldError as error:
                told = error.at(index)
                self._note_misfit(Misfit(index, bytes(data), told))
                if self._reading.keep_misfits:
                    rows.add_misfit(index, bytes(data), str(told))
        return rows.batch(self.schema, has_index=self._has_index)

    def _is_wanted(self, message: object) -> bool:
        condition = self._reading.condition
        return condition is None or condition.holds(message_fields(message, self._shape))

    def _note_misfit(self, misfit: Misfit) -> None:
        self.misfits += 1
        if len(self.kept_misfits) < MISFITS_KEPT:
            self.kept_misfits.append(misfit)


class StreamRange(NamedTuple):
    """The rows and columns that a stream reads, and how many at a time."""

    index_first: int
    index_last: int
    columns: tuple[str, ...] | None
    condition: Condition | None
    keep_misfits: bool
    batch_rows: int
    batch_bytes: int


class _PlainRows:
    """Rows made of Python's values, column by column."""

    def __init__(self, members: Sequence[ShapeMember]) -> None:
        self._parts = [(each, converter(each.shape)) for each in members]
        self._indexes: list[int] = []
        self._values: list[list[object]] = [[] for _ in members]
        self._misfits: list[bytes | None] = []
        self._errors: list[str | None] = []

    def add(self, index: int, message: object) -> None:
        """Adds a row.

        Raises:
            FieldError: a column does not hold a value.
        """
        values = []
        for member, convert in self._parts:
            value = getattr(message, member.attribute)
            try:
                values.append(convert(value))
            except NoColumnValue as error:
                found = f"{value!r:.40}"
                raise FieldError(member.name, member.shape.kind, found, str(error)) from error
        self._put(index, values, None, None)

    def add_misfit(self, index: int, payload: bytes, error: str) -> None:
        self._put(index, [None] * len(self._parts), payload, error)

    def _put(
        self, index: int, values: list[object], payload: bytes | None, error: str | None
    ) -> None:
        self._indexes.append(index)
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self._misfits.append(payload)
        self._errors.append(error)

    def batch(self, schema: "pa.Schema", *, has_index: bool) -> "pa.RecordBatch":
        given: list[Any] = [self._indexes] if has_index else []
        given += [*self._values, self._misfits, self._errors]
        arrays = [
            pa.array(values, field.type) for values, field in zip(given, schema, strict=False)
        ]
        return pa.record_batch(arrays, schema=schema)


def chosen_members(
    members: Sequence[ShapeMember], columns: Sequence[str] | None
) -> tuple[ShapeMember, ...]:
    """The fields of these names, in the order of the names; all of them where none are given.

    Raises:
        ValueError: there is no field of a name.
    """
    if columns is None:
        return tuple(members)
    named = {each.name: each for each in members}
    unknown = [name for name in columns if name not in named and name != INDEX]
    if unknown:
        known = ", ".join([INDEX, *named])
        raise ValueError(f"columns of {known} expected, {', '.join(unknown)} came")
    return tuple(named[name] for name in columns if name != INDEX)


def to_arrow(
    queue: Queue | Path | str,
    kind: "type[DataclassInstance]",
    *,
    index_first: int = NEXT_OF_EMPTY,
    index_last: int = INDEX_MAX,
    time_from: datetime.datetime | None = None,
    time_field: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | Condition | None = None,
    keep_misfits: bool = False,
    batch_rows: int = MAX_ROWS,
    batch_bytes: int = MAX_BYTES,
) -> TypedStream:
    """The documents that a queue holds as typed columns; see above.

    Args:
        queue: an open one, which stays open; or a directory.
        kind: a dataclass, whose fields are the columns.
        index_first, index_last: both included.
        time_from: begin at the first excerpt that is not older, by the time in `time_field`, which
            must not fall from one excerpt to the next; `a.b` for a field within a field.
        columns: names of fields, and `index`: only these.
        where: a condition over the fields of the class, see `cqrepl.typed.condition`.
        batch_rows, batch_bytes: of a record batch.

    Raises:
        TypeError: the class cannot be read.
        ValueError: a column or the condition is none; a time without a field.
        QueueError: as `Queue.open`. Reading the stream raises as a tailer.
    """
    condition = Condition(where) if isinstance(where, str) else where
    opened = queue if isinstance(queue, Queue) else Queue.open(queue)
    closes = opened is not queue
    try:
        if time_from is not None:
            ns = instant_ns(time_from)
            if time_field is None or ns is None:
                raise ValueError("time_field expected with time_from, none came")
            index_first = max(index_first, opened.seek_time(ns, time_reader(time_field)))
        chosen = None if columns is None else tuple(columns)
        reading = StreamRange(
            index_first, index_last, chosen, condition, keep_misfits, batch_rows, batch_bytes
        )
        return TypedStream(opened, kind, reading, closes=closes)
    except BaseException:
        if closes:
            opened.close()
        raise
