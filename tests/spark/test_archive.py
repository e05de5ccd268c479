"""Archived excerpts come back index for index, in files that Java reads."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.queue import LayoutMismatch, Queue, QueueError
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.spark.failures import JobFailed, one_line
from cqrepl.spark.jobs import archive as job
from cqrepl.spark.jobs.archive import archive
from cqrepl.spark.jobs.archivefiles import read_manifest
from cqrepl.spark.jobs.archivelock import locked_archive
from cqrepl.spark.jobs.archiveplace import place_of
from cqrepl.spark.jobs.audit import audit
from cqrepl.spark.jobs.restore import restore
from tests.spark.queues import (
    CYCLE,
    DAY_MS,
    FIRST,
    excerpts,
    make_queue,
    note_chains,
    overwrite_word,
    payload,
)
from tests.spark.test_archive_store import alter
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import flip_byte

SMALL_TASKS = 1 << 20


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cycles, of which the last one is open; the second takes several tasks."""
    return make_queue(tmp_path_factory.mktemp("queue") / "orders", (1000, 100_000, 500))


def archived(spark: SparkSession, queue: Path, out: Path, **options: bool) -> tuple[int, int]:
    manifest, new = archive(spark, queue, out, task_bytes=SMALL_TASKS, **options)
    return manifest.count, new


def restored(
    spark: SparkSession, archive: Path, target: Path, task_bytes: int = SMALL_TASKS
) -> tuple[int, ...]:
    return restore(spark, archive, target, task_bytes=task_bytes).made


def jobs_of(spark: SparkSession, work: Callable[..., tuple[int, ...]], *arguments: object) -> int:
    """The number of Spark's jobs that it takes to make all three cycles."""
    context = spark.sparkContext
    context.setJobGroup(str(arguments[1]), "counted")
    try:
        assert work(spark, *arguments) == (CYCLE, CYCLE + 1, CYCLE + 2)
    finally:
        context.setJobGroup("none", "")
    return len(context.statusTracker().getJobIdsForGroup(str(arguments[1])))


def assert_same(spark: SparkSession, *paths: Path) -> None:
    found = audit(spark, paths)
    assert found.is_same, found.differences


@pytest.mark.java
@pytest.mark.timeout(BUILD_TIMEOUT_S + 600)
def test_java_verifies_what_is_restored(
    spark: SparkSession, queue: Path, tmp_path: Path, java: JavaQueue
) -> None:
    assert archived(spark, queue, tmp_path / "out", with_open=True) == (101_500, 3)
    back = tmp_path / "back"
    assert jobs_of(spark, restored, tmp_path / "out", back) == 2  # parts of a cycle are joined
    assert_same(spark, queue, back)
    whole = tmp_path / "whole"  # each cycle by one task: the same files
    assert jobs_of(spark, restored, tmp_path / "out", whole, 1 << 30) == 1
    for file in sorted(whole.glob("*.cq4")):
        assert (back / file.name).read_bytes() == file.read_bytes()
    assert restored(spark, tmp_path / "out", back) == ()
    with Queue.open(back) as made:
        assert made.cycles.has_ended(CYCLE)  # what was closed is closed again
    answer = java.call("verify", back, 2000)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == 101_500


