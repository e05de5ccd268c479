"""Writing several queues at once: a column tells the queue of each row."""

import os
import random
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cqrepl.queue import Diverged, IndexGap, Queue, QueueError, QueueLayout, QueueLocked
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark import in_index_order
from cqrepl.spark.manyqueues import Parts, QueueSet, commit_many, stage_many
from cqrepl.spark.staging import begin
from cqrepl.spark.tableoptions import OptionError
from tests.net.test_disk_full import small_file_system
from tests.spark.committing import (
    excerpts,
    kill_when_reached,
    many_staged,
    named_batches,
    written_elsewhere,
)
from tests.spark.queries import drained, forget_last_batch
from tests.support.samples import Excerpts, fill, noon_index, read

DAY = "FAST_DAILY"
HOUR = "FAST_HOURLY"
KILLS = 9
CUTS = {"splitBytes": 1, "splitExcerpts": 100}


def queues(folder: Path, **more: Any) -> QueueSet:
    return QueueSet(
        **{"folder": folder, "column": "to", "roll_cycle": DAY, "is_synced": False, **more}
    )


def held(folder: Path, *names: str) -> dict[str, Excerpts]:
    return {name: read(folder / name) for name in names}


def rows_of(*names: str, count: int = 30) -> dict[str, Excerpts]:
    return {
        name: [(index, b"%s %d" % (name.encode(), index)) for index, _ in excerpts(count)]
        for name in names
    }


def test_rows_of_several_queues_in_one_task(tmp_path: Path) -> None:
    """Rows come in any mixture, and again. Each queue gets its own, in the order of their
    indexes."""
    rows = rows_of("a", "b", "deep/c")
    mixed = [(name, *row) for name in rows for row in rows[name]]
    random.Random(3).shuffle(mixed)
    mixed.sort(key=lambda row: row[1])
    target = queues(tmp_path / "all")
    for done in (3 * len(rows["a"]), 0):
        begin(tmp_path / "job")
        parts = stage_many(tmp_path / "job", target, named_batches(mixed, 50))
        assert commit_many(target, [parts]) == done
        assert held(tmp_path / "all", *rows) == rows
    assert commit_many(target, []) == 0


def test_parts_of_a_queue_from_several_tasks(tmp_path: Path) -> None:
    rows, target = rows_of("a", "b"), queues(tmp_path)
    parts = many_staged(tmp_path / "job", target, rows, tasks=7)
    random.Random(1).shuffle(parts)
    assert commit_many(target, parts[:3] + parts[3:]) == 240
    assert held(tmp_path, *rows) == rows


def test_each_queue_keeps_its_layout(tmp_path: Path) -> None:
    """One that is there has its own; a new one is as the queue of its name, or as the only one."""
    fill(tmp_path / "to" / "hours", HOUR, {0: 3})
    fill(tmp_path / "from" / "hours2", HOUR, {0: 3})
    more: Excerpts = [(noon_index(HOUR, ahead=1, sequence=n), b"later %d" % n) for n in range(3)]
    before = read(tmp_path / "to" / "hours")
    rows = {"hours": more, "hours2": more}
    target = queues(tmp_path / "to", roll_cycle=None, like=tmp_path / "from")
    assert commit_many(target, many_staged(tmp_path / "job", target, rows)) == 6
    assert held(tmp_path / "to", "hours", "hours2") == {"hours": before + more, "hours2": more}
    days = rows_of("days", count=2)
    with pytest.raises(QueueError, match="from/days: expected a queue directory, found none"):
        commit_many(target, many_staged(tmp_path / "job", target, days))
    only = replace(target, like=tmp_path / "to" / "hours")
    commit_many(only, many_staged(tmp_path / "job", only, {"x": more}))
    with pytest.raises(OptionError, match=f"rollCycle: .* no queue at {tmp_path}/to/days"):
        commit_many(replace(target, like=None), many_staged(tmp_path / "job", target, days))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/../b", "/x", "a//b", "./a", "a/", "nul\0", None]
)
def test_what_is_no_name_of_a_queue(tmp_path: Path, name: str) -> None:
    begin(tmp_path / "job")
    told = "expected the path of a queue below it in to, found " if name is not None else "in each"
    with pytest.raises(QueueError, match=told) as raised:
        stage_many(
            tmp_path / "job", queues(tmp_path / "all"), named_batches([(name, 1 << 40, b"x")], 9)
        )
    assert str(raised.value).startswith(f"{tmp_path}/all: ")
    assert "\n" not in str(raised.value)


