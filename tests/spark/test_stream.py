"""Queues as streams: offsets, limits, what is lost; called as Spark calls them, and by Spark."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from cqrepl.queue import IndexGap, Queue, QueueError, index_of
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, cycle_of
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from cqrepl.queue.read import stall
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.spark import streamreader
from cqrepl.spark.datasource import ChronicleSource
from cqrepl.spark.offsets import positions_of
from cqrepl.spark.streamreader import ChronicleStreamReader
from tests.spark.queries import COLUMNS, drained
from tests.spark.queues import excerpts, note_closed
from tests.support.goldens import LOST_END, READ_IN_PART, READABLE, manifest, unpack
from tests.support.samples import (
    NOON_MS,
    Excerpts,
    digests,
    fill,
    noon_index,
    noon_path,
    without_end_mark,
)

DAY = "FAST_DAILY"


def reader_of(path: Path | str, **options: object) -> ChronicleStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    found = ChronicleSource({"path": str(path), **texts}).streamReader(schema=COLUMNS)
    assert isinstance(found, ChronicleStreamReader)
    return found


def between(reader: ChronicleStreamReader, start: Any, end: Any) -> Excerpts:
    found: Excerpts = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += [(row["index"], row["payload"]) for row in batch.to_pylist()]
    return found


def batches(reader: ChronicleStreamReader, at: Any = None) -> Iterator[tuple[Excerpts, Any]]:
    """Batch after batch, with the offset behind it, until there is nothing."""
    at = reader.initialOffset() if at is None else at
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        yield between(reader, at, end), end
        at = end


def rest(reader: ChronicleStreamReader, at: Any = None) -> Excerpts:
    return [excerpt for found, _ in batches(reader, at) for excerpt in found]


def append(path: Path, count: int, *, ahead: int = 0, roll_cycle: str = DAY) -> Excerpts:
    roll = by_name(roll_cycle)
    cycle = noon_index(roll_cycle, ahead=ahead) >> roll.shift
    with Queue.open(path) as queue:
        payloads = [b"%d %d" % (cycle, number) for number in range(count)]
        last = queue.append_many(payloads, now_ms=cycle * roll.length_ms)
        return list(zip(range(last - count + 1, last + 1), payloads, strict=True))


def test_a_stream_takes_everything_once(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", DAY, {0: 300, 1: 20, 5: 10})
    reader = reader_of(tmp_path / "q")
    [(found, end)] = batches(reader)
    assert found == written
    added = append(tmp_path / "q", 7, ahead=5) + append(tmp_path / "q", 3, ahead=6)
    assert rest(reader, end) == added
    assert reader.initialOffset() == reader.initialOffset()


@pytest.mark.parametrize("name", READABLE)
def test_a_stream_reaches_what_java_reaches(tmp_path: Path, name: str) -> None:
    """Behind that it says that no writer has closed the cycle."""
    golden = manifest(name)
    options = {"failOnDataLoss": "false"} if name == LOST_END else {}
    reader = reader_of(unpack(name, tmp_path), maxExcerptsPerBatch=70, **options)
    found: Excerpts = []
    with ExitStack() as stack:
        if name in READ_IN_PART and name != LOST_END:
            stack.enter_context(pytest.raises(QueueError, match="no end-of-file mark and no"))
        for batch, _ in batches(reader):
            found += batch
    assert digests(found) == golden.digests[: golden.java_reads]


def test_the_offset_is_one_text(tmp_path: Path) -> None:
    for name in ("b", "a"):
        fill(tmp_path / name, DAY, {0: 3})
    reader = reader_of(f"{tmp_path}/*")
    last = noon_index(DAY)
    queues: Any = {name: {"next": hex(last + 3)} for name in ("a", "b")}
    assert reader.reportLatestOffset() == {"queues": queues, "v": 1}
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    digest = hashlib.blake2b(excerpts(tmp_path / "a")[-1][1], digest_size=16).hexdigest()
    queues = {name: {"next": hex(last + 3), "last": digest} for name in ("a", "b")}
    assert json.dumps(end) == json.dumps({"queues": queues, "v": 1})
    with pytest.raises(ValueError, match="expected an offset of version 1"):
        reader_of(tmp_path / "a").latestOffset({"v": 2}, ReadAllAvailable())


def test_a_cycle_that_has_not_ended_is_not_left(tmp_path: Path) -> None:
    """Its late excerpts would be missed; a tailer waits there too."""
    path = tmp_path / "q"
    written = fill(path, DAY, {0: 4})
    fill(tmp_path / "later", DAY, {1: 2})
    shutil.copy(noon_path(tmp_path / "later", DAY, ahead=1), path)
    reader = reader_of(path)
    reader.prepareForTriggerAvailableNow()
    at = reader.initialOffset()
    end = reader.latestOffset(at, ReadAllAvailable())
    assert between(reader, at, end) == written
    told = "cycle 19787 has no end-of-file mark and no writer, cycle 19788 holds excerpts"
    for each in (reader, reader_of(path)):
        with pytest.raises(QueueError, match=f"{told}; cqrepl repair QUEUE --apply closes it"):
            each.latestOffset(end, ReadAllAvailable())
    assert len(rest(reader_of(path, failOnDataLoss="false"), end)) == 2
    apply(plan_repair(path))
    assert len(rest(reader, end)) == 2


def test_a_cycle_that_a_living_writer_does_not_close_ends_no_run_as_if_it_were_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    fill(path, DAY, {0: 4, 1: 2})
    without_end_mark(path)
    monkeypatch.setattr(stall, "is_held_elsewhere", lambda *_: True)
    monkeypatch.setattr(streamreader, "_CLOSING_S", 0.1)
    reader = reader_of(path)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(at, ReadAllAvailable()) == at  # it comes back
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(QueueError, match="expected an end of cycle 19787, which a process"):
        reader.latestOffset(at, ReadAllAvailable())


@pytest.mark.parametrize("is_loss_told", ["true", "false"])
def test_another_queue_under_the_checkpoint_is_refused(tmp_path: Path, is_loss_told: str) -> None:
    path = tmp_path / "q"
    written = fill(path, DAY, {0: 30})
    reader = reader_of(path, maxExcerptsPerBatch=20, failOnDataLoss=is_loss_told)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(20))
    old: Any = json.loads(json.dumps(end))
    del old["queues"]["q"]["last"]
    assert rest(reader, old) == written[20:]
    shutil.rmtree(path)
    with Queue.open(path, create=DAY) as queue:
        queue.append_many([b"other %d" % nth for nth in range(40)], now_ms=NOON_MS)
    for call in (
        lambda: reader.latestOffset(end, ReadMaxRows(20)),
        lambda: reader.partitions(start, end),
    ):
        with pytest.raises(QueueError, match="as the checkpoint tells it, found other bytes"):
            call()
    assert len(rest(reader, old)) == 20


def test_another_identity_under_the_checkpoint_is_refused(tmp_path: Path) -> None:
    """The reader refuses a queue with another identity even if its last excerpt is the same."""
    path = tmp_path / "q"
    fill(path, DAY, {0: 30})
    with Queue.open(path) as queue:
        first = queue.identity.keep(new_identity)
    reader = reader_of(path)
    [(_, end)] = batches(reader)
    with Queue.open(path) as queue:
        queue.identity.replace(new_identity())
    with pytest.raises(QueueError, match=f"expected queue {first} of the checkpoint, found queue"):
        reader.latestOffset(end, ReadAllAvailable())


def test_limits_of_excerpts_of_bytes_and_of_cycles(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, DAY, {0: 700, 1: 100, 2: 10})
    sizes = [len(found) for found, _ in batches(reader_of(path, maxExcerptsPerBatch=300))]
    assert sizes == [300, 300, 210]
    assert [len(found) for found, _ in batches(reader_of(path, maxCyclesPerBatch=2))] == [800, 10]
    by_bytes = [found for found, _ in batches(reader_of(path, maxBytesPerBatch=1000))]
    assert [excerpt for found in by_bytes for excerpt in found] == written
    assert [len(found) for found in by_bytes[:2]] == [256, 256]
    both = reader_of(path, maxExcerptsPerBatch=90, maxCyclesPerBatch=1)
    assert [len(found) for found, _ in batches(both)][-3:] == [90, 10, 10]
    everything = both.latestOffset(both.initialOffset(), ReadAllAvailable())
    assert between(both, both.initialOffset(), everything) == written


@pytest.mark.parametrize(
    "limit", [{"maxExcerptsPerBatch": 25}, {"maxBytesPerBatch": 1}, {"maxCyclesPerBatch": 1}]
)
def test_a_limited_batch_plans_no_more_than_it_takes(
    tmp_path: Path, limit: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch plans what it takes, however long the backlog is. Otherwise the cost of all batches
    would grow with the square of the backlog."""
    path, opened = tmp_path / "q", []
    written = fill(path, DAY, dict.fromkeys(range(40), 10))
    reader = reader_of(path, **limit)
    start = reader.initialOffset()
    original = Cycles.open

    def counted(self: Cycles, cycle: Cycle, *args: Any, **kinds: Any) -> Any:
        opened.append(cycle)
        return original(self, cycle, *args, **kinds)

    with monkeypatch.context() as patch:
        patch.setattr(Cycles, "open", counted)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(set(opened)) < 6
        reader.partitions(start, end)
    assert len(set(opened)) < 6
    assert rest(reader) == written


