"""An audit finds what differs between copies, names it, and nothing else."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cqrepl.cli.main import cli
from cqrepl.queue import LayoutMismatch, Queue
from tests.spark.queues import CYCLE, FIRST, make_queue, payload
from tests.support.samples import flip_byte

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.audit import Audit

BLOCK = 65_536


def audited(spark: "SparkSession", *paths: Path, **options: bool) -> "Audit":
    from cqrepl.spark.jobs.audit import audit

    return audit(spark, paths, task_bytes=4 << 20, **options)


def told(audit: "Audit") -> list[tuple[str, int, int, tuple[bool, ...]]]:
    return [
        (each.verdict.value, each.index_first, each.index_last, each.present)
        for each in audit.differences
    ]


def store_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.cq4"))


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cycles, of which the second has more than two blocks."""
    return make_queue(tmp_path_factory.mktemp("queue") / "orders", (1000, 150_000, 500))


@pytest.fixture
def copy(queue: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(queue, tmp_path / "copy"))


def test_equal_copies(spark: "SparkSession", queue: Path, copy: Path) -> None:
    found = audited(spark, queue, copy, copy)
    assert found.is_same
    assert found.count == 151_500
    assert [cycle.cycle for cycle in found.cycles] == [CYCLE, CYCLE + 1, CYCLE + 2]
    assert [cycle.counts for cycle in found.cycles] == [(1000,) * 3, (150_000,) * 3, (500,) * 3]
    assert all(cycle.is_same for cycle in found.cycles)


def test_empty_queues_are_equal(spark: "SparkSession", tmp_path: Path) -> None:
    paths = [make_queue(tmp_path / name, ()) for name in "ab"]
    assert audited(spark, *paths).is_same
    done = CliRunner().invoke(cli, ["spark", "audit", *map(str, paths)])
    assert done.exit_code == 0
    assert done.stdout == "2 copies, up to 0 excerpts each: nothing to compare\n"


def test_one_flipped_byte(spark: "SparkSession", queue: Path, copy: Path) -> None:
    number = 1000 + 2 * BLOCK + 17
    flip_byte(store_files(copy)[1], payload(number), 5)
    found = audited(spark, queue, copy)
    index = FIRST + (1 << 32) + 2 * BLOCK + 17
    assert told(found) == [("differ", index, index, (True, True))]
    assert found.differences[0].byte_first == 5
    assert [cycle.is_same for cycle in found.cycles] == [True, False, True]


def test_seven_missing(spark: "SparkSession", queue: Path, tmp_path: Path) -> None:
    """A cycle that ended too early; the later ones are compared all the same."""
    short = make_queue(tmp_path / "short", (993,))
    with Queue.open(queue) as whole, Queue.open(short) as queue_short:
        appender = queue_short.appender()
        tailer = whole.tailer(FIRST + (1 << 32))
        while (batch := tailer.next_batch()) is not None:
            appender.append_at(batch)
    first, last = FIRST + 993, FIRST + 999
    assert told(audited(spark, queue, short)) == [("missing", first, last, (True, False))]
    assert told(audited(spark, short, queue)) == [("extra", first, last, (False, True))]


def test_a_missing_cycle_and_a_short_copy(
    spark: "SparkSession", queue: Path, copy: Path, tmp_path: Path
) -> None:
    store_files(copy)[1].unlink()
    short = make_queue(tmp_path / "short", (1000, 100_000))
    found = audited(spark, queue, copy, short)
    second, third = FIRST + (1 << 32), FIRST + (2 << 32)
    assert told(found) == [
        ("missing", second, second + 99_999, (True, False, True)),
        ("missing", second + 100_000, second + 149_999, (True, False, False)),
        ("missing", third, third + 499, (True, True, False)),
    ]
    assert audited(spark, queue, short, common=True).is_same


def test_damage_is_told_and_stepped_over(spark: "SparkSession", queue: Path, copy: Path) -> None:
    """Behind a length that leads nowhere, the next block is found by its index slot."""
    path = store_files(copy)[1]
    data = path.read_bytes()
    header = data.index(payload(1000 + 70_000)) - 4
    with path.open("r+b") as file:
        file.seek(header)
        file.write((0x3FFF_FF00).to_bytes(4, "little"))
    found = audited(spark, queue, copy)
    assert found.is_damaged
    second = FIRST + (1 << 32)
    verdicts = told(found)
    assert [name for name, *_ in verdicts] == ["damaged", "missing"]
    assert str(path) in (found.differences[0].text or "")
    assert second + BLOCK < verdicts[1][1] <= second + 70_000
    assert verdicts[1][2] == second + 2 * BLOCK - 1


def test_damage_where_a_cycle_ends(spark: "SparkSession", queue: Path, copy: Path) -> None:
    """How far it went is unknown: it is read as far as the undamaged copy goes."""
    path = store_files(copy)[0]
    header = path.read_bytes().index(payload(990)) - 4
    with path.open("r+b") as file:
        file.seek(header)
        file.write((0x3FFF_FF00).to_bytes(4, "little"))
    found = audited(spark, queue, copy)
    assert found.unknown == ((1, CYCLE),)
    names = [name for name, *_ in told(found)]
    assert names == ["damaged", "missing"]
    assert found.differences[1].index_last == FIRST + 999
    alone = audited(spark, copy, make_queue(copy.with_name("empty"), ()))
    assert alone.is_damaged
    done = CliRunner().invoke(cli, ["spark", "audit", str(queue), str(copy)])
    assert done.exit_code == 4
    assert f"damaged  {found.differences[0].index_first:#x}  " in done.stdout