def test_indexes_that_do_not_rise(tmp_path: Path) -> None:
    target, rows = queues(tmp_path / "all"), rows_of("a", "b")
    for bad, size in ((5, 1000), (0, 5)):
        given = [("a", *row) for row in rows["a"][:20]] + [("b", *row) for row in rows["b"][:20]]
        given.append(("a", *rows["a"][bad]))
        begin(tmp_path / "job")
        with pytest.raises(QueueError, match=r"all/a: expected an index above 0x\w+13 in a task"):
            stage_many(tmp_path / "job", target, named_batches(given, size))


def test_what_one_queue_cannot_take_changes_none(tmp_path: Path) -> None:
    """The queue that cannot take its rows is named, whether its name comes first or not."""
    rows, target = rows_of("a", "m", "z"), queues(tmp_path)

    def staged(**changed: Excerpts) -> list[Parts]:
        return many_staged(tmp_path / "job", target, {**rows, **changed})

    first = {name: each[:20] for name, each in rows.items()}
    commit_many(target, many_staged(tmp_path / "job", target, first))
    foreign = [(rows["z"][20][0], b"foreign")]
    hole, twice = rows["z"][:25] + rows["z"][26:], [*staged(), *staged(a=[], m=[])]
    with pytest.raises(IndexGap, match=f"{tmp_path}/z: expected index 0x.*, found 0x"):
        commit_many(target, staged(z=hole))
    with pytest.raises(QueueError, match=f"{tmp_path}/z: expected each index once"):
        commit_many(target, twice)
    with pytest.raises(QueueError, match=f"{tmp_path}/a: expected indexes from 0x"):
        commit_many(replace(target, is_existing_refused=True), staged())
    with pytest.raises(OptionError, match=f"expected append, as {tmp_path}/a holds excerpts"):
        commit_many(replace(target, is_empty_wanted=True), staged())
    with pytest.raises(QueueError, match=f"{tmp_path}/z: expected excerpts of at most 16"):
        commit_many(target, staged(z=[*rows["z"][:21], (rows["z"][21][0], bytes(20 << 20))]))
    assert held(tmp_path, *rows) == first
    with Queue.open(tmp_path / "z") as queue:
        queue.append(b"foreign", now_ms=86_400_000 * (foreign[0][0] >> 32))
    with pytest.raises(Diverged, match=f"{tmp_path}/z"):
        commit_many(target, staged())
    assert held(tmp_path, "a", "m") == {name: first[name] for name in "am"}
    assert read(tmp_path / "z") == [*first["z"], *foreign]


def test_a_cycle_that_has_no_room(tmp_path: Path) -> None:
    """Runs that go on in the next cycle are not taken for one that has room."""
    small = QueueLayout(roll_cycle=by_name(DAY), epoch=0, index_count=8, index_spacing=1)
    target, start = queues(tmp_path), noon_index(DAY)
    with Queue.open(tmp_path / "a", create=small) as queue:
        queue.append(b"x", now_ms=86_400_000 * (start >> 32))
    over = [(start + (1 << 32) - 30 + n, b"x") for n in range(60)]
    for rows in ([(start + n, b"x") for n in range(65)], over):
        with pytest.raises(QueueError, match="/a: expected at most 64 excerpts in a cycle"):
            commit_many(target, many_staged(tmp_path / "job", target, {"a": rows}))
    assert read(tmp_path / "a") == [(start, b"x")]


