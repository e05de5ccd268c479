"""Staging and committing without Spark: order, repeats, another writer's excerpts, crashes."""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cqrepl.queue import Diverged, IndexGap, QueueError, QueueLocked
from cqrepl.spark.staging import ABANDONED_S, StagedPart, begin, commit, discard, stage, sweep
from tests.spark.committing import (
    SHIFT,
    excerpts,
    kill_when_reached,
    record_batches,
    staged,
    target,
    written_elsewhere,
)
from tests.support.samples import Excerpts, noon_index, read

KILLS = 12


def stage_all(tmp_path: Path, *parts: Excerpts) -> list[StagedPart]:
    begin(tmp_path / "job")
    return [stage(tmp_path / "job", SHIFT, record_batches(rows, 7)) for rows in parts]


def test_parts_in_any_order_are_appended_in_that_of_indexes(tmp_path: Path) -> None:
    rows = excerpts(100)
    parts = staged(tmp_path / "job", rows, tasks=7)
    random.Random(1).shuffle(parts)
    assert commit(target(tmp_path / "q"), parts) == 400
    assert read(tmp_path / "q") == rows
    by_cycles = stage_all(tmp_path, rows[:100] + rows[200:300], rows[100:200] + rows[300:])
    assert commit(target(tmp_path / "other"), by_cycles) == 400
    assert read(tmp_path / "other") == rows


def test_a_repeated_commit_changes_nothing(tmp_path: Path) -> None:
    rows = excerpts(50)
    first, more = staged(tmp_path / "job", rows[:120]), staged(tmp_path / "job", rows)
    assert commit(target(tmp_path / "q"), first) == 120
    assert commit(target(tmp_path / "q"), first) == 0
    assert commit(target(tmp_path / "q"), more) == 80
    assert commit(target(tmp_path / "q"), more) == 0
    assert read(tmp_path / "q") == rows


def test_attempts_that_do_not_count_leave_no_trace(tmp_path: Path) -> None:
    rows = excerpts(50)
    begin(tmp_path / "job")
    given = iter(record_batches(rows[:100], 7))

    def dies() -> Iterator[pa.RecordBatch]:
        yield next(given)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage(tmp_path / "job", SHIFT, dies())
    twice = [staged(tmp_path / "job", rows, tasks=2) for _ in range(2)]
    assert commit(target(tmp_path / "q"), [twice[1][0], twice[0][1]]) == 200
    assert read(tmp_path / "q") == rows


def test_a_task_that_outlives_its_job_leaves_nothing(tmp_path: Path) -> None:
    staged(tmp_path / "job", excerpts(1))
    discard(tmp_path / "job")
    with pytest.raises(FileNotFoundError):
        stage(tmp_path / "job", SHIFT, record_batches(excerpts(1)))
    assert not (tmp_path / "job").exists()


def test_tasks_that_stage_while_their_job_is_discarded_leave_nothing(tmp_path: Path) -> None:
    def work() -> None:
        with suppress(FileNotFoundError):
            for _ in range(200):
                stage(tmp_path / "staging" / "job", SHIFT, record_batches(excerpts(1)))

    for _ in range(20):
        begin(tmp_path / "staging" / "job")
        with ThreadPoolExecutor(4) as threads:
            for _ in range(4):
                threads.submit(work)
            while len(list((tmp_path / "staging" / "job").iterdir())) < 8:
                pass
            discard(tmp_path / "staging" / "job")
        assert list((tmp_path / "staging").iterdir()) == []


def test_empty_excerpts_and_empty_parts(tmp_path: Path) -> None:
    rows = [(index, b"") for index, _ in excerpts(3)]
    for _ in range(2):
        commit(target(tmp_path / "q"), stage_all(tmp_path, rows, []))
    assert read(tmp_path / "q") == [(index, b"\x8f") for index, _ in rows]
    assert commit(target(tmp_path / "none"), []) == 0
    assert read(tmp_path / "none") == []


@pytest.mark.parametrize("others", ["other bytes", "further on", "in a later cycle"])
def test_another_appender_in_between_is_detected(tmp_path: Path, others: str) -> None:
    rows, path = excerpts(50), tmp_path / "q"
    commit(target(path), staged(tmp_path / "job", rows[:20]))
    at, shown = {
        "other bytes": (rows[20][0], Diverged),
        "further on": (rows[20][0], Diverged),
        "in a later cycle": (noon_index("FAST_DAILY", ahead=9), IndexGap),
    }[others]
    foreign = [(at + n, b"foreign") for n in range(1 if others == "other bytes" else 60)]
    commit(target(path), staged(tmp_path / "job", foreign[:30]))
    before = read(path)
    with pytest.raises(shown):
        commit(target(path), staged(tmp_path / "job", rows))
    assert read(path) == before


