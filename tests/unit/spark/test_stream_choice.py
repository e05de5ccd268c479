"""The places where a stream begins in each queue, and batches that wait for more excerpts."""

import json
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import Queue, index_of
from cqrepl.queue.format.index import Cycle, Sequence
from cqrepl.spark import streamreader
from cqrepl.spark.offsets import positions_of
from cqrepl.spark.scanserver import ScanServer
from cqrepl.spark.streamreader import ChronicleStreamReader
from cqrepl.spark.tableoptions import OptionError, bounds, read_options, stream_options
from tests.spark.queues import CYCLE, DAY_MS, FIRST, make_queue

streaming = pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="this pyspark streams from no Python data source"
)


@pytest.fixture
def two(tmp_path: Path) -> str:
    make_queue(tmp_path / "eu", [30, 40])
    make_queue(tmp_path / "us", [10, 20])
    return str(tmp_path / "*")


def reader(path: str, **options: str) -> ChronicleStreamReader:
    given = {"path": path, **options}
    return ChronicleStreamReader(read_options(given), stream_options(given), None)


def at(cycle: int, sequence: int) -> int:
    return index_of(Cycle(CYCLE + cycle), Sequence(sequence), 32)


@pytest.mark.parametrize(
    ("options", "eu", "us"),
    [
        ({}, FIRST, FIRST),
        ({"startingIndex": "latest"}, at(1, 40), at(1, 20)),
        ({"startingIndex": json.dumps({"us": "latest"})}, FIRST, at(1, 20)),
        (
            {"startingIndex": json.dumps({"*": "latest", "eu": hex(FIRST + 3)})},
            FIRST + 3,
            at(1, 20),
        ),
        ({"startingTimestamp": "2023-11-15T10:00Z"}, at(1, 0), at(1, 0)),
        ({"startingTimestamp": "2030-01-01"}, at(1, 40), at(1, 20)),
    ],
)
def test_a_stream_begins_where_it_is_told(
    two: str, options: dict[str, str], eu: int, us: int
) -> None:
    assert (CYCLE + 1) * DAY_MS == 1_700_006_400_000  # 2023-11-15
    assert positions_of(reader(two, **options).initialOffset()) == {"eu": eu, "us": us}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingIndex": '{"asia": "latest"}'}, "startingIndex: expected names among eu, us"),
        ({"startingIndex": '{"eu": 5}'}, "startingIndex: expected earliest, latest, an index, or"),
        ({"startingIndex": "{"}, "startingIndex: expected earliest, latest, an index, or JSON"),
        ({"startingIndex": "5", "startingTimestamp": "2023-11-15"}, "expected no startingIndex"),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay: expected minExcerptsPerBatch beside it"),
        ({"minExcerptsPerBatch": "5", "maxTriggerDelay": "5d"}, "maxTriggerDelay: expected a time"),
        ({"minExcerptsPerBatch": "5", "maxExcerptsPerBatch": "4"}, "at most maxExcerptsPerBatch"),
    ],
)
def test_what_cannot_be_is_told(two: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        reader(two, **options).initialOffset()


def test_bounds_of_a_batch_may_be_of_each_queue(two: str) -> None:
    with Queue.open(Path(two).with_name("eu")) as queue:
        given = {"path": two, "fromIndex": json.dumps({"eu": "5"}), "toIndex": "0x10"}
        wanted = bounds(given)
        assert wanted.indexes(queue.layout, "eu")[0] == 5
        assert wanted.indexes(queue.layout, "us") == (0, 15)
    with pytest.raises(OptionError, match="fromIndex: expected names among us, found 'eu'"):
        wanted.check_names(["us"])


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_batch_waits_for_more_and_says_so(two: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(streamreader, "time", clock)
    options = {"minExcerptsPerBatch": "150", "maxTriggerDelay": "1m"}
    stream = reader(two, **options)
    start = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    assert not isinstance(limit, streaming.ReadAllAvailable)
    assert stream.latestOffset(start, limit) == start
    told = stream.behind(start)
    assert told["withheld"] == "100 of 150 excerpts are there; 60 s until they are taken"
    assert told["excerptsBehind"] == "100"
    assert stream.latestOffset(start, streaming.ReadAllAvailable()) != start  # as the trigger once
    clock.now += 61
    taken = stream.latestOffset(start, limit)
    assert taken != start
    assert "withheld" not in stream.behind(taken)


def test_a_run_that_takes_what_is_there_waits_for_nothing(two: str) -> None:
    stream = reader(two, minExcerptsPerBatch="1000")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) != start


def test_the_server_answers_as_the_reader_does(two: str) -> None:
    server = ScanServer()

    def ask(what: str, **told: Any) -> dict[str, Any]:
        return server.answer({"ask": what, **told})

    fields = [["index", "bigint", False, {}]]
    begun = ask("stream", options={"path": two, "maxExcerptsPerBatch": "7"}, fields=fields)
    assert begun == {"limits": (7, None, None, None), "mayBeLost": False, "payload": "raw"}
    start = ask("initial")["offset"]
    assert json.loads(start) == reader(two).initialOffset()
    end = ask("latest", start=start, all=False)["offset"]
    (task,) = ask("between", start=start, end=end)["tasks"]
    assert sum(piece["count"] for piece in task["pieces"]) == 7
    assert ask("metrics", at=end)["metrics"]["excerptsBehind"] == "93"
    wrong = ask("stream", options={"path": two, "maxExcerptsPerBatch": "x"}, fields=fields)
    assert wrong["error"].startswith("cqrepl.spark.tableoptions.OptionError: option maxExc")
