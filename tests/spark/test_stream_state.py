"""Of a stream it can be told how far it is in each of its queues, and how much it is behind."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cqrepl.queue import Queue
from cqrepl.spark.streamstate import stream_state
from cqrepl.spark.tableoptions import TableError
from tests.spark.queries import drained
from tests.spark.queues import CYCLE, DAY_MS, FIRST, make_queue


def test_rows_offsets_and_what_is_behind(spark: SparkSession, tmp_path: Path) -> None:
    for name, counts in (("busy", (300, 50)), ("quiet", (5,))):
        make_queue(tmp_path / "queues" / name, counts)
    pattern = f"{tmp_path}/queues/*"
    stream = spark.readStream.format("chronicle").option("maxExcerptsPerBatch", "200").load(pattern)
    query = drained(stream, tmp_path, "noop")
    first = next(each for each in query.recentProgress if each["numInputRows"])
    states = stream_state(first, pattern)
    assert [(each.queue, each.rows, each.behind) for each in states] == [
        ("busy", 195, 155), ("quiet", 5, 0),
    ]  # fmt: skip
    assert [each.next_index for each in states] == [FIRST + 195, FIRST + 5]
    assert sum(each.rows for each in states) == first["numInputRows"]
    with Queue.open(tmp_path / "queues" / "quiet") as queue:
        queue.append_many([b"more"] * 7, now_ms=(CYCLE + 3) * DAY_MS)
    last = [each for each in query.recentProgress if each["numInputRows"]][-1]
    assert [each.behind for each in stream_state(last, pattern)] == [0, 7]
    with pytest.raises(TableError, match="expected a path for queue 'busy'"):
        stream_state(last, tmp_path / "queues" / "quiet")
