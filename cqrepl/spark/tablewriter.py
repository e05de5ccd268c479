"""Queues as targets of Spark, in batch and in streams: thin shells around `staging`, and around
`manyqueues` where the option `queueColumn` names a column that tells the queue of each row.

Rows need `index` and `payload`; a frame may also have the further columns that reading gives. Rows
with `payload` alone are appended at the end, exactly once (`derived`). A
queue that does not exist yet is laid out by the option `rollCycle`, or like another one (`like`).

A writer is made in a process of the driver, and pickled to the tasks and to the commit, so a batch
keeps its job's directory. For a stream Spark makes another writer in the commit, so the directory
is told by the checkpoint and the target; a query has one batch at a time.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cqrepl.queue import Queue
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.spark.activesession import activate
from cqrepl.spark.derived import (
    BatchName,
    DerivedPart,
    commit_rows,
    is_begun,
    stage_rows,
)
from cqrepl.spark.manyqueues import Parts, QueueSet, commit_many, stage_many
from cqrepl.spark.reasons import reason_only
from cqrepl.spark.rowdocuments import PAIR, payload_batches
from cqrepl.spark.schemachoice import typed_schema
from cqrepl.spark.staging import (
    StagedPart,
    Target,
    begin,
    commit,
    discard,
    stage,
    sweep,
    target_layout,
)
from cqrepl.spark.tablecolumns import type_of
from cqrepl.spark.tableoptions import (
    OptionError,
    TableError,
    WriteOptions,
    local_path,
)
from cqrepl.spark.taskreader import settle_worker
from cqrepl.spark.typedschema import COLUMNS, TypedSchema

_NEEDED: Final = ("index", "payload")


@dataclass
class StagedMessage(WriterCommitMessage):
    """The message of a task to the commit."""

    part: StagedPart


@dataclass
class ManyStagedMessage(WriterCommitMessage):
    """As `StagedMessage`, where several queues are written."""

    parts: Parts


def in_index_order(frame: DataFrame, tasks: int, queue_column: str | None = None) -> DataFrame:
    """The rows as a writer wants them: consecutive indexes in one task, and rising.

    A stream over one queue has this order, and so has each queue of a stream over several; Spark
    sorts none: it is left as it is. Where something has shuffled it, the writer says so.

    The frame's session becomes the active one of the calling thread, as Spark finds what the frame
    is written to only there.

    Args:
        queue_column: names the queue of each row, for the option `queueColumn`.
    """
    activate(frame.sparkSession)
    if frame.isStreaming:
        return frame
    columns = ["index"] if queue_column is None else [queue_column, "index"]
    return frame.repartitionByRange(tasks, *columns).sortWithinPartitions(*columns)


@dataclass
class DerivedMessage(WriterCommitMessage):
    """As `StagedMessage`, of rows without indexes."""

    part: DerivedPart


class _Writing:
    """The steps of writing that a batch and a stream have in common."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Looks at the target; nothing there is changed before a commit.

        Raises:
            OptionError: there is no queue, and none can be made; or it must not be replaced.
            TableError: the columns cannot be written.
            QueueError: the target cannot be read.
        """
        typed = None if options.schema is None else typed_schema(options.schema, options.event)
        is_derived = typed is not None or "index" not in schema.names
        self._intents = _intents(options) if is_derived else None
        self._typed = typed
        self._has_payloads = typed is None and "payload" in schema.names
        if is_derived:
            _check_derived(schema, typed)
        else:
            _check_columns(schema, options.queue_column)
        self._path = Path(options.path).absolute()
        if options.queue_column is None:
            self._target: Target | QueueSet = _target(self._path, options, overwrite)
        else:
            self._target = _queue_set(self._path, options.queue_column, options, overwrite)
        own = self._path.with_name(f".{self._path.name}.staging")
        self._staging = own if options.staging is None else Path(options.staging).absolute()
        sweep(self._staging)

    def _begin(self, job: str) -> None:
        self._folder = self._staging / job
        begin(self._folder)

    @reason_only()
    def _stage(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        settle_worker()
        if isinstance(self._target, QueueSet):
            return ManyStagedMessage(stage_many(self._folder, self._target, iterator))
        if self._intents is not None:
            context = TaskContext.get()
            assert context is not None
            if not self._has_payloads:
                iterator = payload_batches(self._typed, iterator)
            return DerivedMessage(stage_rows(self._folder, context.partitionId(), iterator))
        shift = self._target.layout.roll_cycle.shift
        return StagedMessage(stage(self._folder, shift, iterator))

    @reason_only()
    def _commit(self, messages: Sequence[WriterCommitMessage | None], number: int = 0) -> None:
        if self._intents is not None:
            assert isinstance(self._target, Target)
            parts = [one.part for one in messages if isinstance(one, DerivedMessage)]
            commit_rows(self._target, replace(self._intents, number=number), parts)
        elif isinstance(self._target, QueueSet):
            found = [one.parts for one in messages if isinstance(one, ManyStagedMessage)]
            commit_many(self._target, found)
        else:
            commit(self._target, [one.part for one in messages if isinstance(one, StagedMessage)])
        discard(self._folder)

    def _abort(self) -> None:
        """Gives up what was staged, unless a batch of it is in the queue in part."""
        if self._intents is None or not is_begun(self._intents.folder):
            discard(self._folder)


class ChronicleWriter(DataSourceArrowWriter, _Writing):
    """Writes a batch."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """See `_Writing`."""
        _Writing.__init__(self, options, schema, overwrite)
        self._begin(uuid.uuid4().hex)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Stage the rows of one attempt of a task."""
        return self._stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Appends what the tasks have staged."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Gives up what was staged; also that of attempts of which there is no message."""
        self._abort()


