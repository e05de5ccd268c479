"""Reads a split in a task of a batch or a stream, all of it or nothing.

A split names excerpts that were there when it was planned. If one of them is gone when the task
runs, its store file was removed meanwhile. That is an error, as the rows would silently be fewer,
unless the reader was told that lost excerpts may be left out.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path

import pyarrow as pa

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue import IndexGap, NotAQueue, Queue
from cqrepl.spark.partitions import SplitPartition
from cqrepl.spark.ranges import IndexRange
from cqrepl.spark.recordbatches import BatchMaker
from cqrepl.spark.tableoptions import ReadOptions
from cqrepl.spark.typedbatches import TypedBatchMaker
from cqrepl.spark.witness import check_witness

_logger = logging.getLogger(__name__)


@cache
def settle_worker() -> None:
    """Makes the collection of garbage that follows each task cheap; once for each worker.

    Spark's worker collects after each task, which walks all that pyarrow has loaded, unless that
    is set apart. Even counting what is set apart walks all of it.
    """
    gc.freeze()


def read_split(
    partition: SplitPartition,
    schema: "pa.Schema",
    options: ReadOptions,
    *,
    may_be_lost: bool = False,
) -> Iterator["pa.RecordBatch"]:
    """The record batches of a split.

    Args:
        may_be_lost: leaves out what is not there any more, instead of failing.

    Raises:
        IndexGap: an excerpt of the split is not there any more.
        QueueError: another queue is there than where the split was planned.
        QueueDamaged: a store file cannot be followed.
    """
    settle_worker()
    typed = None if options.typed is None else TypedBatchMaker(schema, options)
    maker = typed or BatchMaker(schema, options.payload)
    with ExitStack() as stack:
        opened: dict[Path, Queue] = {}  # opening one lists its directory: once is enough
        for one in partition.split:
            try:
                if one.queue not in opened:
                    opened[one.queue] = stack.enter_context(Queue.open(one.queue))
                    for witness in partition.witnesses:
                        if witness.queue == one.queue:
                            check_witness(opened[one.queue], witness)
                name = partition.names[one.queue]
                yield from read_one_range(opened[one.queue], one, name, maker, options)
            except (IndexGap, NotAQueue) as gap:
                if not may_be_lost:
                    raise
                _logger.warning("left out what is lost: %s", gap)
    if typed is not None:
        typed.tell()


def read_one_range(
    queue: Queue,
    one: IndexRange,
    name: str,
    maker: BatchMaker | TypedBatchMaker,
    options: ReadOptions,
) -> Iterator["pa.RecordBatch"]:
    """The record batches of a range of a queue, which is called by a name.

    Raises:
        IndexGap, QueueDamaged: as `read_split`.
    """
    index = one.index_first
    with closing(queue.tailer(index)) as tailer:
        while index <= one.index_last:
            batch = tailer.next_batch(
                count_max=min(options.batch_excerpts, one.index_last - index + 1),
                bytes_max=options.batch_bytes,
                payload_max=NO_LIMIT,
            )
            if batch is None or batch.index_first != index:
                found = tailer.next_index if batch is None else batch.index_first
                reason = "it was there when the job was planned"
                raise IndexGap(index, found, reason, path=one.queue)
            yield maker.make(batch, name, queue.cycles)
            index = batch.index_last + 1
