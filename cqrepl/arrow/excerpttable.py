"""Queues as Arrow tables; needs the extra `arrow`.

    import cqrepl.arrow
    with cqrepl.arrow.open_reader("data/orders") as reader:
        table = reader.read_all()          # or polars.from_arrow(reader), reader.read_pandas()

The columns are `index`, 64 bits, and `payload`, large binary. Their buffers are those of
`Queue.read_columns`: nothing is copied.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from cqrepl.queue import NEXT_OF_EMPTY, Queue
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.read.columns import MAX_BYTES, MAX_ROWS, Columns

SCHEMA: Final = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)


def record_batch(columns: Columns) -> "pa.RecordBatch":
    """The columns as a record batch that shares their memory."""
    count = columns.rows
    payload = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        count,
        [None, pa.py_buffer(columns.offsets), pa.py_buffer(columns.payload)],
    )
    index = pa.Int64Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.indexes)])
    return pa.record_batch([index, payload], schema=SCHEMA)


def record_batches(
    queue: Queue,
    index_from: int = NEXT_OF_EMPTY,
    index_to: int = INDEX_MAX,
    *,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
) -> Iterator["pa.RecordBatch"]:
    """The excerpts that a queue holds now from `index_from` to `index_to`, both included.

    Args:
        max_rows: of one record batch.
        max_bytes: of payload in a record batch of more than one row.

    Raises:
        IndexGap, QueueDamaged: as a tailer's.
    """
    while True:
        columns = queue.read_columns(index_from, index_to, max_rows, max_bytes)
        if not columns.rows:
            return
        yield record_batch(columns)
        index_from = columns.next_index


def open_reader(
    path: Path | str, index_from: int = NEXT_OF_EMPTY, index_to: int = INDEX_MAX
) -> "pa.RecordBatchReader":
    """A reader over a queue directory; the queue is closed when it has been read to its end.

    Raises:
        QueueError: as `Queue.open`, at once; later as `record_batches`.
    """
    queue = Queue.open(path)

    def batches() -> Iterator["pa.RecordBatch"]:
        with queue:
            yield from record_batches(queue, index_from, index_to)

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())
