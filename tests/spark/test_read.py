"""Reading queues in batch, through Spark; tasks also without it."""

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from cqrepl.queue import IndexGap, Queue, index_of
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.datasource import ChronicleSource
from tests.support.goldens import LOST_END, READABLE, manifest, unpack
from tests.support.samples import Excerpts, fill, noon_index, noon_path

DAY = "FAST_DAILY"
WHOLE = [name for name in READABLE if name != LOST_END]
Filled = tuple[Path, Excerpts]


def load(spark: SparkSession, path: Path | str | list[str], **options: object) -> DataFrame:
    reader = spark.read.format("chronicle")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load([str(each) for each in path] if isinstance(path, list) else str(path))


def excerpts(frame: DataFrame) -> Excerpts:
    """The excerpts that Spark found, in its order."""
    return [(row["index"], bytes(row["payload"])) for row in frame.collect()]


@pytest.fixture(scope="module")
def goldens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("goldens")
    for name in WHOLE:
        unpack(name, folder)
    return folder


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Three cycles, one of them after a gap of days."""
    path = tmp_path_factory.mktemp("queue") / "orders"
    return path, fill(path, DAY, {0: 700, 1: 20, 4: 300})


def test_golden_queues_equal_their_manifests(spark: SparkSession, goldens: Path) -> None:
    rows = load(spark, f"{goldens}/*").collect()
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in WHOLE}
    for row in rows:
        found[row["queue"]].append((row["index"], hashlib.sha256(row["payload"]).hexdigest()))
    for name in WHOLE:
        assert found[name] == manifest(name).digests, name


def test_columns_tell_the_same_as_the_index(spark: SparkSession, filled: Filled) -> None:
    path, written = filled
    rows = load(spark, path, columns="queue,index,cycle,sequence,length,payload").collect()
    shift = by_name(DAY).shift
    assert [(row["index"], bytes(row["payload"])) for row in rows] == written
    for row in rows:
        assert row["queue"] == "orders"
        assert index_of(row["cycle"], row["sequence"], shift) == row["index"]
        assert row["length"] == len(row["payload"])


def test_lengths_without_payloads(spark: SparkSession, filled: Filled) -> None:
    path, written = filled
    rows = load(spark, path, columns="length,index", batchExcerpts=300).collect()
    assert [tuple(row) for row in rows] == [(len(data), index) for index, data in written]


def test_splits_of_one_queue_are_read_each_once(spark: SparkSession, filled: Filled) -> None:
    path, written = filled
    frame = load(spark, path, splitBytes=1, splitExcerpts=100, batchExcerpts=7)
    assert frame.rdd.getNumPartitions() > 3
    assert excerpts(frame) == written


def test_ranges_by_index_by_cycle_and_by_time(spark: SparkSession, filled: Filled) -> None:
    path, written = filled
    first, end = written[10][0], written[705][0]
    assert excerpts(load(spark, path, fromIndex=hex(first), toIndex=end)) == written[10:705]
    cycle = noon_index(DAY, ahead=1) >> by_name(DAY).shift
    assert excerpts(load(spark, path, fromCycle=cycle, toCycle=cycle)) == written[700:720]
    assert excerpts(load(spark, path, fromCycle=cycle + 1)) == written[720:]
    times = {"fromTime": "2024-03-06T23:00Z", "toTime": "2024-03-08T00:00Z"}
    assert excerpts(load(spark, path, **times)) == written[700:720]
    assert excerpts(load(spark, path, toTime="2024-03-06")) == written[:700]
    assert excerpts(load(spark, path, fromIndex=hex(written[-1][0] + 1))) == []


def test_several_queues_and_patterns(spark: SparkSession, tmp_path: Path) -> None:
    written = {
        name: fill(tmp_path / name / "orders", DAY, {0: count})
        for name, count in (("eu", 30), ("us", 50))
    }
    (tmp_path / "other" / "orders").mkdir(parents=True)  # no queue: not taken
    by_pattern = load(spark, f"{tmp_path}/*/orders").groupBy("queue").count().collect()
    assert {row["queue"]: row["count"] for row in by_pattern} == {"eu/orders": 30, "us/orders": 50}
    other = fill(tmp_path / "trades", DAY, {2: 10})
    paths = [str(tmp_path / "eu" / "orders"), str(tmp_path / "trades")]
    assert excerpts(load(spark, paths)) == written["eu"] + other
    only = load(spark, tmp_path / "trades", name="t").select("queue").distinct().collect()
    assert [row["queue"] for row in only] == ["t"]


def test_payloads_as_text_and_as_json(spark: SparkSession, tmp_path: Path) -> None:
    payloads = ["grün\n".encode(), b"", b"\xff\x00plain", b"\xb9\x05price\xa5\x10\x00"]
    payloads.append(b"\xc1a\xb8\x03\xed\xa0\x80")  # a string that is half a character
    payloads += [b"\xe3id1", b"\xa5\x39\x05"]  # one bare value, as Java's writeText writes it
    with Queue.open(tmp_path / "q", create=DAY) as queue:
        queue.append_many(payloads)
    texts = load(spark, tmp_path / "q", payload="text", columns="payload").collect()
    assert [row[0] for row in texts[:3]] == ["grün\n", "", "\\xff\x00plain"]
    values = load(spark, tmp_path / "q", payload="wire", columns="payload").collect()
    expected = [
        "grün\n",
        "",
        {"!!binary": "/wBwbGFpbg=="},
        {"price": 16},
        {"a": "\ud800"},
        "id1",
        1337,
    ]
    assert [json.loads(row[0]) for row in values] == expected


def test_a_schema_chooses_columns_and_their_order(spark: SparkSession, filled: Filled) -> None:
    path, written = filled
    reader = spark.read.format("chronicle").schema("payload binary, index bigint")
    rows = reader.load(str(path)).collect()
    assert [(index, bytes(data)) for data, index in rows] == written


def test_a_data_frame_is_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "all" / "q"
    fill(path, DAY, {0: 5})
    of_load = load(spark, tmp_path / "all" / "*")
    of_action = load(spark, tmp_path / "all" / "*", snapshot="action")
    with Queue.open(path) as queue:
        queue.append(b"later")
    fill(tmp_path / "all" / "new", DAY, {0: 7})
    assert of_load.count() == 5
    assert of_action.count() == 13
    with Queue.open(path) as queue:
        queue.append(b"later still")
    assert of_load.count() == 5
    assert of_action.count() == 13
    assert load(spark, path).count() == 7


def test_sql_views(spark: SparkSession, filled: Filled) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW orders USING chronicle OPTIONS (path '{filled[0]}')")
    try:
        [row] = spark.sql("SELECT count(*) AS n, lower(hex(min(index))) AS i FROM orders").collect()
        assert row["n"] == len(filled[1])
        assert f"0x{row['i']}" == hex(filled[1][0][0])
    finally:
        spark.sql("DROP VIEW orders")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"frmIndex": "1"}, "option frmindex: expected an option of chronicle, such as fromIndex"),
        ({"fromIndex": "x1"}, "option fromIndex: expected an index such as 0x451600000000"),
        ({"fromTime": "2024"}, "option fromTime: expected a time such as"),
        ({"toCycle": "1", "fromIndex": "1"}, "option toCycle: expected bounds of one kind"),
        ({"payload": "xml"}, "option payload: expected raw or text or wire, found 'xml'"),
        ({"columns": "index,price"}, "option columns: expected some of queue, index, cycle"),
        ({"splitBytes": "0"}, "option splitBytes: expected a size from 1"),
        ({"startingIndex": "latest"}, "option startingindex: expected an option of a batch"),
        ({"path": "hdfs://host/q"}, "option path: expected a path of a local file system"),
        ({"path": "none/*"}, "option path: expected a pattern that a queue matches"),
        ({"path": "none"}, "expected a queue directory, found none"),
    ],
)
def test_bad_options_are_told_in_one_sentence(
    spark: SparkSession, filled: Filled, options: dict[str, str], told: str
) -> None:
    options = {"path": str(filled[0]), **options}
    with pytest.raises(PySparkException) as raised:
        load(spark, options.pop("path"), **options).count()
    line, *state = str(raised.value).splitlines()
    assert told in line
    assert all(each.strip().startswith("SQLSTATE:") for each in state)


def test_a_schema_with_foreign_columns_or_types_is_refused(
    spark: SparkSession, filled: Filled
) -> None:
    for schema, told in (
        ("price double", "option schema: expected columns of queue, index"),
        ("index string", "option schema: expected index bigint, found string"),
    ):
        reader = spark.read.format("chronicle").schema(schema)
        with pytest.raises(PySparkException) as raised:
            reader.load(str(filled[0])).count()
        assert told in str(raised.value)


def test_what_was_planned_and_is_gone_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """The planner's and the task's part, called as Spark calls them."""
    fill(tmp_path / "q", DAY, {0: 300, 1: 10})
    source = ChronicleSource({"path": str(tmp_path / "q")})
    reader = source.reader(schema=source.schema())
    [partition] = reader.partitions()
    assert pa.Table.from_batches(reader.read(partition)).num_rows == 310
    shutil.move(noon_path(tmp_path / "q", DAY, ahead=1), tmp_path / "gone")
    with pytest.raises(IndexGap, match="it was there when the job was planned"):
        list(reader.read(partition))
    shutil.move(noon_path(tmp_path / "q", DAY), tmp_path / "gone as well")
    with pytest.raises(IndexGap):
        list(reader.read(partition))
    assert list(reader.read(InputPartition(None))) == []


def test_batches_of_a_cycle_have_what_is_the_same_in_common(filled: Filled) -> None:
    """Such columns are made once: of two batches they lie in the same memory."""
    path, written = filled
    columns = ("queue", "cycle", "timestamp", "file")
    options = {"path": str(path), "columns": ",".join(("index", *columns)), "batchExcerpts": "100"}
    source = ChronicleSource(options)
    reader = source.reader(source.schema())
    [partition] = reader.partitions()
    table = pa.Table.from_batches(reader.read(partition))
    rows = table.to_pylist()
    assert [row["index"] for row in rows] == [index for index, _ in written]
    shift = by_name(DAY).shift
    assert [row["cycle"] for row in rows] == [index >> shift for index, _ in written]
    assert {row["queue"] for row in rows} == {path.name}
    assert len({(row["cycle"], row["file"], row["timestamp"]) for row in rows}) == 3
    for name in columns:
        first, second = (each.buffers()[-1].address for each in table.column(name).chunks[:2])
        assert first == second, name
