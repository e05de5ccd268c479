"""The scan in Java reads what the source in Python reads, and no more than a query asks for."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cqrepl.console import exitcodes
from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import Queue
from cqrepl.spark import register
from cqrepl.spark.failures import failure_of
from cqrepl.spark.scanjar import JAR, VARIABLE, wanted_scan
from cqrepl.spark.typedschema import COLUMNS
from tests.spark.queries import drained
from tests.spark.queues import CYCLE, DAY_MS, FIRST, break_at, excerpts, make_queue
from tests.support.damage import Mutation, samples
from tests.support.goldens import READABLE, unpack
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S

NATIVE, PYTHON = "chronicle", "chronicle_python"
Rows = list[tuple[Any, ...]]


def frame(spark: SparkSession, path: Path | str, source: str = NATIVE, **options: Any) -> DataFrame:
    options = {"columns": ",".join(COLUMNS), **options}
    return spark.read.format(source).options(**options).load(str(path))


def read(spark: SparkSession, path: Path | str, source: str, **options: Any) -> Rows | None:
    """The rows in their order; None where there is an error."""
    try:
        found = frame(spark, path, source, **options).collect()
    except PySparkException:
        return None
    return sorted(tuple(row) for row in found)


def is_native(found: DataFrame) -> bool:
    plan = found._jdf.queryExecution().executedPlan().toString()
    return "ColumnarToRow" in plan or "LocalTableScan" in plan


@pytest.fixture(autouse=True)
def _has_the_jar() -> None:
    assert JAR.exists(), "make spark-jar"


def test_the_scan_is_the_one_in_java(spark: SparkSession, tmp_path: Path) -> None:
    path = make_queue(tmp_path / "orders", [10])
    assert is_native(frame(spark, path))
    assert not is_native(frame(spark, path, PYTHON))


def test_golden_queues_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    read_of = 0
    for nth, name in enumerate(READABLE):
        path = unpack(name, tmp_path)
        form = ("raw", "text")[nth % 2]
        options = {"payload": form, "splitBytes": "4KiB", "splitExcerpts": "7"}
        expected = read(spark, path, PYTHON, **options)
        assert read(spark, path, NATIVE, **options) == expected, name
        read_of += expected is not None
    assert read_of > len(READABLE) // 2


def test_damaged_queues_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    """A damaged index page alone is no reason for the scan in Java to give up a queue whose
    excerpts other pages, or the end, prove; its rows are those of the queue before."""
    chance, refused, some = random.Random(48), 0, samples(tmp_path / "samples")
    for nth in range(16):
        sample = chance.choice(some)
        area = chance.choice(["headers", "headers", "index", "payload"])
        kind = chance.choice(["flip", "absurd", "zero word", "cut"])
        target, whole = tmp_path / f"{nth}" / "queue", tmp_path / f"{nth}" / "whole" / "queue"
        for path, files in (
            (target, Mutation(area, kind, nth).apply(sample)),
            (whole, sample.files),
        ):
            path.mkdir(parents=True)
            for name, data in files.items():
                (path / name).write_bytes(data)
        expected, found = read(spark, target, PYTHON), read(spark, target, NATIVE)
        is_proved = area == "index" and expected is None and found == read(spark, whole, PYTHON)
        assert found == expected or is_proved, (nth, sample.name, area, kind)
        refused += expected is None
    assert 3 < refused < 16


def test_a_length_that_comes_into_step_again_is_no_excerpt(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two excerpts made one: every index behind them is wrong by one."""
    path = make_queue(tmp_path / "orders", [3000])
    (store,) = path.glob("*.cq4")
    data = bytearray(store.read_bytes())
    at = data.index(b"excerpt %012d" % 700) - 4
    length = int.from_bytes(data[at : at + 4], "little")
    data[at : at + 4] = (length + 4 + (-length % 4) + length).to_bytes(4, "little")
    store.write_bytes(data)
    assert read(spark, path, PYTHON) is None
    assert read(spark, path, NATIVE) is None


CONDITIONS: list[Callable[[], Any]] = [
    lambda: F.col("index") >= FIRST + 20,
    lambda: F.col("index") == FIRST + 3,
    lambda: F.lit(FIRST + 5) > F.col("index"),
    lambda: (F.col("index") > FIRST + 2) & (F.col("sequence") % 2 == 0),
    lambda: F.col("cycle") > CYCLE,
    lambda: F.col("cycle").isin(CYCLE, CYCLE + 2),
    lambda: F.col("timestamp") >= F.timestamp_millis(F.lit((CYCLE + 1) * DAY_MS)),
    lambda: F.col("timestamp") > F.timestamp_millis(F.lit((CYCLE + 1) * DAY_MS)),
    lambda: F.col("timestamp") < F.timestamp_millis(F.lit((CYCLE + 1) * DAY_MS + 1)),
    lambda: F.col("queue") == "us",
    lambda: F.col("queue").isin("eu", "none"),
    lambda: F.col("index") < -1,
    lambda: F.col("index").isNotNull() & (F.col("index") > 2**63 - 1),
    lambda: (F.col("index") < FIRST + 4) | (F.col("queue") == "us"),
]


