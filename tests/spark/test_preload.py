"""A table goes into queues by the hash of its keys, once, however often it is begun."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import wire
from cqrepl.cli.main import cli
from cqrepl.queue import QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.routing import key_bytes, partition_of
from cqrepl.spark.failures import JobFailed, one_line
from cqrepl.spark.jobs import preload as job
from cqrepl.spark.jobs.keycolumns import column, java_charsets, key_column, partition_column_of
from cqrepl.spark.jobs.preload import PreloadSettings, partition_column, preload
from cqrepl.spark.jobs.queuefiller import Filled
from tests.spark.queues import CYCLE, DAY_MS, FIRST, excerpts
from tests.support.partitionkeys import byte_keys, texts, whole_numbers

VECTORS = Path(__file__).parents[1] / "vectors" / "partitions.json"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "orders.parquet"
    frame = spark.range(20_000).selectExpr(
        "id", "concat('symbol-', id % 50) symbol", "id * 0.5 price", "date'2024-03-05' day"
    )
    frame.write.parquet(str(path))
    return path


def loaded(frame: DataFrame, out: Path, partitions: int = 4, **payload: str) -> list[Filled]:
    settings = PreloadSettings(key="symbol", partitions=partitions, **payload)
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    return preload(frame, out, settings, layout=layout, now_ms=CYCLE * DAY_MS, block=500)


def test_vectors() -> None:
    for vector in json.loads(VECTORS.read_text()):
        assert key_bytes(vector["key"]).hex() == vector["wire"]
        assert partition_of(vector["key"], 1 << 32) == vector["crc32"]
        assert partition_of(vector["key"], 13) == vector["crc32"] % 13


def test_each_row_is_in_the_queue_of_its_key(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    # in a thread that has no session as its active one
    with ThreadPoolExecutor(1) as threads:
        frame = spark.read.parquet(str(table))
        filled = threads.submit(loaded, frame, tmp_path / "out").result()
    assert sum(each.excerpts for each in filled) == 20_000
    seen = []
    for nth, each in enumerate(filled):
        held = excerpts(Path(each.path))
        assert [index for index, _ in held] == list(range(FIRST, FIRST + each.excerpts))
        for _, payload in held:
            row = wire.decode(payload)
            assert isinstance(row, dict)
            assert partition_of(row["symbol"], 4) == nth
            assert row["day"] == date(2024, 3, 5)
            seen.append(row["id"])
    assert sorted(seen) == list(range(20_000))


def test_the_column_tells_the_same(spark: SparkSession, table: Path) -> None:
    frame = spark.read.parquet(str(table)).select("symbol").distinct()
    for row in frame.select("symbol", partition_column(frame["symbol"], 13).alias("p")).collect():
        assert row["p"] == partition_of(row["symbol"], 13)


def test_keys_in_sparks_own_functions_are_the_same(spark: SparkSession) -> None:
    edges = (0, 1, 7, 8, 15, 16, 31, 32, 63)
    numbers = [sign * (1 << bit) + step for bit in edges for sign in (1, -1) for step in (-1, 0, 1)]
    kinds: dict[str, list[object]] = {
        "string": [
            *("", "a", "grün", "\u00e4\U0001f600\uffff", "\U0010ffff" * 6, "\U00010000" * 9),
            *(n * "x" for n in (31, 32, 127, 128, 16_383, 16_384, 70_000)),
            *texts(),
        ],
        "bigint": [*(n for n in numbers if -(1 << 63) <= n < 1 << 63), *whole_numbers()],
        "int": [n for n in numbers if -(1 << 31) <= n < 1 << 31],
        "binary": [*byte_keys()],
        "double": [0.0, 1.5, -2.25e300],
        "boolean": [True, False],
    }
    for kind, keys in kinds.items():
        frame = spark.createDataFrame([(key,) for key in (*keys, None)], f"`a key` {kind}")
        with java_charsets(spark):
            made = frame.select("a key", key_column(column("a key"), kind).alias("wire"))
        made = made.withColumn("number", partition_column_of(column("wire"), 13))
        for row in made.collect():
            assert bytes(row["wire"]) == key_bytes(row["a key"])
            assert row["number"] == partition_of(row["a key"], 13)


def test_a_payload_that_is_null_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("k", "a"), ("k", None)], "symbol string, data string")
    with pytest.raises(JobFailed, match="expected bytes or text in column data, found null"):
        loaded(frame, tmp_path / "out", partitions=3, payload="data")


def test_again_writes_nothing_and_a_loss_is_made_good(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    frame, out = spark.read.parquet(str(table)), tmp_path / "out"
    first = loaded(frame, out)
    held = [excerpts(Path(each.path)) for each in first]
    assert [each.written for each in loaded(frame, out)] == [0, 0, 0, 0]
    for path in Path(first[2].path).iterdir():
        path.unlink()
    again = loaded(frame, out)
    assert [each.written for each in again] == [0, 0, first[2].excerpts, 0]
    assert [excerpts(Path(each.path)) for each in again] == held


def test_another_table_is_found_out(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    frame = spark.read.parquet(str(table))
    loaded(frame, tmp_path / "out")
    for other in (frame.selectExpr("symbol", "id + 1 id"), frame.limit(10)):
        with pytest.raises(JobFailed, match="expected"), one_line():
            loaded(other, tmp_path / "out")


def test_a_column_as_payload(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(f"k{n}", f"payload {n}") for n in range(100)]
    frame = spark.createDataFrame(rows, "symbol string, data string")
    filled = loaded(frame, tmp_path / "out", partitions=3, payload="data")
    found = {bytes(data) for each in filled for _, data in excerpts(Path(each.path))}
    assert found == {data.encode() for _, data in rows}


def test_rows_without_an_order_are_in_that_of_their_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """This holds whatever bytes the rows have, and however long the keys are."""
    payloads = [b"", b"\0", b"\0\0", b"a", b"ab", b"\x7f", b"\x80", b"\xc3\xa4", b"\xed\xa0\x80",
                bytes(range(256)), b"\xff", b"\xff\xfe"]  # fmt: skip
    keys = ["", "a", "b", "\u00e4", "\uffff", "\U0001f600"]
    keys += ["x" * 31, "x" * 32, "y" * 127, "x" * 128]
    rows = [(key, payload) for payload in reversed(payloads) for key in keys]
    frame = spark.createDataFrame(rows, "symbol string, data binary").repartition(3)
    filled = loaded(frame, tmp_path / "out", partitions=2, payload="data")
    for partition, each in enumerate(filled):
        wanted = [
            payload or b"\x8f"  # as nothing stands in a queue
            for key in sorted(keys, key=key_bytes)
            if partition_of(key, 2) == partition
            for payload in sorted(payloads)
        ]
        assert [bytes(data) for _, data in excerpts(Path(each.path))] == wanted


ORDERS = {
    "": "at",  # then rows are in the order of `index`
    "bigint": "at",
    "string": "lpad(at, 4, '0')",
    "timestamp": "timestamp_seconds(at)",
    "double": "cast(at as double)",
}


@pytest.mark.parametrize("kind", ORDERS)
def test_rows_of_a_key_stay_in_the_order_of_a_column(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Rows without a value come first. Where no column is named it is `index`."""
    rows = [
        (f"k{n % 3}", 90 - n if kind else n, f"payload {97 - n}", n if n > 5 else None)
        for n in range(90)
    ]
    frame = spark.createDataFrame(rows, "symbol string, index bigint, data string, at bigint")
    frame = frame.withColumn("at", expr(ORDERS[kind])).repartition(4)
    order = {"order": "at"} if kind else {}
    filled = loaded(frame, tmp_path / "out", partitions=2, payload="data", **order)
    numbers = [
        [97 - int(bytes(data)[8:]) for _, data in excerpts(Path(each.path))] for each in filled
    ]
    for key in range(3):
        (held,) = [each for each in numbers if key in each]
        found = [n for n in held if n % 3 == key]
        assert sorted(found[:2]) == [key, key + 3]
        assert found[2:] == list(range(key + 6, 90, 3))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key", "nothing", "--partitions", "2"), "expected one of the columns id, symbol"),
        (("--key", "id", "--partitions", "2", "--payload", "price"), "expected binary or string"),
        (("--key", "id", "--partitions", "2", "--roll-cycle", "X"), "name of a roll cycle"),
        (("--key", "id", "--partitions", "0"), "0 is not in the range"),
        (
            ("--key", "symbol", "--partitions", "3", "--order-by", "nothing"),
            "expected one of the columns id, symbol, price, day, found 'nothing'",
        ),
    ],
)
def test_bad_options(
    spark: SparkSession, table: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert spark
    done = CliRunner().invoke(cli, ["spark", "preload", str(table), str(tmp_path / "o"), *words])
    assert done.exit_code == 2
    assert said in done.stderr.splitlines()[-1]


def test_what_is_no_table(spark: SparkSession, tmp_path: Path) -> None:
    assert spark
    (tmp_path / "table").mkdir()
    words = ["spark", "preload", str(tmp_path / "table"), str(tmp_path / "o"), "--key", "id"]
    for form, said in (("parquet", "schema"), ("nonsense", "nonsense"), ("table", "")):
        done = CliRunner().invoke(cli, [*words, "--partitions", "2", "--format", form])
        assert done.exit_code == 2
        assert done.stderr.startswith("cqrepl spark preload: Spark: [")
        assert done.stderr.count("\n") == 1
        assert said in done.stderr


def test_other_settings_are_refused(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    assert spark
    words = ["spark", "preload", str(table), str(tmp_path / "o"), "--key", "id"]
    assert CliRunner().invoke(cli, [*words, "--partitions", "2"]).exit_code == 0
    done = CliRunner().invoke(cli, [*words, "--partitions", "3"])
    assert done.exit_code == 2
    assert '"partitions": 3' in done.stderr


def test_a_run_that_is_killed_before_its_settings_are_kept(
    spark: SparkSession, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves a draft at most, never a part of the file, which no run could read."""
    assert spark
    words = ["spark", "preload", str(table), str(tmp_path / "o"), "--key", "id"]
    writing = Path.write_text

    def killed(path: Path, text: str) -> int:
        writing(path, text[:5])
        (tmp_path / "left").hardlink_to(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", killed)
        assert CliRunner().invoke(cli, [*words, "--partitions", "2"]).exit_code == 130
    assert list((tmp_path / "o").iterdir()) == []
    (tmp_path / "left").rename(tmp_path / "o" / "_partitions.json.draft-1")  # as kill -9 leaves it
    done = CliRunner().invoke(cli, [*words, "--partitions", "2"])
    assert done.exit_code == 0, done.output


def test_settings_on_a_disk_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    settings = PreloadSettings(key="id", partitions=2)
    job._keep_settings(tmp_path / "o", settings)
    job._keep_settings(tmp_path / "o", settings)
    assert [each.name for each in (tmp_path / "o").iterdir()] == [job.SETTINGS]
