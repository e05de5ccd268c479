"""Rows that a query derives, written back into a queue exactly once."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.queries import drained, forget_last_batch
from tests.spark.queues import excerpts, make_queue


def payloads(path: Path) -> list[bytes]:
    return [payload for _, payload in excerpts(path)]


def derived(spark: SparkSession, path: Path) -> DataFrame:
    stream = spark.readStream.format("chronicle").option("maxExcerptsPerBatch", 40)
    return stream.load(str(path)).selectExpr("concat('seen ', sequence) as payload")


def test_a_stream_that_repeats_batches_appends_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, out = make_queue(tmp_path / "orders", [100]), tmp_path / "seen"
    drained(derived(spark, path), tmp_path, "chronicle", out, rollCycle="FAST_DAILY")
    wanted = [b"seen %d" % number for number in range(100)]
    assert payloads(out) == wanted
    for _ in range(2):
        forget_last_batch(tmp_path / "checkpoint")
        drained(derived(spark, path), tmp_path, "chronicle", out)
        assert payloads(out) == wanted
    make_queue(path, [50])
    drained(derived(spark, path), tmp_path, "chronicle", out)
    assert payloads(out) == [b"seen %d" % number for number in range(150)]


def test_a_batch_is_appended_once_under_its_name(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = spark.range(0, 50, 1, 4).selectExpr("cast(id as string) as payload")
    for name in ("first", "first", "second", "first"):
        writing = frame.write.format("chronicle").options(rollCycle="FAST_DAILY", writeId=name)
        writing.mode("append").save(str(out))
    assert payloads(out) == [b"%d" % number for number in range(50)] * 2


def test_what_cannot_be_written_once_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) as payload")
    for columns, options, told in (
        (["payload"], {}, "option writeId: expected a name under which"),
        (["payload"], {"writeId": "a/b"}, "option writeId: expected a name of letters"),
        (["payload", "1 as price"], {"writeId": "a"}, "expected columns index and payload, or"),
        (["payload"], {"writeId": "a", "queueColumn": "payload"}, "option queueColumn: expected"),
    ):
        writing = frame.selectExpr(*columns).write.format("chronicle").mode("append")
        with pytest.raises(PySparkException) as raised:
            writing.options(rollCycle="FAST_DAILY", **options).save(str(tmp_path / "out"))
        assert told in str(raised.value)
    assert not (tmp_path / "out").exists()
