"""An audit finds what differs between copies, names it, and nothing else."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.queue import LayoutMismatch, Queue
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.spark.jobs.audit import Audit, audit
from tests.spark.queues import CYCLE, FIRST, break_at, make_queue, note_chains, payload
from tests.support.samples import flip_byte

BLOCK = 65_536


def audited(
    spark: SparkSession,
    *paths: Path,
    index_first: int = 0,
    index_last: int = INDEX_MAX,
    **options: bool,
) -> Audit:
    size = 4 << 20
    return audit(
        spark, paths, index_first=index_first, index_last=index_last, task_bytes=size, **options
    )


def told(audit: Audit) -> list[tuple[str, int, int, tuple[bool, ...]]]:
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


def test_equal_copies(spark: SparkSession, queue: Path, copy: Path) -> None:
    other = Path(shutil.copytree(queue, copy.with_name("other")))
    found = audited(spark, queue, copy, other)
    assert found.is_same
    assert found.count == 151_500
    assert [cycle.cycle for cycle in found.cycles] == [CYCLE, CYCLE + 1, CYCLE + 2]
    assert [cycle.counts for cycle in found.cycles] == [(1000,) * 3, (150_000,) * 3, (500,) * 3]
    assert all(cycle.is_same for cycle in found.cycles)


def test_empty_queues_are_equal(spark: SparkSession, tmp_path: Path) -> None:
    paths = [make_queue(tmp_path / name, ()) for name in "ab"]
    assert audited(spark, *paths).is_same
    done = CliRunner().invoke(cli, ["spark", "audit", *map(str, paths)])
    assert done.exit_code == 0
    assert done.stdout == "2 copies, up to 0 excerpts each: nothing to compare\n"
    full = make_queue(tmp_path / "full", (3,))
    begun = audited(spark, full, paths[0], common=True)
    assert told(begun) == [("nothing", 0, 0, (False, False))]
    assert begun.differences[0].text == f"nothing was compared: there is no excerpt in {paths[0]}"


def test_a_range_in_which_nothing_lies_proves_nothing(
    spark: SparkSession, queue: Path, copy: Path, tmp_path: Path
) -> None:
    """A range behind the end of a closed cycle proves nothing either, even if that cycle need not
    be read."""
    noted = Path(shutil.copytree(queue, tmp_path / "noted"))
    note_chains(noted)
    note_chains(copy)
    behind = FIRST + 5000
    found = audited(spark, noted, copy, index_first=behind, index_last=behind + 9)
    assert [cycle.counts for cycle in found.cycles] == [(0, 0)]
    assert not found.cycles[0].is_read
    assert (found.is_same, found.is_nothing) == (False, True)
    part = audited(spark, noted, copy, index_first=FIRST + 990, index_last=behind)
    assert (part.is_same, part.count) == (True, 10)
    words = ["spark", "audit", str(queue), str(copy), "--from", hex(FIRST + (9 << 32))]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 1
    assert done.stdout == (
        f"nothing  {FIRST + (9 << 32):#x}  nothing was compared: no excerpt lies from"
        f" {FIRST + (9 << 32):#x} on\n2 copies, up to 0 excerpts each: nothing was compared\n"
    )


def test_one_flipped_byte(spark: SparkSession, queue: Path, copy: Path) -> None:
    number = 1000 + 2 * BLOCK + 17
    flip_byte(store_files(copy)[1], payload(number), 5)
    found = audited(spark, queue, copy)
    index = FIRST + (1 << 32) + 2 * BLOCK + 17
    assert told(found) == [("differ", index, index, (True, True))]
    assert found.differences[0].byte_first == 5
    assert [cycle.is_same for cycle in found.cycles] == [True, False, True]


def test_seven_missing(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    """A cycle has ended too early in one copy, and the later cycles are compared all the same."""
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
    spark: SparkSession, queue: Path, copy: Path, tmp_path: Path
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


def test_a_copy_that_is_the_same_directory_proves_nothing(spark: SparkSession, queue: Path) -> None:
    (found,) = audited(spark, queue, queue).differences
    assert found.verdict.value == "one-file"
    done = CliRunner().invoke(cli, ["spark", "audit", str(queue), str(queue)])
    assert done.exit_code == 1
    assert "compared with itself" in done.stdout


def test_damage_is_told_at_its_place(spark: SparkSession, queue: Path, copy: Path) -> None:
    """Damage is told at its own index, not at the index slot before it. Later cycles are compared
    all the same."""
    path, last = store_files(copy)[1], FIRST + (1 << 32) + 149_999
    header = break_at(path, 1000 + 70_000)
    found = audited(spark, queue, copy)
    assert found.is_damaged
    index = FIRST + (1 << 32) + 70_000
    assert ("missing", index, last, (True, False)) in told(found)
    (document,) = [each for each in found.differences if each.what == "documents"]
    assert (document.index_first, document.present) == (index, (True, False))
    assert f"{path} at position {header}: documents: a document of" in str(document.text)
    assert [cycle.is_same for cycle in found.cycles] == [True, False, True]


def test_damage_where_a_cycle_ends(spark: SparkSession, queue: Path, copy: Path) -> None:
    break_at(store_files(copy)[0], 990)
    found = audited(spark, queue, copy)
    assert ("missing", FIRST + 990, FIRST + 999, (True, False)) in told(found)
    alone = audited(spark, copy, make_queue(copy.with_name("empty"), ()))
    assert alone.is_damaged
    done = CliRunner().invoke(cli, ["spark", "audit", str(queue), str(copy)])
    assert done.exit_code == 4
    assert f"damaged  {FIRST + 990:#x}  {store_files(copy)[0]} at position" in done.stdout


def test_a_flipped_byte_of_an_index_page_is_damage(
    spark: SparkSession, queue: Path, copy: Path
) -> None:
    """All excerpts are the same, and a reader that jumps would land elsewhere."""
    path = store_files(copy)[1]
    position = path.read_bytes().index(payload(1000 + 1024)) - 4
    slot = path.read_bytes().index(position.to_bytes(8, "little"))
    with path.open("r+b") as file:
        file.seek(slot + 1)
        file.write(bytes([path.read_bytes()[slot + 1] ^ 0x10]))
    found = audited(spark, queue, copy)
    assert found.is_damaged
    assert all(cycle.is_same for cycle in found.cycles)
    (page,) = [each for each in found.differences if each.what == "index page"]
    assert page.present == (True, False)
    assert f"{path} at position {slot}" in str(page.text)


def test_what_happened_is_named(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    """The audit names an excerpt that was dropped, though what follows stands at lower indexes."""
    with Queue.open(tmp_path / "less", create="FAST_DAILY") as less:
        numbers = [n for n in range(1000) if n != 300]
        less.append_many([payload(n) for n in numbers], now_ms=CYCLE * 86_400_000)
    found = audited(spark, queue, tmp_path / "less", common=True)
    assert [(each.what, each.index_first) for each in found.differences] == [
        ("dropped", FIRST + 300)
    ]
    assert "lacks 1 excerpt of" in str(found.differences[0].text)


def test_closed_cycles_that_side_files_prove_are_not_read(
    spark: SparkSession, queue: Path, copy: Path, tmp_path: Path
) -> None:
    original = Path(shutil.copytree(queue, tmp_path / "original"))
    assert audited(spark, original, copy).read == 3
    for path in original, copy:
        note_chains(path)
    found = audited(spark, original, copy)
    assert found.is_same
    assert [cycle.is_read for cycle in found.cycles] == [False, False, True]  # the last is open
    assert audited(spark, original, copy, reads_all=True).read == 3
    flip_byte(store_files(copy)[0], payload(17), 5)  # it was written to since
    changed = audited(spark, original, copy)
    assert ("differ", FIRST + 17, FIRST + 17, (True, True)) in told(changed)
    done = CliRunner().invoke(cli, ["spark", "audit", str(queue), str(original)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("fault", ["missing", "empty", "damaged"])
def test_a_last_cycle_that_is_not_known_is_never_the_same(
    spark: SparkSession, tmp_path: Path, fault: str
) -> None:
    """The audit tells of damage even with `--common`: the end that all copies have may be none."""
    assert spark
    queue = make_queue(tmp_path / "queue", (100, 50))
    copy = Path(shutil.copytree(queue, tmp_path / "copy"))
    last = store_files(copy)[1]
    if fault == "missing":
        last.unlink()
    elif fault == "empty":
        last.write_bytes(b"")
    else:
        break_at(last, 130)
    done = CliRunner().invoke(cli, ["spark", "audit", str(queue), str(copy), "--common"])
    assert done.exit_code == 4, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("damaged")]
    assert lines
    assert all(str(last) in line for line in lines)


def test_very_many_differences_are_told_as_one(spark: SparkSession, tmp_path: Path) -> None:
    one = make_queue(tmp_path / "one", (10_000,))
    with Queue.open(tmp_path / "other", create="FAST_DAILY") as queue:
        payloads = [payload(n) if n % 2 else b"other" for n in range(10_000)]
        queue.append_many(payloads, now_ms=CYCLE * 86_400_000)
    found = audited(spark, one, tmp_path / "other")
    assert len(found.differences) == 1001
    assert [cycle.is_same for cycle in found.cycles] == [False]
    assert told(found)[-1] == ("mixed", FIRST + 2000, FIRST + 9999, (True, True))


def test_other_roll_cycles_are_refused(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    Queue.open(tmp_path / "hourly", create="FAST_HOURLY").close()
    with pytest.raises(LayoutMismatch, match="FAST_HOURLY"):
        audited(spark, queue, tmp_path / "hourly")


def test_the_command(spark: SparkSession, queue: Path, copy: Path, tmp_path: Path) -> None:
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
    spark: SparkSession, words: tuple[str, ...], code: int, said: str
) -> None:
    assert spark
    done = CliRunner().invoke(cli, ["spark", "audit", *words])
    assert done.exit_code == code
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.output


@pytest.mark.long
def test_one_byte_among_ten_million_excerpts(spark: SparkSession, tmp_path: Path) -> None:
    count, number = 10_000_000, 8_600_000
    queue = make_queue(tmp_path / "queue", (count // 10, count - count // 10))
    copy = Path(shutil.copytree(queue, tmp_path / "copy"))
    flip_byte(store_files(copy)[1], payload(number), 40)
    found = audited(spark, queue, copy)
    index = FIRST + (1 << 32) + number - count // 10
    assert told(found) == [("differ", index, index, (True, True))]
    assert (found.differences[0].byte_first, found.count) == (40, count)