@pytest.fixture
def two(tmp_path: Path) -> str:
    make_queue(tmp_path / "eu", [30, 0, 40])
    make_queue(tmp_path / "us", [10, 20, 5])
    return str(tmp_path / "*")


def test_filters_leave_the_same_rows(spark: SparkSession, two: str) -> None:
    whole, plain = frame(spark, two), frame(spark, two, PYTHON)
    for nth, condition in enumerate(CONDITIONS):
        expected = plain.filter(condition())
        rows = sorted(map(tuple, expected.collect()))
        narrowed = whole.filter(condition())
        assert sorted(map(tuple, narrowed.collect())) == rows, nth
        assert narrowed.count() == len(rows), nth
        assert whole.count() == 105  # a filter of one query is none of the next


def test_one_frame_twice_in_a_query(spark: SparkSession, two: str) -> None:
    """Spark's own pushdown into sources in Python gets these wrong (test_spark_bugs)."""
    whole = frame(spark, two)
    some = whole.filter(F.col("index") >= FIRST + 20)
    count = some.count()
    assert some.union(whole).count() == count + 105
    assert whole.join(some, ["queue", "index"], "left").count() == 105


def test_totals_are_read_from_index_pages(spark: SparkSession, two: str) -> None:
    wanted = [F.count("*"), F.count("payload")]
    wanted += [each(name) for name in COLUMNS[:5] for each in (F.min, F.max)]
    for source in (frame(spark, two), frame(spark, two).filter("cycle = 19675")):
        totals = source.agg(*wanted)
        plan = totals._jdf.queryExecution().executedPlan().toString()
        assert "LocalTableScan" in plan
    totals, plain = frame(spark, two).agg(*wanted), frame(spark, two, PYTHON).agg(*wanted)
    assert totals.collect() == plain.collect()
    empty = frame(spark, two).filter("cycle = 5").agg(F.count("*"), F.min("index")).collect()
    assert [tuple(row) for row in empty] == [(0, None)]


def test_a_limit_reads_no_more_than_it_asks_for(spark: SparkSession, tmp_path: Path) -> None:
    path = make_queue(tmp_path / "orders", [400, 1000])
    break_at(max(path.glob("*.cq4")), 500)
    assert read(spark, path, NATIVE) is None
    found = frame(spark, path).limit(7).collect()
    assert [row["index"] for row in found] == [FIRST + nth for nth in range(7)]


def test_a_frame_is_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    path = make_queue(tmp_path / "orders", [10])
    of_load = frame(spark, path)
    of_action = frame(spark, path, snapshot="action")
    make_queue(path, [5])
    assert (of_load.count(), of_action.count()) == (10, 15)
    make_queue(path, [5])
    assert (of_load.count(), of_action.count(), len(of_action.collect())) == (10, 15, 15)
    assert frame(spark, path).count() == 20


def test_a_file_that_is_cut_meanwhile_ends_the_task_in_a_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = make_queue(tmp_path / "orders", [20_000])
    (store,) = path.glob("*.cq4")
    rows = frame(spark, path, splitBytes="64KiB", maxPartitions=1000).toLocalIterator()
    assert next(rows)["index"] == FIRST
    with store.open("r+b") as file:
        file.truncate(400_000)
    with pytest.raises(Py4JError) as raised:  # Spark's own iterator leaves its stack on
        list(rows)
    reason = failure_of(str(raised.value))
    assert "expected a document within the file's 400000 bytes" in str(reason)
    assert reason.code == exitcodes.DAMAGED
    with pytest.raises(PySparkException, match="expected") as plain:
        frame(spark, path).collect()
    assert "\tat " not in str(plain.value)


def test_another_queue_at_the_same_path_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = make_queue(tmp_path / "orders", [20_000])
    other = make_queue(tmp_path / "other", [20_000], start=1)
    rows = frame(spark, path, splitBytes="64KiB", maxPartitions=1000).toLocalIterator()
    assert next(rows)["index"] == FIRST
    path.rename(tmp_path / "away")
    other.rename(path)
    with pytest.raises(Py4JError, match="found another one at the same path"):
        list(rows)


def test_no_file_stays_open_or_mapped(spark: SparkSession, tmp_path: Path) -> None:
    path = make_queue(tmp_path / "orders", [1000])
    assert len(frame(spark, path).collect()) == 1000
    pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # a session has one
    # and its JVM
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    for each in {pid, jvm}:
        assert str(path) not in Path(f"/proc/{each}/maps").read_text()
        opened = [str(link.resolve()) for link in Path(f"/proc/{each}/fd").iterdir()]
        assert not [name for name in opened if name.startswith(str(path))]