def test_two_names_of_one_queue(tmp_path: Path) -> None:
    target = queues(tmp_path)
    commit_many(target, many_staged(tmp_path / "job", target, rows_of("a")))
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(QueueError, match=f"{tmp_path}/b: .* found that of {tmp_path}/a"):
        commit_many(target, many_staged(tmp_path / "job", target, rows_of("a", "b")))
    for inner in (["a/c"], ["new", "new/deep/d"]):
        with pytest.raises(QueueError, match=f"{inner[-1]}: expected no queue within another"):
            commit_many(target, many_staged(tmp_path / "job", target, rows_of(*inner)))
    assert not (tmp_path / "new").exists()
    assert read(tmp_path / "a") == rows_of("a")["a"]


def test_a_queue_that_is_being_written(tmp_path: Path) -> None:
    """The other ones are left as they are, too; and none stays locked."""
    rows, target = rows_of("a", "b"), queues(tmp_path)
    commit_many(target, many_staged(tmp_path / "job", target, {"b": rows["b"][:5]}))
    staged = many_staged(tmp_path / "job", target, rows)
    with written_elsewhere(tmp_path / "b"), pytest.raises(QueueLocked, match=f"{tmp_path}/b"):
        commit_many(target, staged)
    assert held(tmp_path, "a", "b") == {"a": [], "b": rows["b"][:5]}
    assert commit_many(target, many_staged(tmp_path / "job", target, rows)) == 235


