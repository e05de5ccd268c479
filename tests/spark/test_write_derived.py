"""Rows that a query derives, written back into a queue exactly once."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import wire
from cqrepl.spark import schema_text
from tests.spark.queries import drained, forget_last_batch
from tests.spark.queues import excerpts, make_queue


@dataclass
class Signal:
    wire_event: ClassVar[str] = "signal"
    sym: str
    px: float


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


def test_pairs_and_fields_become_documents(spark: SparkSession, tmp_path: Path) -> None:
    path, out = make_queue(tmp_path / "orders", [60]), tmp_path / "signals"
    stream = spark.readStream.format("chronicle").option("maxExcerptsPerBatch", 40).load(str(path))
    fields = stream.selectExpr("concat('S', sequence) as sym", "sequence / 2 as px")
    told = {"rollCycle": "FAST_DAILY", "schema": schema_text(Signal)}
    drained(fields, tmp_path, "chronicle", out, **told)
    forget_last_batch(tmp_path / "checkpoint")
    drained(fields, tmp_path, "chronicle", out, **told)
    wanted = [wire.encode(Signal(f"S{number}", number / 2)) for number in range(60)]
    assert payloads(out) == wanted
    pairs = spark.range(0, 20, 1, 2).selectExpr(
        "concat('k', id) as key", "if(id = 3, null, cast(cast(id as string) as binary)) as value"
    )
    writing = pairs.write.format("chronicle").options(rollCycle="FAST_DAILY", writeId="pairs")
    writing.mode("append").save(str(tmp_path / "pairs"))
    found = [wire.decode(payload) for payload in payloads(tmp_path / "pairs")]
    assert found == [
        {"key": f"k{number}", "value": None if number == 3 else b"%d" % number}
        for number in range(20)
    ]


def test_fields_that_do_not_fit_append_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(9).selectExpr("if(id = 7, null, 'A') as sym", "1.5D as px", "id")
    writing = {"rollCycle": "FAST_DAILY", "writeId": "a", "schema": schema_text(Signal)}
    for columns, told in (
        (["sym", "px"], "expected fields of Signal: sym: str expected, null came"),
        (["sym"], "expected columns of sym, px, as the schema has them"),
        (["sym", "px", "id"], "expected columns of sym, px, as the schema has them"),
    ):
        chosen = frame.select(*columns).write.format("chronicle").options(**writing)
        with pytest.raises(PySparkException) as raised:
            chosen.mode("append").save(str(tmp_path / "out"))
        assert told in str(raised.value)
        assert "Traceback" not in str(raised.value)
    assert not (tmp_path / "out").exists()


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
