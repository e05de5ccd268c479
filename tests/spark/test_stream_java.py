"""A stream over a queue that Java appends to and rolls, stopped and restarted at random points."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index, cycle_of
from tests.support.java import JavaQueue, require_java
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import Excerpts, read

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

ROLL_CYCLE = "TEST_SECONDLY"
RATE = 1200
QUERY_S = 300


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQueue]:
    require_java()
    with JavaQueue(props={"interop.blockSize": 1 << 20}) as queue:
        yield queue


def start(
    spark: SparkSession, path: Path, folder: Path, excerpts_max: int, *, to_end: bool = False
) -> StreamingQuery:
    stream = spark.readStream.format("chronicle").option("maxExcerptsPerBatch", excerpts_max)
    writing = stream.load(str(path)).writeStream.format("parquet")
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    if to_end:
        writing = writing.trigger(availableNow=True)
    return writing.start(str(folder / "out"))


def batches_in(folder: Path) -> int:
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


@pytest.mark.parametrize(
    ("stops", "count"), [(4, 12_000), pytest.param(20, 60_000, marks=pytest.mark.long)]
)
def test_a_stream_restarted_at_random_points_has_no_gap_and_no_double(
    spark: SparkSession, java: JavaQueue, tmp_path: Path, stops: int, count: int
) -> None:
    """The stream is stopped in the midst of anything, a random time after some batches."""
    path, numbers = tmp_path / "q", random.Random(20)
    assert java.call("append", path, ROLL_CYCLE, 0, 0, 0).exit == 0  # makes an empty queue
    committed_least = 0
    for nth in range(stops):
        appending = java.start("append", path, ROLL_CYCLE, count // stops, "0-300", nth, RATE)
        before, more = batches_in(tmp_path), numbers.randrange(3)
        committed_least += min(more, 1)
        query = start(spark, path, tmp_path, numbers.randrange(500, 5000))
        while (batches := batches_in(tmp_path)) < before + more:
            assert query.isActive, query.exception()
            if batches > before and appending.done():
                break  # there may be no more than that
            time.sleep(0.02)
        time.sleep(numbers.uniform(0.0, 1.5))
        query.stop()
        assert query.exception() is None
        assert appending.result(QUERY_S).exit == 0
    assert batches_in(tmp_path) >= committed_least > 2
    last = start(spark, path, tmp_path, count, to_end=True)
    assert last.awaitTermination(QUERY_S)
    frame = spark.read.parquet(str(tmp_path / "out")).orderBy("index")
    found: Excerpts = [(row["index"], bytes(row["payload"])) for row in frame.collect()]
    written = read(path)
    assert len(written) == count
    assert found == written
    with Queue.open(path) as queue:
        cycles = {cycle_of(Index(index), queue.cycles.shift) for index, _ in written}
    assert len(cycles) > count // RATE // 2