def test_a_run_to_the_end_of_now_plans_no_more_than_it_takes(tmp_path: Path) -> None:
    """The excerpts behind the next batch need not even be readable yet."""
    path = tmp_path / "q"
    written = fill(path, DAY, dict.fromkeys(range(5), 10))
    reader = reader_of(path, maxExcerptsPerBatch=15)
    reader.prepareForTriggerAvailableNow()
    spoiled = noon_path(path, DAY, ahead=3)
    data = spoiled.read_bytes()
    spoiled.write_bytes(b"\x11" * len(data))
    found = batches(reader)
    assert next(found)[0] == written[:15]
    spoiled.write_bytes(data)
    assert [excerpt for some, _ in found for excerpt in some] == written[15:]


def test_queues_share_a_limit(tmp_path: Path) -> None:
    for name, count in (("busy", 1000), ("quiet", 10), ("other", 300)):
        fill(tmp_path / name, DAY, {0: count})
    reader = reader_of(f"{tmp_path}/*", maxExcerptsPerBatch=100)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    start = noon_index(DAY)
    found = {name: index - start for name, index in positions_of(first).items()}
    assert found == {"busy": 45, "other": 45, "quiet": 10}
    assert len(rest(reader)) == 1310


def test_where_a_stream_starts(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, DAY, {0: 30, 2: 10})
    latest = reader_of(path, startingIndex="latest")
    start = latest.initialOffset()
    added = append(path, 4, ahead=3)
    assert latest.initialOffset() == start
    assert rest(latest, start) == added
    assert rest(reader_of(path, startingIndex=hex(written[25][0]))) == written[25:] + added
    between_cycles = index_of(cycle_of(noon_index(DAY, ahead=1), 32), SEQUENCE_FIRST, 32)
    assert rest(reader_of(path, startingIndex=between_cycles)) == written[30:] + added
    with pytest.raises(
        ValueError, match=r"option startingIndex: expected an index that .* reached"
    ):
        reader_of(path, startingIndex=hex(added[-1][0] + 2)).initialOffset()