def test_a_stream_changes_its_source_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Checkpoints of one source are those of the other, both ways."""
    path = make_queue(tmp_path / "orders", [100, 50])
    wanted = 0
    for nth, source in enumerate((PYTHON, NATIVE, PYTHON, NATIVE)):
        stream = spark.readStream.format(source).option("maxExcerptsPerBatch", 40)
        drained(stream.load(str(path)), tmp_path, "parquet")
        found = spark.read.parquet(str(tmp_path / "out")).orderBy("index").collect()
        assert [(row["index"], bytes(row["payload"])) for row in found] == excerpts(path), source
        assert len(found) > wanted
        wanted = len(found)
        make_queue(path, [0] * (nth + 1) + [30])


def test_the_progress_of_a_stream_says_how_far_it_is_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = make_queue(tmp_path / "orders", [100])
    stream = spark.readStream.format(NATIVE).option("maxExcerptsPerBatch", 60).load(str(path))
    query = drained(stream, tmp_path, "noop")
    told = [json["sources"][0]["metrics"] for json in query.recentProgress if json.numInputRows]
    assert [each["excerptsBehind"] for each in told] == ["40", "0"]
    assert told[0]["oldestCycleBehind"].startswith("2023-11-14T00:00:00")
    assert int(told[0]["bytesBehind"]) > 40 * 40


def test_writing_without_the_source_in_python_says_so(spark: SparkSession, tmp_path: Path) -> None:
    other = spark.newSession()
    path = make_queue(tmp_path / "orders", [10])
    assert frame(other, path).count() == 10
    rows = other.createDataFrame([(FIRST, b"x")], "index bigint, payload binary")
    try:
        with pytest.raises(PySparkException, match=r"expected cqrepl.spark.register\(spark\)"):
            rows.write.format(NATIVE).mode("append").save(str(tmp_path / "copy"))
    finally:
        register(spark)
    assert not (tmp_path / "copy").exists()


@pytest.fixture
def scan(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def choose(mode: str) -> None:
        monkeypatch.setenv(VARIABLE, mode)
        register(spark)

    yield choose
    monkeypatch.delenv(VARIABLE)
    register(spark)


def test_the_scan_is_chosen(
    spark: SparkSession, tmp_path: Path, scan: Callable[[str], None]
) -> None:
    path = make_queue(tmp_path / "orders", [10])
    for mode in ("python", "native", "auto"):
        scan(mode)
        assert is_native(frame(spark, path)) == (mode != "python")
        assert frame(spark, path).count() == 10
    with pytest.raises(BadArguments, match="expected auto, native or python, found 'java'"):
        scan("java")


def test_fields_come_from_the_source_in_python(
    spark: SparkSession, tmp_path: Path, scan: Callable[[str], None]
) -> None:
    path = make_queue(tmp_path / "orders", [10])
    text = '{"properties": {"qty": {"type": "integer"}}}'
    (path / "schema.json").write_text(text)
    for mode in ("python", "auto"):
        scan(mode)
        assert not is_native(spark.read.format("chronicle").load(str(path)))
        assert spark.read.format("chronicle").load(str(path)).where("_error is null").count() == 0
        assert spark.read.format("chronicle").option("schema", "none").load(str(path)).count() == 10
    scan("native")
    for options in ({}, {"schema": text}):
        with pytest.raises(PySparkException, match="option schema: expected CQREPL_SPARK_SCAN"):
            spark.read.format("chronicle").options(**options).load(str(path))


def test_a_jar_that_is_wanted_and_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cqrepl.spark.scanjar.JAR", tmp_path / "none.jar")
    assert wanted_scan() == "auto"
    monkeypatch.setenv(VARIABLE, "native")
    with pytest.raises(BadArguments, match="make spark-jar"):
        wanted_scan()


@pytest.mark.java
@pytest.mark.timeout(BUILD_TIMEOUT_S + 600)
def test_what_java_is_appending_is_read_alike(
    spark: SparkSession, java: JavaQueue, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    assert java.call("append", path, "TEST_SECONDLY", 0, 0, 0).exit == 0
    appending = java.start("append", path, "TEST_SECONDLY", 12_000, "0-300", 7, 3000)
    seen = 0
    while not appending.done() or not seen:
        found = frame(spark, path, splitExcerpts="500", splitBytes="4KiB")
        rows = sorted(map(tuple, found.collect()))
        seen += len(rows) > 0
        with Queue.open(path) as queue:
            end = rows[-1][1] + 1 if rows else queue.first_index() or 1
        assert rows == read(spark, path, PYTHON, toIndex=str(end))
    assert appending.result(60).exit == 0
    assert read(spark, path, NATIVE) == read(spark, path, PYTHON)
