"""Writing queues by Spark, in batch and as streams: once, even if something fails in between."""

import os
import shutil
import signal
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from cqrepl.queue import Queue
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.spark import in_index_order, register
from cqrepl.spark.datasource import ChronicleSource
from cqrepl.spark.session import SessionSettings, session
from cqrepl.spark.tablewriter import ChronicleStreamWriter
from tests.spark.committing import record_batches
from tests.spark.queries import COLUMNS, QUERY_S, drained, forget_last_batch
from tests.support.processes import send
from tests.support.samples import Excerpts, fill, noon_index, read

DAY = "FAST_DAILY"
ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
CUTS = {"splitBytes": 1, "splitExcerpts": 100}


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, Excerpts]:
    path = tmp_path / "source"
    return path, fill(path, DAY, {0: 700, 1: 20, 4: 300})


def load(spark: SparkSession, path: Path, **options: int) -> DataFrame:
    return spark.read.format("chronicle").options(**{**CUTS, **options}).load(str(path))


def save(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("chronicle").options(**options).mode(mode).save(str(path))


def assert_nothing_is_staged(path: Path) -> None:
    staging = path.with_name(f".{path.name}.staging")
    assert not staging.exists() or not list(staging.iterdir())


def test_a_copy_is_the_same(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    save(load(spark, source[0]), copy, like=str(source[0]))
    assert read(copy) == source[1]
    assert_nothing_is_staged(copy)
    save(load(spark, source[0]), copy)
    assert read(copy) == source[1]


def test_a_queue_whose_creator_has_died(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    """A driver that was killed while it made the queue: the next run makes it."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (FILE_NAME, f"{FILE_NAME}.precreated.1"):
        (copy / name).write_bytes(b"")
        save(load(spark, source[0]), copy, mode="overwrite", like=str(source[0]))
        assert read(copy) == source[1]
        shutil.rmtree(copy)
        copy.mkdir()


def test_in_threads_without_an_active_session(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    """Spark finds what is written to only in the active session of a thread."""
    like = str(source[0])

    def ordered() -> None:
        save(in_index_order(load(spark, source[0]), 2), tmp_path / "ordered", like=like)

    def registered() -> None:
        register(spark)
        save(load(spark, source[0]), tmp_path / "registered", like=like)

    def in_session() -> None:
        with session(SessionSettings(), "a test") as found:
            assert found.sparkContext is spark.sparkContext
            save(load(found, source[0]), tmp_path / "in_session", like=like)
        assert SparkSession.getActiveSession() is None

    works = in_session, ordered, registered  # the first one certainly gets a new thread
    with ThreadPoolExecutor(len(works)) as threads:  # queues that are written at once
        for written in [threads.submit(work) for work in works]:
            written.result()
    for work in works:
        assert read(tmp_path / work.__name__) == source[1]


def test_rows_in_any_order(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    shuffled = load(spark, source[0]).select("payload", "index").repartition(3, "payload")
    with pytest.raises(PySparkException, match=r"expected 0x\w+ after 0x\w+ in a task"):
        save(shuffled, tmp_path / "copy", rollCycle=DAY)
    assert not (tmp_path / "copy").exists()
    assert_nothing_is_staged(tmp_path / "copy")
    save(in_index_order(shuffled, 3), tmp_path / "copy", rollCycle=DAY)
    assert read(tmp_path / "copy") == source[1]


def test_tasks_that_fail_and_workers_that_die(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    """Each task's first attempt raises, its second one ends the worker, in the middle of both."""
    attempts = tmp_path / "attempts"
    attempts.mkdir()

    def failing(rows: Iterable[Row]) -> Iterable[Row]:
        context = TaskContext.get()
        assert context is not None
        (attempts / f"{context.partitionId()} {context.attemptNumber()}").touch()
        for nth, row in enumerate(rows):
            yield row
            if nth == 150 and context.attemptNumber() == 0:
                raise RuntimeError("killed by the test")
            if nth == 150 and context.attemptNumber() == 1:
                os._exit(1)

    frame = load(spark, source[0])
    tried = spark.createDataFrame(frame.rdd.mapPartitions(failing), frame.schema)
    save(tried, tmp_path / "copy", rollCycle=DAY)
    assert read(tmp_path / "copy") == source[1]
    assert_nothing_is_staged(tmp_path / "copy")
    assert sum(each.name.endswith(" 2") for each in attempts.iterdir()) > 1


def test_a_commit_that_is_killed_half_way_is_completed_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    written = fill(tmp_path / "source", DAY, {0: 10_000, 1: 10_000})
    copy = tmp_path / "copy"
    Queue.open_for_append(copy, create=DAY).close()
    frame = load(spark, tmp_path / "source", splitExcerpts=10_000)
    spark.conf.set(ROWS_PER_BATCH, 50)
    try:
        with ThreadPoolExecutor() as pool:
            killing = pool.submit(kill_writer, copy, 5000)
            with pytest.raises(Py4JJavaError):
                save(frame, copy)
            assert killing.result() >= 5000
    finally:
        spark.conf.unset(ROWS_PER_BATCH)
    left = read(copy)
    assert left == written[: len(left)]
    assert 5000 <= len(left) < len(written)
    save(frame, copy)
    assert read(copy) == written
    assert_nothing_is_staged(copy)


def kill_writer(path: Path, length: int) -> int:
    deadline = time.monotonic() + QUERY_S
    with Queue.open(path) as queue:
        lock = queue.append_lock
        while (count := queue.count()) < length:
            assert time.monotonic() < deadline
        holder = lock.holder()
        assert holder is not None
        assert send(holder, signal.SIGKILL)
    return count


def test_another_appender_in_between(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    first, rest = source[1][299][0], source[1][300][0]
    save(load(spark, source[0], toIndex=rest), copy, rollCycle=DAY)
    with Queue.open(copy) as queue:
        cycle_ms = 86_400_000 * (first >> queue.cycles.shift)
        assert queue.append(b"foreign", now_ms=cycle_ms) == rest
    before = read(copy)
    with pytest.raises(PySparkException, match=f"diverged at {rest:#x}: stored"):
        save(load(spark, source[0], fromIndex=rest), copy)
    assert read(copy) == before


@pytest.mark.parametrize(
    ("options", "mode", "told"),
    [
        ({}, "append", "option rollCycle: expected one, or like, as there is no queue at"),
        ({"rollCycle": "DALY"}, "append", "option rollCycle: expected a roll cycle such as"),
        ({"rollCycle": DAY, "like": "x"}, "append", "option like: expected no rollCycle beside it"),
        ({"like": "none"}, "append", "expected a queue directory, found none"),
        ({"rolCycle": DAY}, "append", "option rolcycle: expected an option of writing, such as"),
        ({"path": "full"}, "overwrite", "option mode: expected append, as the queue holds"),
        ({"path": "full", "onExisting": "fail"}, "append", "expected indexes from 0x"),
    ],
)
def test_bad_options_are_told_in_one_sentence(
    spark: SparkSession,
    source: tuple[Path, Excerpts],
    tmp_path: Path,
    options: dict[str, str],
    mode: str,
    told: str,
) -> None:
    path = source[0] if "path" in options else tmp_path / "copy"
    given = {name: text for name, text in options.items() if name != "path"}
    with pytest.raises(PySparkException) as raised:
        save(load(spark, source[0]), path, mode, **given)
    assert told in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert read(source[0]) == source[1]


def test_columns_that_cannot_be_written(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    frame = load(spark, source[0])
    for columns, told in (
        (["index"], "expected a column payload of binary to write a queue, found none"),
        (["cast(index as int)", "payload"], "expected a column index of bigint"),
        (["index", "payload", "1 as price"], "expected columns of queue, index, .* found price"),
    ):
        with pytest.raises(PySparkException, match=told):
            save(frame.selectExpr(*columns), tmp_path / "copy", rollCycle=DAY)
    fill(tmp_path / "other", DAY, {7: 5})
    two = frame.union(load(spark, tmp_path / "other"))
    with pytest.raises(PySparkException, match="expected excerpts of one queue, found"):
        save(two, tmp_path / "copy", rollCycle=DAY)
    save(two.drop("queue"), tmp_path / "copy", rollCycle=DAY)
    assert read(tmp_path / "copy") == source[1] + read(tmp_path / "other")


def test_overwriting_begins_only_what_is_empty(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    Queue.open_for_append(tmp_path / "copy", create=DAY).close()
    save(load(spark, source[0]), tmp_path / "copy", "overwrite")
    assert read(tmp_path / "copy") == source[1]


def test_a_batch_of_a_stream_that_is_committed_three_times(
    tmp_path: Path, source: tuple[Path, Excerpts]
) -> None:
    """A lost commit log brings a batch again: with new writers and tasks, and the same number."""
    options = {"path": str(tmp_path / "copy"), "rollCycle": DAY, "checkpointlocation": "c"}
    for _ in range(3):
        tasks, commit = (
            ChronicleSource(options).streamWriter(COLUMNS, overwrite=False) for _ in "ab"
        )
        assert isinstance(tasks, ChronicleStreamWriter)
        assert isinstance(commit, ChronicleStreamWriter)
        halves = source[1][:500], source[1][500:]
        commit.commit([tasks.write(iter(record_batches(rows))) for rows in halves], 0)
        assert read(tmp_path / "copy") == source[1]
    again = ChronicleSource(options).streamWriter(COLUMNS, overwrite=False)
    assert isinstance(again, ChronicleStreamWriter)
    again.write(iter(record_batches(source[1])))
    again.abort([None], 1)
    assert_nothing_is_staged(tmp_path / "copy")


def test_spark_delivers_a_batch_three_times(
    spark: SparkSession, source: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    """Its entry in the commit log is removed, so Spark plans and runs it anew."""
    path, written = source
    copy = tmp_path / "copy"
    reading = spark.readStream.format("chronicle").options(maxExcerptsPerBatch=400, **CUTS)
    for again in range(3):
        drained(reading.load(str(path)), tmp_path, "chronicle", copy, rollCycle=DAY)
        assert read(copy) == written
        if again == 2:
            break
        forget_last_batch(tmp_path / "checkpoint")
        with Queue.open(path) as queue:
            cycle_ms = 86_400_000 * (noon_index(DAY, ahead=4) >> queue.cycles.shift)
            written.append((queue.append(b"more", now_ms=cycle_ms), b"more"))
    assert_nothing_is_staged(copy)
