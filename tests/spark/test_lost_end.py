"""A queue that has lost its last file, or the end of it, is not read as if that were all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cqrepl.cli.main import cli
from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.syncedmark import store_synced
from cqrepl.spark.jobs.lag import lag
from tests.spark.queries import drained
from tests.spark.queues import CYCLE, DAY_MS, FIRST, make_queue

THIRD = FIRST + (2 << 32)
NO_FILE = "expected a store file, as listing.highestCycle in metadata.cq4t says; it is not there"
SHORTER = "as synced.cqmark says; found 5 of 9"


def without_its_last_file(queue: Path) -> Path:
    sorted(queue.glob("*.cq4"))[-1].unlink()
    return queue


def with_an_older_last_file(queue: Path) -> Path:
    store_synced(queue, THIRD + 9)
    return queue


@pytest.fixture(params=[without_its_last_file, with_an_older_last_file])
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, int]:
    """The queue, what is said of it, and how many excerpts are left."""
    lose: Callable[[Path], Path] = request.param
    queue = lose(make_queue(tmp_path / "queue", (5, 5, 5)))
    return (queue, NO_FILE, 10) if lose is without_its_last_file else (queue, SHORTER, 15)


def is_told(told: str, work: Callable[[], Any]) -> None:
    with pytest.raises(PySparkException) as raised:
        work()
    assert told in str(raised.value)
    assert "on is unknown" in str(raised.value)
    assert "Traceback" not in str(raised.value)


def read(spark: SparkSession, queue: Path, **options: str) -> DataFrame:
    return spark.read.format("chronicle").options(**options).load(str(queue))


def test_batches_end_there(spark: SparkSession, lost: tuple[Path, str, int]) -> None:
    queue, told, left = lost
    end = THIRD + left - 10
    is_told(told, lambda: read(spark, queue).count())
    is_told(told, lambda: read(spark, queue, toIndex=str(end + 1)).count())
    assert read(spark, queue, toIndex=str(end)).count() == left  # all that is known
    assert read(spark, queue, toCycle=str(CYCLE + 1)).count() == 10
    function = f"SELECT * FROM chronicle_range('{queue}', NULL"
    is_told(told, lambda: spark.sql(f"{function})").count())
    assert spark.sql(f"{function}, '{end:#x}')").count() == left


def test_streams_stop_behind_what_is_left(
    spark: SparkSession, lost: tuple[Path, str, int], tmp_path: Path
) -> None:
    queue, told, left = lost

    def streamed(**options: str) -> int:
        stream = spark.readStream.format("chronicle").options(**options).load(str(queue))
        drained(stream.select("index"), tmp_path)
        return spark.read.parquet(str(tmp_path / "out")).count()

    is_told(told, streamed)
    assert streamed(failOnDataLoss="false") == left


def test_an_archive_says_what_it_does_not_have(
    spark: SparkSession, lost: tuple[Path, str, int], tmp_path: Path
) -> None:
    assert spark
    queue, told, _ = lost
    words = ["spark", "archive", str(queue), str(tmp_path / "out"), "--with-open"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 1, done.output
    assert f"{told}: it is not archived\n" in done.stdout


def test_a_log_that_has_lost_its_end(spark: SparkSession, lost: tuple[Path, str, int]) -> None:
    queue, told, _ = lost
    with pytest.raises(QueueDamaged, match=told):
        lag(spark, [queue])


def test_what_a_repair_gives_up_is_lost_no_more(spark: SparkSession, tmp_path: Path) -> None:
    """The repair leaves the mark of what was on the disk as it was."""
    queue = make_queue(tmp_path / "queue", (5, 5, 5))
    store_synced(queue, THIRD + 5)
    without_its_last_file(queue)
    is_told(NO_FILE, lambda: read(spark, queue).count())
    assert CliRunner().invoke(cli, ["repair", str(queue), "--apply"]).exit_code == 0
    assert read(spark, queue).count() == 10


def test_a_queue_that_is_written_has_lost_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Its last file may be one that is just being made, and what is on the disk goes behind."""
    queue = make_queue(tmp_path / "queue", (5, 5))
    store_synced(queue, THIRD - (1 << 32) + 2)
    (queue / "20231116F.cq4").write_bytes(bytes(1 << 16))
    assert read(spark, queue).count() == 10
    with Queue.open(tmp_path / "empty", create="FAST_DAILY") as empty:
        assert read(spark, empty.path).count() == 0
        empty.append(b"one", now_ms=CYCLE * DAY_MS)
        assert read(spark, empty.path).count() == 1
