"""Queues in SQL: views, and the function chronicle_range."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.queues import FIRST, make_queue, payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_queue(tmp_path_factory.mktemp("queue") / "orders", (300, 20))


def test_a_view(spark: "SparkSession", queue: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW seen USING chronicle OPTIONS (path '{queue}')")
    try:
        rows = spark.sql("SELECT index, payload FROM seen ORDER BY index").collect()
        assert [bytes(row["payload"]) for row in rows] == [payload(n) for n in range(320)]
    finally:
        spark.catalog.dropTempView("seen")


def test_a_table_of_the_catalog_is_refused(spark: "SparkSession", queue: Path) -> None:
    """Spark would make it, and then read it without its path."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW name USING chronicle"):
        spark.sql(f"CREATE TABLE kept USING chronicle OPTIONS (path '{queue}')")
    assert not spark.catalog.tableExists("kept")


def test_a_range_of_a_queue(spark: "SparkSession", queue: Path) -> None:
    text = f"SELECT * FROM chronicle_range('{queue}', '{FIRST + 290:#x}', {FIRST + 295})"
    rows = spark.sql(text).collect()
    assert [row["index"] for row in rows] == list(range(FIRST + 290, FIRST + 295))
    assert [bytes(row["payload"]) for row in rows] == [payload(n) for n in range(290, 295)]
    assert {row["queue"] for row in rows} == {"orders"}


def test_a_range_with_columns_and_without_bounds(spark: "SparkSession", queue: Path) -> None:
    text = f"chronicle_range('{queue}', NULL, NULL, 'timestamp,position,index')"
    frame = spark.sql(f"SELECT * FROM {text}")
    assert frame.columns == ["timestamp", "position", "index"]
    source = spark.read.format("chronicle").option("columns", "timestamp,position,index")
    assert frame.collect() == source.load(str(queue)).orderBy("index").collect()
    (row,) = spark.sql(f"SELECT count(*) n FROM {text} WHERE index < {FIRST + 7}").collect()
    assert row["n"] == 7


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
    spark: "SparkSession", queue: Path, arguments: str, told: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as raised:
        spark.sql(f"SELECT * FROM chronicle_range({arguments.format(q=queue)})").collect()
    assert told in str(raised.value)
    assert "Traceback" not in str(raised.value)