def test_what_cannot_be_appended_whole_changes_nothing(tmp_path: Path) -> None:
    rows, path = excerpts(50), tmp_path / "q"
    commit(target(path), staged(tmp_path / "job", rows[:20]))
    for parts, told in (
        ([rows[:30], rows[29:]], "expected each index once, found 0x4d4b0000001d twice"),
        ([rows[:30], rows[31:]], "expected index 0x4d4b0000001e, found 0x4d4b0000001f"),
        ([rows[21:]], "expected index 0x4d4b00000014, found 0x4d4b00000015"),
    ):
        with pytest.raises(QueueError, match=told):
            commit(target(path), stage_all(tmp_path, *parts))
    careful = replace(target(path), is_existing_refused=True)
    with pytest.raises(QueueError, match="expected indexes from 0x4d4b00000014 on, found 0x4d4b"):
        commit(careful, stage_all(tmp_path, rows))
    for rows_bad, told in (
        (rows[5:10] + rows[:5], "expected 0x4d4b0000000a after 0x4d4b00000009 in a task"),
        (rows[:5] + rows[4:], "expected 0x4d4b00000005 after 0x4d4b00000004 in a task"),
        (rows[:3] + rows[4:], "expected 0x4d4b00000003 after 0x4d4b00000002 in a task"),
        (rows[50:60] + rows[:5], "expected 0x4d4c0000000a after 0x4d4c00000009 in a task"),
    ):
        with pytest.raises(QueueError, match=told):
            stage_all(tmp_path, rows_bad)
    assert read(path) == rows[:20]


def test_a_queue_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    rows, path = excerpts(10), tmp_path / "q"
    commit(target(path), staged(tmp_path / "job", rows[:5]))
    with written_elsewhere(path), pytest.raises(QueueLocked):
        commit(target(path), staged(tmp_path / "job", rows))
    assert commit(target(path), staged(tmp_path / "job", rows)) == 35


def test_a_killed_driver_leaves_what_the_next_commit_completes(tmp_path: Path) -> None:
    """Killed when the queue has reached a random length; killed again over what it left."""
    numbers, count = random.Random(7), 5000
    rows, path = excerpts(count), tmp_path / "q"
    killed = 0
    for nth in range(KILLS):
        length = numbers.randrange(len(rows))
        killed += kill_when_reached(path, length, path, tmp_path / "staging", count)
        if nth % 3 == 2:
            commit(target(path), staged(tmp_path / "job", rows))
            assert read(path) == rows
            path = tmp_path / f"q{nth}"
    assert killed > KILLS // 4


def test_abandoned_jobs_are_swept(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    old, given_up, new = "0a" * 16, "0b" * 16 + ".discarded", "0c" * 16
    for name in (old, given_up, new):
        staged(staging / name, excerpts(2))
    begin(staging / ("0d" * 16))
    for name in (old, given_up, "0d" * 16):
        make_old(staging / name)
    sweep(staging)
    assert [each.name for each in staging.iterdir()] == [new]
    sweep(tmp_path / "none")


def test_what_is_no_job_is_not_swept(tmp_path: Path) -> None:
    """A staging directory may be one where queues and other things are."""
    rows, foreign = excerpts(2), ("notes", "0e" * 16, "0f" * 16)
    commit(target(tmp_path / "q"), staged(tmp_path / "job", rows))
    for name in foreign:
        (tmp_path / name).mkdir()
    (tmp_path / ("0e" * 16) / "kept.txt").write_text("kept")
    (tmp_path / ("0f" * 16) / ("0f" * 16 + ".arrow")).mkdir()
    for name in ("q", *foreign):
        make_old(tmp_path / name)
    sweep(tmp_path)
    assert read(tmp_path / "q") == rows
    assert all((tmp_path / name).is_dir() for name in foreign)


def make_old(folder: Path) -> None:
    for each in (*folder.iterdir(), folder):
        os.utime(each, (0, each.stat().st_mtime - ABANDONED_S - 60))
