"""A lost queue comes back from what its copies hold together."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.format.index import Cycle
from cqrepl.spark.failures import JobFailed, one_line
from cqrepl.spark.jobs import blockaudit
from cqrepl.spark.jobs import rebuild as job
from cqrepl.spark.jobs.cyclemaker import MadeCycle, make_cycles
from cqrepl.spark.jobs.rebuild import Rebuilt, rebuild
from cqrepl.spark.jobs.tasks import run_tasks
from tests.spark.queues import (
    CYCLE,
    FIRST,
    break_at,
    excerpts,
    make_queue,
    note_chains,
    note_closed,
    payload,
)
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import flip_byte

SECOND, THIRD = FIRST + (1 << 32), FIRST + (2 << 32)


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_queue(tmp_path_factory.mktemp("queue") / "orders", (1000, 100_000, 500))


@pytest.fixture
def copies(queue: Path, tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(queue, tmp_path / f"copy-{n}")) for n in range(3)]


def rebuilt(spark: SparkSession, target: Path, *copies: Path, **options: Path) -> Rebuilt:
    return rebuild(spark, copies, target, task_bytes=1 << 20, **options)


def file_of(queue: Path, nth: int) -> Path:
    return sorted(queue.glob("*.cq4"))[nth]


@pytest.mark.java
@pytest.mark.timeout(BUILD_TIMEOUT_S + 600)
def test_from_three_copies_of_which_none_is_whole(
    spark: SparkSession, queue: Path, copies: list[Path], tmp_path: Path, java: JavaQueue
) -> None:
    """One lacks a cycle, one is broken early in another, one ends in the middle of it."""
    first, second, third = copies
    file_of(first, 0).unlink()
    break_at(file_of(first, 0), 1000 + 300)
    break_at(file_of(second, 1), 1000 + 40_000)
    third_short = make_queue(tmp_path / "short", (1000, 60_000))
    found = rebuilt(spark, tmp_path / "new", first, second, third_short, third)
    assert not found.clashes
    assert found.count == 101_500
    assert excerpts(tmp_path / "new") == excerpts(queue)
    assert len({each.copy for each in found.taken}) > 1
    answer = java.call("verify", tmp_path / "new", 1000)
    assert answer.exit == 0, answer
    with Queue.open(tmp_path / "new") as new:
        assert new.cycles.has_ended(CYCLE)


def test_clashes_need_a_person(
    spark: SparkSession, queue: Path, copies: list[Path], tmp_path: Path
) -> None:
    flip_byte(file_of(copies[0], 1), payload(1000 + 70_000), 9)
    flip_byte(file_of(copies[1], 2), payload(101_000 + 3), 9)
    index = SECOND + 70_000
    new = tmp_path / "new"
    found = rebuilt(spark, new, *copies)
    assert [each.index_first for each in found.clashes] == [index, THIRD + 3]
    assert found.count == 0
    assert not new.exists()
    assert not rebuilt(spark, new, *copies, prefer=copies[2]).clashes
    assert excerpts(new) == excerpts(queue)
    other = tmp_path / "other"
    assert not rebuilt(spark, other, *copies, prefer=copies[0]).clashes
    assert excerpts(other) == excerpts(copies[0])


def test_the_winner_may_be_the_shorter_one(
    spark: SparkSession, copies: list[Path], tmp_path: Path
) -> None:
    """The new queue has what the winner holds, and behind it, in the same block, what only the
    loser has."""
    short = make_queue(tmp_path / "short", (1000, 100))
    flip_byte(file_of(short, 1), payload(1000 + 5), 9)
    found = rebuilt(spark, tmp_path / "new", copies[0], short, prefer=short)
    assert not found.clashes
    made, lost = excerpts(tmp_path / "new"), excerpts(copies[0])
    assert [index for index, _ in made] == [index for index, _ in lost]
    assert [n for n in range(len(made)) if made[n] != lost[n]] == [1005]


def test_an_end_that_nobody_knows(
    spark: SparkSession, queue: Path, copies: list[Path], tmp_path: Path
) -> None:
    """The end is told with a copy that is whole. Without one nothing is made."""
    for copy in copies[:2]:
        break_at(file_of(copy, 2), 101_000 + 490)
    found = rebuilt(spark, tmp_path / "new", *copies)
    assert found.audit.unknown == ((0, CYCLE + 2), (1, CYCLE + 2))
    assert excerpts(tmp_path / "new") == excerpts(queue)
    with pytest.raises(QueueDamaged, match="read to its end"):
        rebuilt(spark, tmp_path / "other", *copies[:2])
    assert not (tmp_path / "other").exists()


def test_what_a_disk_has_changed_is_not_taken(
    spark: SparkSession, queue: Path, copies: list[Path], tmp_path: Path
) -> None:
    """The notes of replication beside a copy tell that it was altered, if no other copy does."""
    altered, whole = copies[:2]
    note_chains(altered)
    flip_byte(file_of(altered, 1), payload(1000 + 70_000), 5)
    new = tmp_path / "new"
    for given, options in ((altered,), {}), ((altered, whole), {"prefer": altered}):
        with pytest.raises(JobFailed, match="is not what it was") as raised, one_line():
            rebuilt(spark, new, *given, **options)
        assert raised.value.code == 4
        assert not new.exists()
    rebuilt(spark, new, altered, whole, prefer=whole)
    assert excerpts(new) == excerpts(queue)


def test_notes_of_a_copy_whose_beginning_is_not_taken(spark: SparkSession, tmp_path: Path) -> None:
    """A large cycle of which the end is noted: what lies before a part is not what was taken."""
    whole = make_queue(tmp_path / "whole", (200_000, 20))
    noted, broken = (Path(shutil.copytree(whole, tmp_path / name)) for name in ("noted", "broken"))
    for copy in (noted, broken):
        note_closed(copy)
    break_at(file_of(broken, 0), 300)
    found = rebuilt(spark, tmp_path / "new", broken, whole)
    assert (0, FIRST + 65_536) in {(each.copy, each.index_first) for each in found.taken}
    assert excerpts(tmp_path / "new") == excerpts(whole)

    flip_byte(file_of(noted, 0), payload(300), 9)
    short = make_queue(tmp_path / "short", (70_000,))
    rebuilt(spark, tmp_path / "other", noted, short, prefer=short)
    assert excerpts(tmp_path / "other") == excerpts(whole)
    with pytest.raises(QueueDamaged, match="is not what it was"):
        rebuilt(spark, tmp_path / "third", noted)
    assert not (tmp_path / "third").exists()


def test_an_excerpt_that_nobody_has(
    spark: SparkSession, copies: list[Path], tmp_path: Path
) -> None:
    for copy in copies:
        break_at(file_of(copy, 1), 1000 + 300)
    with pytest.raises(JobFailed, match="found none that can be read") as raised, one_line():
        rebuilt(spark, tmp_path / "new", *copies)
    assert raised.value.code == 4
    assert not (tmp_path / "new").exists()


def test_a_cycle_that_all_copies_have_lost(
    spark: SparkSession, copies: list[Path], tmp_path: Path
) -> None:
    """One of them is known to have had it: in between, at the end, or shorter than it was."""
    note_closed(copies[0], Cycle(CYCLE + 1))
    lost = file_of(copies[0], 1)
    for copy in copies:
        file_of(copy, 1).unlink()
    with pytest.raises(QueueDamaged, match=r"expected 100000 excerpts in one of the .* found 0;"):
        rebuilt(spark, tmp_path / "new", *copies)
    assert not (tmp_path / "new").exists()
    short = make_queue(tmp_path / "short", (1000, 60_000))
    with pytest.raises(QueueDamaged, match="in one of the copies, found 60000; ") as raised:
        rebuilt(spark, tmp_path / "new", *copies, short)
    assert str(raised.value).startswith(str(lost))
    lose = ["repair", str(copies[0]), "--accept-missing", "--apply"]
    assert CliRunner().invoke(cli, lose).exit_code == 0
    assert rebuilt(spark, tmp_path / "new", *copies).count == 1500


def test_a_last_cycle_that_all_copies_have_lost(
    spark: SparkSession, copies: list[Path], tmp_path: Path
) -> None:
    lost = [file_of(copy, 2) for copy in copies]
    for file in lost:
        file.unlink()
    told = "expected a store file, as listing.highestCycle in metadata.cq4t says"
    with pytest.raises(QueueDamaged, match=told) as raised:
        rebuilt(spark, tmp_path / "new", *copies)
    assert str(raised.value).startswith(str(lost[0]))
    for copy in copies:
        assert CliRunner().invoke(cli, ["repair", str(copy), "--apply"]).exit_code == 0
    assert rebuilt(spark, tmp_path / "new", *copies).count == 101_000


def test_another_copy_at_the_same_path_when_a_block_is_looked_at_closer(
    spark: SparkSession, copies: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other copy has none of the damage for which the block is looked at."""
    flip_byte(file_of(copies[1], 1), payload(1000 + 50_000), 9)
    looked: list[str] = []

    def exchanged(session: Any, what: str, *arguments: Any) -> list[Any]:
        looked.append(what)
        if what == "compared":
            copies[1].rename(tmp_path / "aside")
            copies[2].rename(copies[1])
        return run_tasks(session, what, *arguments)

    monkeypatch.setattr(blockaudit, "run_tasks", exchanged)
    with pytest.raises(JobFailed, match="found another one at the same path"), one_line():
        rebuilt(spark, tmp_path / "new", *copies[:2])
    assert looked == ["digested", "compared"]
    assert not (tmp_path / "new").exists()