def test_spark_reads_an_archive(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    archived(spark, queue, tmp_path / "out")
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.columns == ["index", "payload", "day", "cycle"]
    by_cycle = {row["cycle"]: row["count"] for row in frame.groupBy("cycle").count().collect()}
    assert by_cycle == {CYCLE: 1000, CYCLE + 1: 100_000}
    row = frame.filter(frame["index"] == FIRST + 7).collect()[0]
    assert bytes(row["payload"]) == payload(7)
    assert str(row["day"]) == "2023-11-14"


def test_again_takes_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    queue, out, back = make_queue(tmp_path / "queue", (100, 200)), tmp_path / "out", tmp_path / "b"
    assert archived(spark, queue, out, with_open=True) == (300, 2)
    assert archived(spark, queue, out, with_open=True) == (300, 0)
    with Queue.open(queue) as growing:
        growing.append_many([b"more"] * 50, now_ms=(CYCLE + 1) * DAY_MS)
        growing.append(b"next", now_ms=(CYCLE + 2) * DAY_MS)
    assert archived(spark, queue, out, verify=True) == (350, 1)
    assert restored(spark, out, back) == (CYCLE, CYCLE + 1)
    assert excerpts(back) == excerpts(queue)[:-1]
    assert archived(spark, queue, out, with_open=True) == (351, 1)
    assert restored(spark, out, back) == (CYCLE + 2,)
    assert excerpts(back) == excerpts(queue)


def test_an_older_backup_in_place_of_the_queue(spark: SparkSession, tmp_path: Path) -> None:
    """A run does not give up archived excerpts for fewer, nor for other bytes, without an order."""
    queue, out = make_queue(tmp_path / "queue", (700, 5)), tmp_path / "out"
    archived(spark, queue, out)
    before = sorted(out.rglob("*.parquet"))
    shutil.rmtree(queue)
    make_queue(queue, (100, 5))
    words = ["spark", "archive", str(queue), str(out)]
    less = CliRunner().invoke(cli, words)
    assert less.exit_code == 1, less.output
    (line,) = less.stderr.splitlines()
    assert "expected 700 excerpts as archived, found 100 in the queue" in line
    shutil.rmtree(queue)
    make_queue(queue, (700, 5))
    flip_byte(next(queue.glob("20231114*")), payload(650), 2)
    other = CliRunner().invoke(cli, words)
    assert other.exit_code == 1, other.output
    assert re.search("700 excerpts of digest [0-9a-f]{32} as archived, found digest", other.stderr)
    assert sorted(out.rglob("*.parquet")) == before
    done = CliRunner().invoke(cli, [*words, "--replace"])
    assert done.exit_code == 0, done.output
    restored(spark, out, tmp_path / "back")
    assert excerpts(tmp_path / "back") == excerpts(queue)[:700]
    assert len(list(out.rglob("*.parquet"))) == 1


def test_killed_between_part_and_manifest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest that is there names what is there."""
    queue, out = make_queue(tmp_path / "queue", (100, 50)), tmp_path / "out"
    archived(spark, queue, out, with_open=True)
    held = excerpts(queue)
    with Queue.open(queue) as growing:
        growing.append_many([b"more"] * 7, now_ms=(CYCLE + 1) * DAY_MS)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "write_manifest", killed)
    with pytest.raises(KeyboardInterrupt):
        archived(spark, queue, out, with_open=True)
    monkeypatch.undo()
    assert len(list(out.rglob("*.parquet"))) == 3
    restored(spark, out, tmp_path / "back")
    assert excerpts(tmp_path / "back") == held
    assert archived(spark, queue, out, with_open=True) == (157, 1)
    assert len(list(out.rglob("*.parquet"))) == 2


def test_two_runs_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """The second one says so; none loses what the other has archived."""
    queue, out = make_queue(tmp_path / "queue", (100, 50)), tmp_path / "out"
    archived(spark, queue, out)
    with locked_archive(out):
        done = CliRunner().invoke(cli, ["spark", "archive", str(queue), str(out), "--with-open"])
    assert done.exit_code == 5
    assert (
        f"expected no other run in this archive, found one of process {os.getpid()}" in done.stderr
    )
    assert archived(spark, queue, out, with_open=True) == (150, 1)


def test_excerpts_of_all_sizes(spark: SparkSession, tmp_path: Path) -> None:
    """Excerpts of one byte come back, and those larger than what is read in one piece."""
    sizes = [1, 2, 3, 0, 12 * 1024 * 1024, 5, 9 * 1024 * 1024, 9 * 1024 * 1024, 1]
    payloads = [bytes([n]) * size for n, size in enumerate(sizes)]
    with Queue.open(tmp_path / "queue", create="FAST_HOURLY") as queue:
        queue.append_many(payloads, now_ms=CYCLE * DAY_MS)
        queue.append(b"", now_ms=(CYCLE + 1) * DAY_MS)
    archived(spark, tmp_path / "queue", tmp_path / "out", with_open=True)
    restored(spark, tmp_path / "out", tmp_path / "back")
    assert excerpts(tmp_path / "back") == excerpts(tmp_path / "queue")


def test_an_altered_part_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    queue, out = make_queue(tmp_path / "queue", (100, 200)), tmp_path / "out"
    archived(spark, queue, out)
    part = next(out.rglob("*.parquet"))
    alter(part)
    with pytest.raises(JobFailed, match="expected digest") as raised, one_line():
        restored(spark, out, tmp_path / "back")
    assert raised.value.code == 4
    assert str(part) in str(raised.value)
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob("*.building"))


def test_other_excerpts_in_the_target_stay(spark: SparkSession, tmp_path: Path) -> None:
    queue, out = make_queue(tmp_path / "queue", (100, 200)), tmp_path / "out"
    archived(spark, queue, out)
    back = make_queue(tmp_path / "back", (100, 10))
    flip_byte(next(back.glob("20231114*")), payload(50), 2)
    held = excerpts(back)
    with pytest.raises(JobFailed, match="found other ones"), one_line():
        restored(spark, out, back)
    assert excerpts(back) == held


def test_what_is_no_archive_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "queue", (10, 10))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(QueueError, match="expected an archive"):
        archived(spark, queue, tmp_path / "other")
    Queue.open(tmp_path / "hourly", create="FAST_HOURLY").close()
    archived(spark, queue, tmp_path / "out")
    with pytest.raises(LayoutMismatch, match="FAST_HOURLY"):
        archived(spark, tmp_path / "hourly", tmp_path / "out")


def test_the_commands(spark: SparkSession, queue: Path, tmp_path: Path) -> None:
    assert spark
    out, back = str(tmp_path / "out"), str(tmp_path / "back")
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), out, "--verify", "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["excerpts"] for row in rows] == [1000, 100_000]
    again = CliRunner().invoke(cli, ["spark", "restore", out, back])
    assert again.exit_code == 0, again.output
    assert again.stdout.endswith("2 cycles, 2 of them made now; 101,000 excerpts\n")
    bad = CliRunner().invoke(cli, ["spark", "restore", str(queue), back])
    assert bad.exit_code == 2
    assert "found no _manifest.json" in bad.stderr


def test_what_replication_has_noted_is_held_against_what_is_archived(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A run refuses a byte that the disk has changed. Digests of the archive alone would fit it."""
    queue = make_queue(tmp_path / "queue", (300, 150_000, 20))
    note_chains(queue)
    store = sorted(queue.glob("*.cq4"))[1]
    before, data = store.stat(), store.read_bytes()
    flip_byte(store, payload(300 + 70_000), 5)
    os.utime(store, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), str(tmp_path / "archive")])
    assert done.exit_code == 4, done.output
    assert f"{store}: at least one excerpt up to 0x4cdc000" in done.stderr
    assert "is not what it was" in done.stderr
    store.write_bytes(data)
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), str(tmp_path / "archive")])
    assert done.exit_code == 0, done.output