@pytest.mark.parametrize("fault", ["missing", "empty", "damaged"])
def test_a_last_cycle_that_is_not_known_is_never_the_same(
    spark: "SparkSession", tmp_path: Path, fault: str
) -> None:
    """Not even up to the end that all copies have: who is to say that it is one?"""
    assert spark
    queue = make_queue(tmp_path / "queue", (100, 50))
    copy = Path(shutil.copytree(queue, tmp_path / "copy"))
    last = store_files(copy)[1]
    if fault == "missing":
        last.unlink()
    elif fault == "empty":
        last.write_bytes(b"")
    else:
        header = last.read_bytes().index(payload(130)) - 4
        with last.open("r+b") as file:
            file.seek(header)
            file.write((0x3FFF_FF00).to_bytes(4, "little"))
    done = CliRunner().invoke(cli, ["spark", "audit", str(queue), str(copy), "--common"])
    assert done.exit_code == 4, done.output
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("damaged")]
    assert str(last) in line
    assert "expected" in line


def test_very_many_differences_are_told_as_one(spark: "SparkSession", tmp_path: Path) -> None:
    one = make_queue(tmp_path / "one", (10_000,))
    with Queue.open(tmp_path / "other", create="FAST_DAILY") as queue:
        payloads = [payload(n) if n % 2 else b"other" for n in range(10_000)]
        queue.append_many(payloads, now_ms=CYCLE * 86_400_000)
    found = audited(spark, one, tmp_path / "other")
    assert len(found.differences) == 1001
    assert told(found)[-1] == ("mixed", FIRST + 2000, FIRST + 9999, (True, True))


def test_other_roll_cycles_are_refused(spark: "SparkSession", queue: Path, tmp_path: Path) -> None:
    Queue.open(tmp_path / "hourly", create="FAST_HOURLY").close()
    with pytest.raises(LayoutMismatch, match="FAST_HOURLY"):
        audited(spark, queue, tmp_path / "hourly")


def test_the_command(spark: "SparkSession", queue: Path, copy: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert spark
    same = CliRunner().invoke(cli, ["spark", "audit", str(queue), str(copy)])
    assert same.exit_code == 0, same.output
    assert same.stdout.endswith("2 copies, up to 151,500 excerpts each: all the same\n")
    flip_byte(store_files(copy)[2], payload(151_100), 3)
    report = tmp_path / "report.parquet"
    words = ["spark", "audit", str(queue), str(copy), "--json", "--report", str(report)]
    differ = CliRunner().invoke(cli, words)
    assert differ.exit_code == 1
    rows = [json.loads(line) for line in differ.stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["cycle", "cycle", "cycle", "differ"]
    assert rows[3]["index_first"] == f"{FIRST + (2 << 32) + 100:#x}"
    assert pq.read_table(report)["kind"].to_pylist() == [row["kind"] for row in rows]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("q",), 2, "at least two queues are needed"),
        (("q", "q", "--common", "--to", "5"), 2, "--common and --to do not go together"),
        (("q", "q", "--from", "-10"), 2, "an index such as 0x451600000004 was expected"),
        (("q", "q", "--conf", "memory"), 2, "spark.KEY=VALUE expected, 'memory' came"),
        (("nowhere", "nowhere"), 2, "found none"),
        (("q", "q", "--from", "9", "--to", "5"), 2, "--from 0x9 lies behind --to 0x5"),
        (("q", "q", "--report", "nowhere/file"), 2, "a directory that is there expected"),
    ],
)
def test_bad_options_are_answered_in_one_line(
    spark: "SparkSession", words: tuple[str, ...], code: int, said: str
) -> None:
    assert spark
    done = CliRunner().invoke(cli, ["spark", "audit", *words])
    assert done.exit_code == code
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.output


def _audit_of(spark: "SparkSession", folder: Path, count: int) -> None:
    """One flipped byte is found and named, among so many excerpts."""
    queue = make_queue(folder / "queue", (count // 10, count - count // 10))
    copy = Path(shutil.copytree(queue, folder / "copy"))
    number = count - count // 7
    flip_byte(store_files(copy)[1], payload(number), 40)
    found = audited(spark, queue, copy)
    index = FIRST + (1 << 32) + number - count // 10
    assert told(found) == [("differ", index, index, (True, True))]
    assert found.differences[0].byte_first == 40
    assert found.count == count


def test_one_byte_among_a_million_excerpts(spark: "SparkSession", tmp_path: Path) -> None:
    _audit_of(spark, tmp_path, 1_000_000)


@pytest.mark.long
def test_one_byte_among_ten_million_excerpts(spark: "SparkSession", tmp_path: Path) -> None:
    _audit_of(spark, tmp_path, 10_000_000)
