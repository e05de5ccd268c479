"""Queues in SQL: views, tables of the catalog, and the function chronicle_range."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from cqrepl.queue import Queue
from cqrepl.spark import register, tablekeeper
from tests.spark.queries import drained
from tests.spark.queues import CYCLE, DAY_MS, FIRST, excerpts, make_queue, payload


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_queue(tmp_path_factory.mktemp("queue") / "orders", (300, 20))


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """The name of a table, which is dropped at the end."""
    yield "kept"
    spark.sql("DROP TABLE IF EXISTS kept")


def test_a_table_of_the_catalog(spark: SparkSession, tmp_path: Path, table: str) -> None:
    """Its options are kept, what is appended later is read, and a queue outlives its table."""
    queue = make_queue(tmp_path / "my orders", (300, 20))
    spark.sql(
        f"CREATE TABLE {table} USING chronicle"
        f" OPTIONS (path '{queue}', columns 'index,payload', fromIndex '{FIRST + 7:#x}')"
    )
    count = f"SELECT count(*) FROM {table}"
    assert spark.table(table).columns == ["index", "payload"]
    assert spark.sql(count).collect() == [(313,)]
    make_queue(queue, (0, 5))
    assert spark.sql(count).collect() == [(318,)]
    assert spark.sql(f"{count} WITH (toIndex = '{FIRST + 9}')").collect() == [(2,)]
    held = excerpts(queue)
    spark.sql(f"DROP TABLE {table}")
    assert excerpts(queue) == held


def listed(queue: Path, *options: str) -> str:
    given = ", ".join([f"path '{queue}'", *options])
    return (
        "CREATE TABLE kept (payload string COMMENT 'what it says', index bigint NOT NULL)"
        f" USING chronicle OPTIONS ({given})"
    )


def test_a_table_whose_columns_are_listed(spark: SparkSession, queue: Path, table: str) -> None:
    """It has the columns in this order, its comments and its options, in other sessions too."""
    spark.sql(listed(queue, "payload 'text'", f"fromIndex '{FIRST + 7:#x}'"))
    assert spark.table(table).columns == ["payload", "index"]
    assert [field.nullable for field in spark.table(table).schema] == [True, False]
    described = spark.sql(f"DESCRIBE {table}").first()
    assert described is not None
    assert described["comment"] == "what it says"
    rows = spark.sql(f"SELECT * FROM {table} ORDER BY index").collect()
    assert [tuple(row) for row in rows[:1]] == [(payload(7).decode(), FIRST + 7)]
    assert len(rows) == 313
    other = spark.newSession()
    register(other)
    count = f"SELECT count(*) FROM {table} WITH (toIndex = '{FIRST + 9}')"
    assert other.sql(count).collect() == [(2,)]
    register(spark)


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_table_as_a_stream(
    spark: SparkSession, queue: Path, tmp_path: Path, table: str, is_listed: bool
) -> None:
    bare = f"CREATE TABLE {table} USING chronicle LOCATION '{queue}' COMMENT 'of a test'"
    spark.sql(listed(queue, "payload 'text'") if is_listed else bare)
    drained(spark.readStream.table(table), tmp_path)
    assert spark.read.parquet(str(tmp_path / "out")).select("index").distinct().count() == 320


def test_a_table_that_the_catalog_is_told_of(spark: SparkSession, queue: Path, table: str) -> None:
    columns = StructType([StructField("index", LongType())])
    spark.catalog.createTable(table, str(queue), "chronicle", columns)
    assert spark.table(table).count() == 320


@pytest.mark.parametrize("columns", ["", " (index bigint)"])
def test_a_table_that_gets_another_place(
    spark: SparkSession, queue: Path, tmp_path: Path, table: str, columns: str
) -> None:
    """The queue that its place names now is read, and not the one of before."""
    other = make_queue(tmp_path / "another one", (5, 2))
    spark.sql(f"CREATE TABLE {table}{columns} USING chronicle OPTIONS (path '{queue}')")
    spark.sql(f"ALTER TABLE {table} SET LOCATION '{other}'")
    assert spark.table(table).count() == 7
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (hash binary)")
    assert spark.sql(f"SELECT count(hash) FROM {table}").collect() == [(7,)]


def test_a_table_without_a_place_is_not_sparks_own(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    """Spark must not delete the queue that the table is given later, when the table is dropped."""
    queue = make_queue(tmp_path / "orders", (5, 2))
    spark.sql(f"CREATE TABLE {table} (index bigint) USING chronicle")
    is_told(spark, f"SELECT * FROM {table}", "expected a queue, found no metadata.cq4t")
    spark.sql(f"ALTER TABLE {table} SET LOCATION '{queue}'")
    assert spark.table(table).count() == 7
    spark.sql(f"DROP TABLE {table}")
    assert len(excerpts(queue)) == 7


@pytest.mark.parametrize("columns", ["", " (index bigint)"])
def test_a_table_of_several_queues(
    spark: SparkSession, queue: Path, tmp_path: Path, table: str, columns: str
) -> None:
    """The place that Spark chooses for it is none of them; one that its user has chosen is."""
    other, third = (make_queue(tmp_path / name, (5, 2)) for name in ("other", "third"))
    paths = json.dumps([str(queue), str(other)])
    spark.sql(f"CREATE TABLE {table}{columns} USING chronicle OPTIONS (paths '{paths}')")
    assert spark.table(table).count() == 327
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (hash binary)")
    assert spark.table(table).count() == 327
    spark.sql(f"ALTER TABLE {table} SET LOCATION '{third}'")
    assert spark.table(table).count() == 334
    spark.sql(f"DROP TABLE {table}")
    assert len(excerpts(third)) == 7
    spark.sql(
        f"CREATE TABLE {table}{columns} USING chronicle OPTIONS (path '{third}', paths '{paths}')"
    )
    assert spark.table(table).count() == 334


def test_queues_are_read_where_the_catalog_cannot_be_asked(
    spark: SparkSession, queue: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The catalog cannot be asked while the metastore is down, or where nothing can listen. The
    program is told so in one line."""

    def is_down(*_: object, **__: object) -> None:
        raise Py4JError("the metastore is down\nand more")

    def is_forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name, failing in ("_Listener", is_down), ("_start_callbacks", is_forbidden):
        with monkeypatch.context() as patched:
            patched.setattr(tablekeeper, "_served", set())
            patched.setattr(tablekeeper, name, failing)
            register(spark)
        assert spark.read.format("chronicle").load(str(queue)).count() == 320
    said = "tables whose columns are listed keep no options here: "
    assert caplog.messages == [
        f"{said}Spark: the metastore is down", f"{said}[Errno 13] Permission denied"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "option", "told"),
    [
        ("index bigint, price double", "", "option schema: expected columns of queue, index"),
        ("index string", "", "option schema: expected"),
        ("index bigint", ", fromIndxe 3", "option fromindxe: expected an option of chronicle"),
    ],
)
def test_what_a_listed_table_cannot_is_told_when_it_is_read(
    spark: SparkSession, queue: Path, table: str, columns: str, option: str, told: str
) -> None:
    spark.sql(f"CREATE TABLE {table} ({columns}) USING chronicle OPTIONS (path '{queue}'{option})")
    is_told(spark, f"SELECT * FROM {table}", told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("INSERT INTO kept SELECT * FROM kept", "a table of the catalog cannot be written"),
        ("INSERT OVERWRITE kept SELECT * FROM kept", "a table of the catalog cannot be written"),
        (
            "CREATE TABLE other USING chronicle OPTIONS (path '{q}') AS SELECT * FROM kept",
            "a table of the catalog cannot be written",
        ),
        ("CREATE TABLE other USING chronicle", "option path: expected the directory of a queue"),
        (
            "CREATE TABLE other USING chronicle OPTIONS (path '{q}', fromIndxe 3)",
            "option fromindxe: expected an option of chronicle, such as fromIndex",
        ),
        ("SELECT * FROM kept WITH (fromIndex = 'x')", "option fromIndex: expected an index"),
    ],
)
def test_what_a_table_cannot_is_told_in_one_line(
    spark: SparkSession, queue: Path, table: str, text: str, told: str
) -> None:
    spark.sql(f"CREATE TABLE {table} USING chronicle OPTIONS (path '{queue}')")
    held = excerpts(queue)
    is_told(spark, text.format(q=queue), told)
    assert excerpts(queue) == held
    assert not spark.catalog.tableExists("other")


