"""An excerpt's place, the start of its cycle and the hash of its payload, as columns."""

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cqrepl.spark import in_index_order
from tests.spark.queries import drained
from tests.spark.queues import CYCLE, make_queue, payload

ALL = "queue,index,cycle,sequence,timestamp,file,position,length,hash,payload"


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_queue(tmp_path_factory.mktemp("queue") / "orders", (300, 20))


def load(spark: SparkSession, path: Path, columns: str) -> DataFrame:
    return spark.read.format("chronicle").option("columns", columns).load(str(path))


def test_all_columns(spark: SparkSession, queue: Path) -> None:
    frame = load(spark, queue, ALL)
    assert frame.columns == ALL.split(",")
    rows = frame.orderBy("index").collect()
    assert len(rows) == 320
    for number, row in enumerate(rows):
        ahead = int(number >= 300)
        assert bytes(row["payload"]) == payload(number)
        assert bytes(row["hash"]) == hashlib.blake2b(payload(number), digest_size=16).digest()
        assert row["length"] == len(payload(number))
        assert row["file"] == f"2023111{4 + ahead}F.cq4"
        data = (queue / row["file"]).read_bytes()
        start = row["position"] + 4
        assert data[start : start + row["length"]] == payload(number)
    days = {row["timestamp"] for row in load(spark, queue, "timestamp").collect()}
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=CYCLE)
    wanted = {start, start + timedelta(days=1)}
    assert {day.astimezone(UTC) for day in days} == wanted


def test_the_usual_columns_stay_what_they_were(spark: SparkSession, queue: Path) -> None:
    frame = spark.read.format("chronicle").load(str(queue))
    assert frame.columns == ["queue", "index", "cycle", "sequence", "payload"]


def test_a_watermark_over_the_cycles(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    """Windows that a later cycle has closed come out, and the last one does not yet."""
    stream = spark.readStream.format("chronicle").option("columns", "index,timestamp")
    frame = stream.option("maxCyclesPerBatch", "1").load(str(queue))
    counted = frame.withWatermark("timestamp", "1 hour").groupBy("timestamp").count()
    drained(counted, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [row["count"] for row in rows] == [300]


def test_a_copy_may_have_them_too(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    frame = in_index_order(load(spark, queue, ALL), 2)
    writing = frame.write.format("chronicle").option("like", str(queue)).mode("append")
    writing.save(str(tmp_path / "copy"))
    assert load(spark, tmp_path / "copy", "index").count() == 320


def test_a_stream_in_index_order(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("chronicle").option("splitExcerpts", "50").load(str(queue))
    drained(in_index_order(stream, 4), tmp_path, "chronicle", tmp_path / "copy", like=str(queue))
    rows = load(spark, tmp_path / "copy", "index,payload").orderBy("index").collect()
    assert [bytes(row["payload"]) for row in rows] == [payload(n) for n in range(320)]
