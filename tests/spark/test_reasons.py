"""Users of `format("chronicle")` are told the reason when something is wrong, and no stack."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cqrepl.queue import Queue
from tests.spark.queues import FIRST, make_queue, payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Action = Callable[["SparkSession", str], object]


def _load(spark: "SparkSession", path: str, **options: str) -> object:
    return spark.read.format("chronicle").options(**options).load(path).collect()


def _write(spark: "SparkSession", path: str, columns: str) -> None:
    frame = spark.createDataFrame([(FIRST + 5000, bytearray(b"x"))], columns)
    frame.write.format("chronicle").mode("append").save(path)


def _damage(path: Path) -> None:
    """Gives a document in the middle a length that leads out of the file."""
    (store,) = path.glob("*.cq4")
    data = bytearray(store.read_bytes())
    at = data.index(payload(500))
    data[at - 4 : at] = (0x0433_2211).to_bytes(4, "little")
    store.write_bytes(data)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (lambda s, q: _load(s, q, fromIndx="1"), "option fromindx: expected an option of"),
        (lambda s, q: _load(s, q + "-none"), "expected a queue directory, found none"),
        (lambda s, q: _load(s, q + "-none*"), "option path: expected a pattern that a queue"),
        (lambda s, q: s.read.format("chronicle").schema("foo int").load(q).count(), "'foo'"),
        (lambda s, q: _write(s, q + "-new", "index long, payload binary"), "option rollCycle"),
        (lambda s, q: _write(s, q, "index long, bytes binary"), "expected a column payload"),
        (lambda s, q: _write(s, q, "index long, payload binary"), "expected index 0x4cdb000003e8"),
    ],
)
def test_what_is_said_stands_in_one_line(
    spark: "SparkSession", tmp_path: Path, action: Action, said: str
) -> None:
    from pyspark.errors import PySparkException

    make_queue(tmp_path / "orders", [1000])
    with pytest.raises(PySparkException) as raised:
        action(spark, str(tmp_path / "orders"))
    _check(str(raised.value), said)


def test_a_task_says_what_is_wrong_in_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    _damage(make_queue(tmp_path / "orders", [1000]))
    with pytest.raises(PySparkException) as raised:
        _load(spark, str(tmp_path / "orders"))
    _check(str(raised.value), "expected a document within the file's")


def test_a_stream_says_what_is_wrong_in_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    _damage(make_queue(tmp_path / "orders", [1000]))
    _check(_stream_error(spark, tmp_path), "expected a document within the file's")


def test_an_option_of_a_stream_is_told_too(spark: "SparkSession", tmp_path: Path) -> None:
    make_queue(tmp_path / "orders", [10])
    _check(_stream_error(spark, tmp_path, fromIndex="1"), "option fromindex: expected an option of")


def _stream_error(spark: "SparkSession", folder: Path, **options: str) -> str:
    """The error of a stream over the queue in a folder, without the state that Spark adds."""
    from pyspark.errors import StreamingQueryException

    frame = spark.readStream.format("chronicle").options(**options).load(str(folder / "orders"))
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    return str(raised.value).partition("=== Streaming Query ===")[0]


def test_what_nobody_meant_keeps_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from cqrepl.spark.reasons import reason_only

    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "none")
    with pytest.raises(ZeroDivisionError), reason_only():
        _ = 1 // 0
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_only_a_worker_of_spark_is_told_anything(tmp_path: Path) -> None:
    import os

    from cqrepl.queue import QueueError
    from cqrepl.spark.reasons import reason_only

    with pytest.raises(QueueError), reason_only():
        Queue.open(tmp_path / "none")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def _check(text: str, said: str) -> None:
    """The reason is in the first line; Spark's own state may follow."""
    first, *rest = text.replace("worker:\n", "worker: ").strip().splitlines()
    assert said in first
    assert "Traceback" not in text
    assert all(line.strip().startswith("SQLSTATE:") for line in rest)