def test_a_range_of_a_queue(spark: SparkSession, queue: Path) -> None:
    text = f"SELECT * FROM chronicle_range('{queue}', '{FIRST + 290:#x}', {FIRST + 295})"
    rows = spark.sql(text).collect()
    assert [row["index"] for row in rows] == list(range(FIRST + 290, FIRST + 295))
    assert [bytes(row["payload"]) for row in rows] == [payload(n) for n in range(290, 295)]
    assert {row["queue"] for row in rows} == {"orders"}


def test_a_range_with_columns_and_without_bounds(spark: SparkSession, queue: Path) -> None:
    text = f"chronicle_range('{queue}', NULL, NULL, 'timestamp,position,index')"
    frame = spark.sql(f"SELECT * FROM {text}")
    assert frame.columns == ["timestamp", "position", "index"]
    source = spark.read.format("chronicle").option("columns", "timestamp,position,index")
    assert frame.collect() == source.load(str(queue)).orderBy("index").collect()
    (row,) = spark.sql(f"SELECT count(*) n FROM {text} WHERE index < {FIRST + 7}").collect()
    assert row["n"] == 7


def test_a_range_of_another_queue_at_the_same_path(spark: SparkSession, tmp_path: Path) -> None:
    """An executor may see another queue at the path than the one that the range was planned with:
    the read fails."""
    first, second = make_queue(tmp_path / "q", (5, 5)), make_queue(tmp_path / "r", (5, 5), start=7)
    text = f"SELECT * FROM chronicle_range('{first}', '{FIRST + 2:#x}')"
    planned = spark.sql(text)
    with Queue.open(first) as growing:
        growing.append(b"more", now_ms=(CYCLE + 2) * DAY_MS)
    assert planned.count() == 9  # it has grown
    first.rename(tmp_path / "aside")
    second.rename(first)
    with pytest.raises(PySparkException, match="found another one at the same path: excerpt"):
        planned.collect()
    assert spark.sql(text).count() == 8


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("'{q}', 'x'", "option fromIndex: expected an index such as"),
        ("'{q}', NULL, NULL, 'price'", "option columns: expected some of queue, index"),
        ("'{q}-none'", "expected a queue directory, found none"),
        ("NULL", "option path: expected the directory of a queue"),
    ],
)
def test_a_range_that_cannot_be_is_told_in_one_line(
    spark: SparkSession, queue: Path, arguments: str, told: str
) -> None:
    is_told(spark, f"SELECT * FROM chronicle_range({arguments.format(q=queue)})", told)


def is_told(spark: SparkSession, text: str, told: str) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.sql(text).collect()
    assert told in str(raised.value)
    assert "Traceback" not in str(raised.value)
