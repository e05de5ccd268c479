"""Users of `format("chronicle")` are told the reason when something is wrong, and no stack."""

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from cqrepl.queue import Queue, QueueError
from cqrepl.spark.reasons import reason_only
from tests.spark.queries import drained
from tests.spark.queues import make_queue, payload


def _damage(path: Path) -> None:
    """Gives a document in the middle a length that leads out of the file."""
    (store,) = path.glob("*.cq4")
    data = bytearray(store.read_bytes())
    at = data.index(payload(500))
    data[at - 4 : at] = (0x0433_2211).to_bytes(4, "little")
    store.write_bytes(data)


def test_a_task_says_what_is_wrong_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    _damage(make_queue(tmp_path / "orders", [1000]))
    with pytest.raises(PySparkException) as raised:
        spark.read.format("chronicle").load(str(tmp_path / "orders")).collect()
    _check(str(raised.value), "expected a document within the file's")


def test_a_stream_says_what_is_wrong_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    _damage(make_queue(tmp_path / "orders", [1000]))
    frame = spark.readStream.format("chronicle").load(str(tmp_path / "orders"))
    with pytest.raises(StreamingQueryException) as raised:
        drained(frame, tmp_path, "noop")
    text = str(raised.value).partition("=== Streaming Query ===")[0]
    _check(text, "expected a document within the file's")


def test_what_nobody_meant_keeps_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "none")
    with pytest.raises(ZeroDivisionError), reason_only():
        _ = 1 // 0
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_only_a_worker_of_spark_is_told_anything(tmp_path: Path) -> None:
    with pytest.raises(QueueError), reason_only():
        Queue.open(tmp_path / "none")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def _check(text: str, said: str) -> None:
    """The reason is in the first line; Spark's own state may follow."""
    first, *rest = text.replace("worker:\n", "worker: ").strip().splitlines()
    assert said in first
    assert "Traceback" not in text
    assert all(line.strip().startswith("SQLSTATE:") for line in rest)