def test_a_last_excerpt_that_was_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "queue", (300, 20))
    overwrite_word(sorted(queue.glob("*.cq4"))[0], payload(299), 0)
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), str(tmp_path / "archive")])
    assert done.exit_code == 4, done.output
    assert "expected an excerpt, as one at" in done.stderr


def test_a_cycle_that_nobody_has_closed_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """A writer was killed when its cycle ended: no run would ever take that cycle."""
    queue, out = make_queue(tmp_path / "queue", (300, 20, 5)), str(tmp_path / "archive")
    store = sorted(queue.glob("*.cq4"))[1]
    overwrite_word(store, b"\xc3EOF", 0)
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), out])
    assert done.exit_code == 1, done.output
    assert f"{store.name}  not archived: it is not closed" in done.stdout
    assert "1 cycle, 1 of them new; 300 excerpts" in done.stdout
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), out, "--with-open"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), out])
    assert done.exit_code == 0, done.output  # as open, but all of it
    assert CliRunner().invoke(cli, ["repair", str(queue), "--apply"]).exit_code == 0
    done = CliRunner().invoke(cli, ["spark", "archive", str(queue), out, "--json"])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["closed"] for line in done.stdout.splitlines()] == [True, True, False]


@pytest.mark.usefixtures("spark")
def test_a_cycle_that_may_be_missing_is_said(tmp_path: Path) -> None:
    path = make_queue(tmp_path / "orders", (4, 0, 3, 2))
    done = CliRunner().invoke(cli, ["spark", "archive", str(path), str(tmp_path / "a"), "--json"])
    assert done.exit_code == 0, done.output
    [told] = [row["holes"] for row in map(json.loads, done.stdout.splitlines()) if "holes" in row]
    assert told.startswith(f"{path}: 1 cycle between others without a store file, ")
    again = CliRunner().invoke(cli, ["spark", "archive", str(path), str(tmp_path / "b")])
    assert f"{told}\n" in again.stdout


def test_an_archive_is_of_one_queue(spark: SparkSession, tmp_path: Path) -> None:
    """An archive refuses another queue, even if the cycles of both are apart. A restored queue goes
    on with it."""
    one, out = make_queue(tmp_path / "one", (40, 30, 5)), tmp_path / "archive"
    other = make_queue(tmp_path / "other", (0, 0, 0, 20, 10), start=1000)
    assert archived(spark, one, out) == (70, 2)
    bound = read_manifest(place_of(out)).identity
    with Queue.open(one) as queue:
        assert queue.identity.load() == bound is not None
    for options in ({}, {"holds": True}):
        with pytest.raises(QueueError, match=r"expected an archived cycle of .*, to tell whose"):
            archived(spark, other, out, **options)
    with Queue.open(other) as queue:
        given = queue.identity.keep(new_identity)
    with pytest.raises(QueueError, match=f"expected queue {bound} that .* found queue {given}"):
        archived(spark, other, out)
    restored(spark, out, tmp_path / "back")
    with Queue.open(tmp_path / "back") as queue:
        assert queue.identity.load() == bound
    assert archived(spark, tmp_path / "back", out) == (70, 0)
    assert archived(spark, other, out, replace=True)[1] == 1
    assert read_manifest(place_of(out)).identity == given


def test_an_archive_of_before_is_bound_where_the_queue_holds_a_cycle_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, out = make_queue(tmp_path / "one", (40, 30, 5)), tmp_path / "archive"
    archived(spark, one, out)
    bound = read_manifest(place_of(out)).identity
    file = out / "_manifest.json"
    fields = json.loads(file.read_text())
    del fields["identity"]
    file.write_text(json.dumps(fields))
    other = make_queue(tmp_path / "other", (0, 0, 0, 20, 10), start=1000)
    with Queue.open(other) as queue:
        queue.identity.keep(new_identity)
    with pytest.raises(QueueError, match="expected an archived cycle of"):
        archived(spark, other, out)
    archived(spark, one, out)
    assert read_manifest(place_of(out)).identity == bound