@pytest.fixture
def few_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 100, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("few_files")
def test_more_queues_than_can_be_open_at_once(tmp_path: Path) -> None:
    target = queues(tmp_path / "all", is_synced=True)
    row = excerpts(1)[:1]
    staged = many_staged(tmp_path / "job", target, {f"q{nth}": row for nth in range(60)})
    told = r"all: expected at most \d+ queues in one write, as this process may have \d+ files open"
    with pytest.raises(QueueError, match=told):
        commit_many(target, staged)
    assert not (tmp_path / "all").exists()
    some = many_staged(tmp_path / "job", target, {f"q{nth}": row for nth in range(14)})
    assert commit_many(target, some) == 14


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The line names a queue, and what was written of each is its beginning."""
    names = ["a", "b", "c", "d"]
    rows = {name: [(index, bytes(1000)) for index, _ in excerpts(500)] for name in names}
    with small_file_system(tmp_path / "disk", "6m") as enlarge:
        target = queues(tmp_path / "disk" / "all", is_synced=True)
        staged = many_staged(tmp_path / "job", target, rows)
        told = rf"\[Errno 28\] No space left on device: '{target.folder}/[abcd]"
        with pytest.raises(OSError, match=told):
            commit_many(target, staged)
        enlarge()
        assert commit_many(target, staged) > 0
        assert held(target.folder, *names) == rows


def test_a_killed_driver_leaves_what_the_next_commit_completes(tmp_path: Path) -> None:
    """Killed when one of the queues has reached a random length; again over what it left."""
    numbers, names, count = random.Random(7), ("a", "b", "c"), 2000
    rows = {name: excerpts(count) for name in names}
    killed = 0
    folder = tmp_path / "q"
    for nth in range(KILLS):
        name, length = numbers.choice(names), numbers.randrange(len(rows["a"]))
        killed += kill_when_reached(folder / name, length, folder, tmp_path / "s", count, *names)
        if nth % 3 == 2:
            target = queues(folder)
            commit_many(target, many_staged(tmp_path / "job", target, rows))
            assert held(folder, *names) == rows
            folder = tmp_path / f"q{nth}"
    assert killed > KILLS // 4


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, dict[str, Excerpts]]:
    folder = tmp_path / "from"
    return folder, {
        "bonds": fill(folder / "bonds", DAY, {0: 700, 1: 20, 4: 300}),
        "fx": fill(folder / "fx", HOUR, {0: 10, 3: 400}),
        "shares": fill(folder / "shares", DAY, {2: 250}),
    }


def load(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("chronicle").options(**CUTS).load(str(folder / "*"))


def save(frame: DataFrame, folder: Path, mode: str = "append", **options: str) -> None:
    given = {"queueColumn": "queue", **options}
    frame.write.format("chronicle").options(**given).mode(mode).save(str(folder))


def test_copies_of_several_queues(
    spark: SparkSession, sources: tuple[Path, dict[str, Excerpts]], tmp_path: Path
) -> None:
    folder, written = sources
    for _ in range(2):
        save(in_index_order(load(spark, folder), 3, "queue"), tmp_path / "to", like=str(folder))
        assert held(tmp_path / "to", *written) == written
    assert not list((tmp_path / ".to.staging").iterdir())
    named = load(spark, folder).selectExpr("index", "payload", "concat('eu/', queue) as book")
    save(
        in_index_order(named.where("book != 'eu/fx'"), 2, "book"),
        tmp_path / "named",
        queueColumn="book",
        rollCycle=DAY,
    )
    assert read(tmp_path / "named/eu/bonds") == written["bonds"]


def test_what_cannot_be_written_is_told_in_one_sentence(
    spark: SparkSession, sources: tuple[Path, dict[str, Excerpts]], tmp_path: Path
) -> None:
    folder, written = sources
    frame, like = load(spark, folder), {"like": str(folder)}
    full = Path(shutil.copytree(folder, tmp_path / "full"))
    for columns, path, mode, options, told in (
        (["*"], full / "fx", "append", like, "option path: expected a directory of queues"),
        (["*"], tmp_path / "to", "append", {"like": "no"}, "option like: expected a queue, or"),
        (["*"], tmp_path / "to", "append", {}, "option rollCycle: expected one, or like"),
        (["*"], full, "overwrite", {}, f"expected append, as {full}/bonds holds excerpts"),
        (["*"], full, "append", {"onExisting": "fail"}, f"{full}/bonds: expected indexes fr"),
        (["*"], tmp_path / "to", "append", {"queueColumn": "index"}, "option queueColumn: expec"),
        (["index", "payload"], full, "append", {}, "expected a column queue of string to write"),
        (["*", "1 as x"], full, "append", {}, "expected columns of queue, index, "),
        (["'../x' as queue", "index", "payload"], tmp_path / "to", "append", like,
         "expected the path of a queue below it in queue, found '../x'"),
    ):  # fmt: skip
        ordered = in_index_order(
            frame.selectExpr(*columns), 2, None if len(columns) == 2 else "queue"
        )
        with pytest.raises(PySparkException) as raised:
            save(ordered, path, mode, **options)
        assert told in str(raised.value)
    assert held(full, *written) == written
    assert not any((tmp_path / "to").glob("*/*.cq4"))


def test_streams_over_several_queues(
    spark: SparkSession, sources: tuple[Path, dict[str, Excerpts]], tmp_path: Path
) -> None:
    """A batch that Spark delivers again, as its entry in the commit log has gone, comes once."""
    folder, written = sources
    for again in range(3):
        reading = spark.readStream.format("chronicle").option("maxExcerptsPerBatch", 600)
        frame = reading.options(**CUTS).load(str(folder / "*"))
        options = {"queueColumn": "queue", "like": str(folder)}
        drained(frame, tmp_path, "chronicle", tmp_path / "to", **options)
        assert held(tmp_path / "to", *written) == written
        forget_last_batch(tmp_path / "checkpoint")
        with Queue.open(folder / "bonds") as queue:
            index = queue.append(
                b"more", now_ms=86_400_000 * (noon_index(DAY, ahead=4 + again) >> 32)
            )
        written["bonds"].append((index, b"more"))