def test_queues_that_come_later_are_taken_from_their_start(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    reader = reader_of(f"{tmp_path}/*", startingIndex="latest")
    start = reader.initialOffset()
    assert rest(reader) == []
    written = fill(tmp_path / "new", DAY, {0: 5})
    [(found, end)] = batches(reader, start)
    assert found == written
    written = fill(tmp_path / "next", DAY, {1: 5})
    assert rest(reader, end) == written


def test_a_run_that_takes_what_is_there_now(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written = fill(path, DAY, {0: 30})
    reader = reader_of(f"{tmp_path}/*", maxExcerptsPerBatch=20)
    reader.prepareForTriggerAvailableNow()
    append(path, 5, ahead=1)
    fill(tmp_path / "later", DAY, {0: 5})
    assert rest(reader) == written


def test_a_batch_that_is_planned_again_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, DAY, {0: 300, 1: 20})
    reader = reader_of(path, maxExcerptsPerBatch=310)
    [(found, end), _] = batches(reader)
    append(path, 50, ahead=1)
    append(path, 5, ahead=2)
    assert between(reader_of(path), reader.initialOffset(), end) == found


def test_what_retention_took_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, DAY, {0: 300, 1: 20, 2: 5})
    reader = reader_of(path, maxExcerptsPerBatch=100)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    noon_path(path, DAY).unlink()
    for call in (
        lambda: reader.partitions(start, end),
        lambda: reader.latestOffset(end, ReadMaxRows(100)),
    ):
        with pytest.raises(IndexGap, match=r"expected index 0x4d4b000000.*store file was removed"):
            call()
    careless = reader_of(path, failOnDataLoss="false")
    assert between(careless, start, end) == []
    assert rest(careless, end) == written[300:]
    shutil.rmtree(path)
    assert rest(careless, end) == []


