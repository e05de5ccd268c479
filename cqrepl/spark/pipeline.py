"""One run of a pipeline: queues are compared with their copies, archived and released; then tables.

Theory of operation. Each step can be repeated: an audit changes nothing, an archive adds what it
does not have, and a table is a stream with a checkpoint. So a run that was killed is begun again.
The state is a queue: each run appends a row for each step that it has done, and holds the queue's
append lock, so there is one run at a time. A row of an audit says up to which index all copies were
the same; the next run begins behind it, and a closed cycle is compared once.

A queue that differs from a copy, lost its end, or cannot be read is not archived and not released
any further; the others go on, and the run ends with an error that names it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cqrepl.queue import Appender, Queue, QueueError, QueueLayout, format_index
from cqrepl.queue.format.index import Index, cycle_of
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.lostends import check_end
from cqrepl.spark.pipelinefile import VIEW, PipelinePlan, QueuesPlan, TablePlan
from cqrepl.spark.queuefinder import Finder
from cqrepl.spark.ranges import present
from cqrepl.spark.staging import Target, exclusive_appender
from cqrepl.spark.tableoptions import QueueChoice
from cqrepl.spark.typedschema import ERROR
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Row = dict[str, Any]
_MISFITS: Final = "misfits of "
_STATE_ROLL: Final = "FAST_DAILY"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """The rows of a run, and what was wrong: a line for each queue or table that did not go on."""

    rows: tuple[Row, ...]
    faults: tuple[str, ...]


def run_pipeline(spark: "SparkSession", plan: PipelinePlan) -> PipelineRun:
    """Does all that a pipeline has to do now.

    Raises:
        QueueLocked: another run is busy with this state.
        QueueError: the state cannot be read or written.
        JobFailed: Spark has ended.
    """
    with _state(plan.state) as appender:
        done = latest_rows(plan.state)
        rows: list[Row] = []
        faults: list[str] = []

        def say(row: Row) -> None:
            told = {"v": 1, "at_ms": surroundings().wall_ms(), **row}
            appender.append_one(json.dumps(told).encode())
            rows.append(told)
            if told.get("fault"):
                faults.append(told["fault"])

        for queues in plan.queues:
            found = Finder(QueueChoice(paths=(queues.pattern,), name=None)).find()
            if not found:
                say(
                    {
                        "step": "find",
                        "queue": queues.pattern,
                        "fault": f"{queues.pattern}: no queue is there",
                    }
                )
            for name, path in found.items():
                for row in _steps_of(spark, queues, name, path, done):
                    say(row)
        for table in plan.tables:
            say(_table(spark, plan, table))
    return PipelineRun(rows=tuple(rows), faults=tuple(faults))


def latest_rows(state: Path) -> dict[tuple[str, str], Row]:
    """The last row of each step of each queue or table, by both.

    Raises:
        QueueError: there is no state, or it cannot be read.
    """
    found: dict[tuple[str, str], Row] = {}
    with Queue.open(state) as queue:
        for excerpt in queue.tailer():
            row = json.loads(bytes(excerpt))
            kept = found.get((row["queue"], row["step"]), {})
            found[row["queue"], row["step"]] = {"index_last": kept.get("index_last", 0), **row}
    return found


@contextmanager
def _state(path: Path) -> Iterator[Appender]:
    layout = QueueLayout.of(by_name(_STATE_ROLL))
    with exclusive_appender(Target(path=path, layout=layout)) as appender:
        yield appender


def _steps_of(
    spark: "SparkSession", plan: QueuesPlan, name: str, path: Path, done: dict[tuple[str, str], Row]
) -> Iterator[Row]:
    """The rows of the steps of one queue; a fault ends them."""
    from cqrepl.spark.failures import JobFailed
    from cqrepl.spark.jobs.archive import archive
    from cqrepl.spark.jobs.archiveplace import ArchiveChanged
    from cqrepl.spark.jobs.archiveplan import ArchiveDiffers

    row: Row = {"queue": str(path), "name": name}
    step = "lag"
    try:
        with Queue.open(path) as queue:
            check_end(queue)
            ranges = present(queue)
            ended, shift = queue.cycles.has_ended, queue.cycles.shift
            closed = [one for one in ranges if ended(cycle_of(Index(one.index_last), shift))]
        count, held = sum(one.count for one in ranges), sum(one.count for one in closed)
        yield {**row, "step": step, "excerpts": count, "open": count - held}
        step = "audit"
        copies = plan.copies_of(name)
        if copies and closed:
            after = done.get((str(path), step), {}).get("index_last", 0)
            yield _audit(spark, path, copies, after + 1, closed[-1].index_last, row)
        step = "archive"
        out = plan.archive_of(name)
        if out is not None and closed:
            manifest, new = archive(spark, path, out, verify=True, holds=plan.release or None)
            last = manifest.cycles[-1].index_last if manifest.cycles else 0
            yield {
                **row,
                "step": step,
                "archive": out,
                "cycles": len(manifest.cycles),
                "new": new,
                "index_last": last,
            }
    except _Differs as error:
        yield {**row, "step": step, "fault": str(error)}
    except (QueueError, JobFailed, ArchiveDiffers, ArchiveChanged, OSError) as error:
        text = " ".join(str(error).splitlines())
        yield {**row, "step": step, "fault": text if str(path) in text else f"{path}: {text}"}


class _Differs(Exception):
    """A copy is not what its queue is."""


def _audit(
    spark: "SparkSession", path: Path, copies: list[Path], first: int, last: int, row: Row
) -> Row:
    """The row of an audit up to a closed cycle's end.

    Raises:
        _Differs: a copy differs, or is not there yet up to that.
    """
    from cqrepl.spark.jobs.audit import audit

    if first > last:
        return {**row, "step": "audit", "excerpts": 0, "index_last": last}
    found = audit(spark, [path, *copies], index_first=first, index_last=last)
    if not found.is_same:
        one = found.differences[0]
        span = f"{format_index(one.index_first)} to {format_index(one.index_last)}"
        raise _Differs(
            f"{path}: {one.verdict.value} from {span}, of copies {', '.join(map(str, copies))}"
        )
    return {**row, "step": "audit", "excerpts": found.count, "read": found.read, "index_last": last}


def _misfits_of(query: "StreamingQuery") -> dict[str, int]:
    """The number of documents that did not fit the schema of a view, if the query has read one."""
    found = [
        row[0]
        for each in query.recentProgress
        for name, row in each.observedMetrics.items()
        if name.startswith(_MISFITS)
    ]
    return {"misfits": sum(found)} if found else {}


def _make_views(spark: "SparkSession", plan: PipelinePlan) -> None:
    """Streams over the queues, which statements read: all payloads, and the fields of some."""
    from pyspark.sql.functions import count

    reading = spark.readStream.format("chronicle")
    paths = json.dumps([queues.pattern for queues in plan.queues])
    reading.options(paths=paths, schema="none").load().createOrReplaceTempView(VIEW)
    for queues in plan.queues:
        typed = queues.typed
        if typed is not None:
            fields = spark.readStream.format("chronicle").option("schema", typed.schema)
            if typed.event is not None:
                fields = fields.option("event", typed.event)
            counted = fields.load(queues.pattern).observe(_MISFITS + typed.name, count(ERROR))
            counted.createOrReplaceTempView(typed.name)


def _table(spark: "SparkSession", plan: PipelinePlan, table: TablePlan) -> Row:
    """The row of a table, which takes what the queues hold now."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from cqrepl.spark.failures import failure_of

    row: Row = {"queue": table.name, "name": table.name, "step": "table", "path": table.path}
    try:
        _make_views(spark, plan)
        writing = spark.sql(table.sql).writeStream.trigger(availableNow=True)
        checkpoint = plan.state.absolute().with_name(f"{plan.state.name}.tables") / table.name
        writing = writing.option("checkpointLocation", str(checkpoint))
        if table.roll_cycle is not None:
            writing = writing.option("rollCycle", table.roll_cycle)
        if table.schema is not None:
            writing = writing.option("schema", table.schema)
        query = writing.format({"queue": "chronicle"}.get(table.to, table.to)).start(table.path)
        query.awaitTermination()
        rows = sum(each.numInputRows for each in query.recentProgress)
    except (PySparkException, Py4JError) as error:
        return {**row, "fault": f"table {table.name}: {failure_of(str(error))}"}
    return {**row, "rows": rows, **_misfits_of(query)}
