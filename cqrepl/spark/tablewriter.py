"""Queues as targets of Spark, in batch and in streams: thin shells around `staging`.

Rows need `index` and `payload`; a frame may also have the further columns that reading gives. A
queue that does not exist yet is laid out by the option `rollCycle`, or like another one (`like`).

A writer is made in a process of the driver, and pickled to the tasks and to the commit, so a batch
keeps its job's directory. For a stream Spark makes another writer in the commit, so the directory
is told by the checkpoint and the target; a query has one batch at a time.
"""

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cqrepl.queue import NotAQueue, Queue, QueueLayout
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.activesession import activate
from cqrepl.spark.reasons import reason_only
from cqrepl.spark.recordbatches import type_of
from cqrepl.spark.staging import StagedPart, Target, begin, commit, discard, stage, sweep
from cqrepl.spark.tableoptions import COLUMNS, OptionError, TableError, WriteOptions
from cqrepl.spark.taskreader import settle_worker

_NEEDED: Final = ("index", "payload")


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task tells the commit."""

    part: StagedPart


def in_index_order(frame: DataFrame, tasks: int) -> DataFrame:
    """The rows as a writer wants them: consecutive indexes in one task, and rising.

    A stream over one queue has this order, and Spark sorts none: it is left as it is. Where
    something has shuffled it, the writer says so.

    The frame's session becomes the active one of the calling thread, as Spark finds what the frame
    is written to only there.
    """
    activate(frame.sparkSession)
    if frame.isStreaming:
        return frame
    return frame.repartitionByRange(tasks, "index").sortWithinPartitions("index")


class _Writing:
    """What a batch and a stream have in common."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Looks at the target; nothing there is changed before a commit.

        Raises:
            OptionError: there is no queue, and none can be made; or it must not be replaced.
            TableError: the columns cannot be written.
            QueueError: the target cannot be read.
        """
        _check_columns(schema)
        path = Path(options.path).absolute()
        self._target = Target(
            path=path,
            layout=_layout(path, options),
            is_existing_refused=options.is_existing_refused,
            is_synced=options.is_synced,
        )
        if overwrite and _has_excerpts(path):
            raise OptionError("mode", "append, as the queue holds excerpts", "overwrite")
        own = path.with_name(f".{path.name}.staging")
        self._staging = own if options.staging is None else Path(options.staging).absolute()
        sweep(self._staging)

    def _begin(self, job: str) -> None:
        self._folder = self._staging / job
        begin(self._folder)

    @reason_only()
    def _stage(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        settle_worker()
        shift = self._target.layout.roll_cycle.shift
        return StagedMessage(stage(self._folder, shift, iterator))

    @reason_only()
    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit(self._target, [one.part for one in messages if isinstance(one, StagedMessage)])
        discard(self._folder)


class ChronicleWriter(DataSourceArrowWriter, _Writing):
    """Writes a batch."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """See `_Writing`."""
        _Writing.__init__(self, options, schema, overwrite)
        self._begin(uuid.uuid4().hex)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """What one attempt of a task does."""
        return self._stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Appends what the tasks have staged."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Gives up what was staged; also that of attempts of which there is no message."""
        discard(self._folder)


class ChronicleStreamWriter(DataSourceStreamArrowWriter, _Writing):
    """Writes the micro-batches of a query."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """See `_Writing`."""
        _Writing.__init__(self, options, schema, overwrite)
        told = f"{options.checkpoint}\n{self._target.path}"
        self._begin(hashlib.blake2b(told.encode(), digest_size=16).hexdigest())

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """What one attempt of a task does."""
        return self._stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Appends what the tasks have staged. The batch's number decides nothing: indexes do."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Gives up what was staged."""
        discard(self._folder)


def _check_columns(schema: StructType) -> None:
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in _NEEDED:
        expected = type_of(name, "raw")
        if found.get(name) != expected:
            raise TableError(
                f"expected a column {name} of {expected} to write a queue,"
                f" found {found.get(name, 'none')}"
            )
    for name in found:
        if name not in COLUMNS:
            raise TableError(f"expected columns of {', '.join(COLUMNS)}, found {name}")


def _layout(path: Path, options: WriteOptions) -> QueueLayout:
    """The layout of the target: its own, or that which a new one gets."""
    if holds_queue(path):
        with Queue.open(path) as queue:
            return queue.layout
    if path.exists() and not path.is_dir():
        raise NotAQueue("expected a queue directory, found a file", path=path)
    if options.like is not None:
        with Queue.open(options.like) as queue:
            return queue.layout
    if options.roll_cycle is None:
        raise OptionError("rollCycle", f"one, or like, as there is no queue at {path}", "none")
    return QueueLayout.of(by_name(options.roll_cycle))


def _has_excerpts(path: Path) -> bool:
    if not holds_queue(path):
        return False
    with Queue.open(path) as queue:
        return queue.first_index() is not None
