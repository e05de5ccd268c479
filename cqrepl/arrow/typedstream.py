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
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from cqrepl.arrow.typedrows import INDEX, Misfit, TypedRows, chosen_members
from cqrepl.queue import NEXT_OF_EMPTY, Queue
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.read.columns import MAX_BYTES, MAX_ROWS
from cqrepl.typed.condition import Condition
from cqrepl.typed.instants import instant_ns, time_reader
from cqrepl.typed.schemafile import kept_class
from wire.objects.shapes import shape_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class TypedStream:
    """Record batches of a queue's documents; read once, from begin to end.

    Attributes:
        schema: of Arrow.
        rows: that it has given.
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
        self._typed = TypedRows(
            kind,
            chosen_members(shape_of(kind).members, reading.columns),
            has_index=reading.columns is None or INDEX in reading.columns,
            condition=reading.condition,
            keep_misfits=reading.keep_misfits,
        )
        self.schema = self._typed.schema
        self.rows = 0
        self.next_index = reading.index_first
        self._batches: Generator[Any, None, None] = self._made()

    @property
    def misfits(self) -> int:
        """The number of excerpts that do not fit."""
        return self._typed.misfits

    @property
    def kept_misfits(self) -> list[Misfit]:
        """The first of them."""
        return self._typed.kept_misfits

    @property
    def passed(self) -> int:
        """The number of calls of other methods."""
        return self._typed.passed

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
        found = [batch for batch in self._typed.batches(columns) if batch.num_rows]
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


class StreamRange(NamedTuple):
    """The rows and columns that a stream reads, and how many at a time."""

    index_first: int
    index_last: int
    columns: tuple[str, ...] | None
    condition: Condition | None
    keep_misfits: bool
    batch_rows: int
    batch_bytes: int


def to_arrow(
    queue: Queue | Path | str,
    kind: "type[DataclassInstance] | None" = None,
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
        kind: a dataclass, whose fields are the columns; None: that of the schema that the queue
            keeps (`schema.json` in its directory).
        index_first, index_last: both included.
        time_from: begin at the first excerpt that is not older, by the time in `time_field`, which
            must not fall from one excerpt to the next; `a.b` for a field within a field.
        columns: names of fields, and `index`: only these.
        where: a condition over the fields of the class, see `cqrepl.typed.condition`.
        batch_rows, batch_bytes: of a record batch.

    Raises:
        TypeError: the class cannot be read.
        ValueError: a column or the condition is none; a time without a field; no class is given,
            and the queue keeps no schema of one class.
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
        return TypedStream(opened, kind or kept_class(opened.path), reading, closes=closes)
    except BaseException:
        if closes:
            opened.close()
        raise