def test_another_copy_at_the_same_path_when_it_is_read_again(
    spark: SparkSession, copies: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails if an executor that has read nothing of a copy before sees another one
    there."""

    def exchanged(*arguments: Any, **options: Any) -> list[MadeCycle]:
        copies[1].rename(tmp_path / "aside")
        copies[2].rename(copies[1])
        return make_cycles(*arguments, **options)

    monkeypatch.setattr(job, "make_cycles", exchanged)
    with pytest.raises(JobFailed, match="found another one at the same path"), one_line():
        rebuilt(spark, tmp_path / "new", *copies[:2])
    assert not (tmp_path / "new").exists()


def test_the_command(spark: SparkSession, queue: Path, copies: list[Path], tmp_path: Path) -> None:
    assert spark
    flip_byte(file_of(copies[0], 2), payload(101_000 + 3), 9)
    words = ["spark", "rebuild", str(copies[0]), str(copies[1]), "--to", str(tmp_path / "new")]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 1
    assert refused.stdout.startswith(f"differ   {THIRD + 3:#x}  1 excerpt, first: ")
    assert refused.stdout.endswith("--prefer COPY_DIR says which copy is right\n")
    done = CliRunner().invoke(cli, [*words, "--prefer", str(copies[1])])
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"{tmp_path / 'new'}: 101,500 excerpts\n")
    again = CliRunner().invoke(cli, [*words, "--prefer", str(copies[1])])
    assert again.exit_code == 0, again.output  # it is there, and the same
    bad = CliRunner().invoke(cli, [*words, "--prefer", str(queue)])
    assert bad.exit_code == 2
    assert "one of the copies as the one that wins" in bad.stderr