def test_a_queue_that_was_made_anew_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, DAY, {0: 30})
    reader = reader_of(path)
    [(_, end)] = batches(reader)
    shutil.rmtree(path)
    fill(path, DAY, {0: 10, 1: 5})
    with pytest.raises(IndexGap, match="its cycle ends before"):
        reader.latestOffset(end, ReadAllAvailable())


def test_retention_waits_for_a_registered_stream(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, DAY, {0: 30, 1: 20, 2: 10, 3: 1})
    reader = reader_of(path, reader="spark", maxCyclesPerBatch=1)
    ends = [end for _, end in batches(reader)]
    with Queue.open(path) as queue:
        assert remove(queue.cycles, Policy()) == []
        reader.commit(ends[1])
        cycles = [one.cycle for one in remove(queue.cycles, Policy())]
    assert cycles == [noon_index(DAY) >> 32]


# ---------------------------------------------------------------- by Spark


def run(spark: SparkSession, path: Path | str, folder: Path, **options: object) -> StreamingQuery:
    """A query that takes what the queue holds into Parquet files, and ends."""
    stream = spark.readStream.format("chronicle")
    for name, value in options.items():
        stream = stream.option(name, str(value))
    return drained(stream.load(str(path)), folder)


def taken(spark: SparkSession, folder: Path) -> Excerpts:
    frame = spark.read.parquet(str(folder / "out")).orderBy("queue", "index")
    return [(row["index"], bytes(row["payload"])) for row in frame.collect()]


def test_spark_takes_everything_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    queues, folder = tmp_path / "queues", tmp_path / "out"
    written = fill(queues / "a", DAY, {0: 300, 1: 20})
    query = run(spark, f"{queues}/*", folder, maxExcerptsPerBatch=150)
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert [each["numInputRows"] for each in progress] == [150, 150, 20]
    assert taken(spark, folder) == written
    written += append(queues / "a", 10, ahead=1)
    written += fill(queues / "b", DAY, {2: 30})
    run(spark, f"{queues}/*", folder, maxExcerptsPerBatch=150)
    assert taken(spark, folder) == written


def test_spark_tells_what_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    path, folder = tmp_path / "q", tmp_path / "out"
    written = fill(path, DAY, {0: 300, 1: 20})
    run(spark, path, folder)
    append(path, 5, ahead=2)
    noon_path(path, DAY, ahead=1).unlink()
    with pytest.raises(PySparkException, match="its store file was removed"):
        run(spark, path, folder)
    run(spark, path, folder, failOnDataLoss="false")
    assert len(taken(spark, folder)) == len(written) + 5


def test_bad_options_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "q", DAY, {0: 3})
    for options, told in (
        ({"fromIndex": "1"}, "option fromindex: expected an option of a stream"),
        ({"maxExcerptsPerBatch": "0"}, "option maxExcerptsPerBatch: expected a number from 1"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss: expected true or false, found 'no'"),
    ):
        with pytest.raises(PySparkException) as raised:
            run(spark, tmp_path / "q", tmp_path / "out", **options)
        assert told in str(raised.value)
        assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_missing_cycle_is_said_where_no_notes_tell_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_noted: bool
) -> None:
    """Each hole is told once, however the batches are cut, both in batches and in streams."""
    path = tmp_path / "q"
    written = fill(path, DAY, {0: 30, 1: 20, 3: 10, 4: 5})
    if is_noted:
        for ahead in (0, 1, 3):
            note_closed(path, Cycle(cycle_of(noon_index(DAY, ahead=ahead), 32)))
    assert rest(reader_of(path, maxExcerptsPerBatch=7)) == written
    batch = ChronicleSource({"path": str(path)}).reader(COLUMNS)
    assert len(batch.partitions()) == 1
    said = f"{path}: 1 cycle between others without a store file, 20240307F.cq4 first"
    assert [text.startswith(said) for text in caplog.messages] == ([] if is_noted else [True] * 2)