class ChronicleStreamWriter(DataSourceStreamArrowWriter, _Writing):
    """Writes the micro-batches of a query."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """See `_Writing`."""
        _Writing.__init__(self, options, schema, overwrite)
        told = f"{options.checkpoint}\n{self._path}"
        self._begin(hashlib.blake2b(told.encode(), digest_size=16).hexdigest())

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Stage the rows of one attempt of a task."""
        return self._stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Appends what the tasks have staged. Of rows with indexes the batch's number decides
        nothing: the indexes do."""
        self._commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Gives up what was staged."""
        self._abort()


def _intents(options: WriteOptions) -> BatchName:
    """The place where a query notes which batches it has appended.

    Raises:
        OptionError: there is none.
    """
    path = os.path.abspath(local_path("path", options.path))
    target = hashlib.blake2b(path.encode(), digest_size=16).hexdigest()
    if options.queue_column is not None:
        raise OptionError("queueColumn", "rows with a column index", options.queue_column)
    if options.write_id is not None:
        beside = Path(path).with_name(f".{Path(path).name}.writes") / options.write_id
        return BatchName(query=options.write_id, number=0, folder=beside)
    if options.checkpoint is None:
        raise OptionError(
            "writeId",
            "a name under which rows without a column index are appended once",
            "none",
        )
    checkpoint = Path(local_path("checkpointLocation", options.checkpoint))
    try:
        query = json.loads((checkpoint / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(
            "checkpointLocation", "a checkpoint on a local or shared disk", str(checkpoint)
        ) from error
    return BatchName(query=query, number=0, folder=checkpoint / "chronicle" / target)


def _check_derived(schema: StructType, typed: TypedSchema | None) -> None:
    """Does nothing where rows without indexes can become payloads.

    Raises:
        TableError: they cannot.
    """
    named = {field.name: field.dataType.simpleString() for field in schema.fields}
    if typed is not None:
        known = [member.name for member in typed.shape.members]
        missing = [each.name for each in typed.shape.members if each.is_required]
        missing = [name for name in missing if name not in named]
        if missing or set(named) - set(known):
            raise TableError(
                f"expected columns of {', '.join(known)}, as the schema has them, to write a queue,"
                f" found {', '.join(named)}"
            )
        return
    is_text = all(each in ("binary", "string") for each in named.values())
    if not is_text or set(named) not in ({"payload"}, set(PAIR)):
        raise TableError(
            "expected columns index and payload, or payload alone, or key and value, of binary or"
            " string, or the option schema, to write a queue,"
            f" found {', '.join(f'{n} {t}' for n, t in named.items())}"
        )


def _check_columns(schema: StructType, queue_column: str | None) -> None:
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    wanted = {name: type_of(name, "raw") for name in _NEEDED}
    if queue_column is not None:
        if queue_column in wanted:
            raise OptionError("queueColumn", "a column beside index and payload", queue_column)
        wanted[queue_column] = type_of("queue", "raw")
    for name, expected in wanted.items():
        if found.get(name) != expected:
            raise TableError(
                f"expected a column {name} of {expected} to write a queue,"
                f" found {found.get(name, 'none')}"
            )
    for name in found:
        if name not in COLUMNS and name != queue_column:
            raise TableError(f"expected columns of {', '.join(COLUMNS)}, found {name}")


def _target(path: Path, options: WriteOptions, overwrite: bool) -> Target:
    target = Target(
        path=path,
        layout=target_layout(path, options.roll_cycle, _path(options.like)),
        is_existing_refused=options.is_existing_refused,
        is_synced=options.is_synced,
    )
    if overwrite and _has_excerpts(path):
        raise OptionError("mode", "append, as the queue holds excerpts", "overwrite")
    return target


def _queue_set(path: Path, column: str, options: WriteOptions, overwrite: bool) -> QueueSet:
    queues = QueueSet(
        folder=path,
        column=column,
        roll_cycle=options.roll_cycle,
        like=_path(options.like),
        is_empty_wanted=overwrite,
        is_existing_refused=options.is_existing_refused,
        is_synced=options.is_synced,
    )
    queues.check()
    return queues


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _has_excerpts(path: Path) -> bool:
    if not holds_queue(path):
        return False
    with Queue.open(path) as queue:
        return queue.first_index() is not None
