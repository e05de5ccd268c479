"""Store files that are made ready before their cycle begins."""

import resource
import time
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import Cycle, cycle_of
from cqrepl.queue.write.nextcycle import NextCycle, precreate, remove_passed
from cqrepl.queue.write.pretoucher import page_toucher
from tests.support.samples import NOON_MS, fill, layout, noon_index, noon_path, read
from tests.support.turns import populates, turn_of

MIB = 1 << 20
DAY_MS = 86_400_000
NOON = cycle_of(noon_index(), 32)


def ready_files(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if ".precreated" in file.name)


def cycles_of(path: Path, name: str = "FAST_DAILY") -> Cycles:
    return Cycles(path, layout(name).roll_cycle, 0)


def test_a_ready_file_is_like_any_new_one_and_is_taken(tmp_path: Path) -> None:
    fill(tmp_path / "usual", "FAST_DAILY", {0: 20})
    path = tmp_path / "queue"
    with Queue.open_for_append(path, create=layout()) as queue:
        ready = precreate(queue.cycles, queue.layout, NOON, 3 * MIB)
        assert ready == path / "20240305F.precreated"
        assert ready.stat().st_size == 3 * MIB
        assert ready.stat().st_blocks * 512 >= 3 * MIB
        assert precreate(queue.cycles, queue.layout, NOON, 3 * MIB) is None
        inode = ready.stat().st_ino
    fill(path, "FAST_DAILY", {0: 20})
    assert ready_files(path) == []
    assert noon_path(path).stat().st_ino == inode
    usual = noon_path(tmp_path / "usual").read_bytes()
    assert noon_path(path).read_bytes().rstrip(b"\0") == usual.rstrip(b"\0")
    assert precreate(cycles_of(path), layout(), NOON, MIB) is None


def test_less_than_a_new_file_is_asked_for(tmp_path: Path) -> None:
    path = precreate(cycles_of(tmp_path), layout(), NOON, 0)
    assert path is not None
    assert path.stat().st_size > 1 << 16  # two index pages of 4096 longs each


def test_no_space_leaves_nothing(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            precreate(cycles_of(tmp_path), layout(), NOON, 2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert list(tmp_path.iterdir()) == []


def test_what_was_passed_goes_and_nothing_else(tmp_path: Path) -> None:
    keep = ["20240306F.precreated", "other.precreated", "20240304F.cq4", "20240304F.note"]
    for name in ["20240305F.precreated", "20240301F.precreated.77", *keep]:
        (tmp_path / name).write_bytes(b"")
    remove_passed(cycles_of(tmp_path), NOON + 1)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(keep)


@pytest.mark.parametrize(
    ("roll_cycle", "now_ms", "wait_s"),
    [
        ("FAST_DAILY", 0, 12 * 3600 - 60),
        ("FAST_DAILY", 12 * 3600_000 - 60_500, 0.5),
        ("FAST_DAILY", 12 * 3600_000 - 1, 0),
        ("FAST_DAILY", 12 * 3600_000, None),
        ("MINUTELY", 0, 54),
        ("MINUTELY", 54_001, 0),
        ("FAST_HOURLY", 0, 59 * 60),
        ("TEST4_SECONDLY", 0, None),
    ],
)
def test_when_the_next_file_is_made(
    tmp_path: Path, roll_cycle: str, now_ms: int, wait_s: float | None
) -> None:
    cycle = layout(roll_cycle).roll_cycle.cycle_at(NOON_MS, 0)
    following = NextCycle(cycles_of(tmp_path, roll_cycle), layout(roll_cycle), 4 * MIB)
    assert following.wait_s(NOON_MS + now_ms) is None
    following.stands_in(cycle)
    assert following.wait_s(NOON_MS + now_ms) == wait_s


def test_it_is_made_once_and_as_large_as_the_present_one(tmp_path: Path) -> None:
    following = NextCycle(cycles_of(tmp_path), layout(), 4 * MIB)
    for cycle, position, size in [(NOON, 100, MIB), (Cycle(NOON + 1), 2 * MIB, 2 * MIB)]:
        following.stands_in(cycle)
        following.make(position)
        following.stands_in(cycle)
        assert following.wait_s(NOON_MS) is None
        [name] = ready_files(tmp_path)
        assert (tmp_path / name).stat().st_size == size
    following.stands_in(Cycle(NOON + 2))  # whose file was not taken: some other way it has one
    assert ready_files(tmp_path) == []
    following.make(100 * MIB)
    [name] = ready_files(tmp_path)
    assert (tmp_path / name).stat().st_size == 4 * MIB
    following.forget()
    following.forget()
    assert ready_files(tmp_path) == []


@populates
def test_the_helper_makes_it_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is set; the file is there before the writer rolls, is taken, and the next one too
    is gone with the helper."""
    before_midnight_ms = NOON_MS + DAY_MS // 2 - 30_000
    now_ms = [before_midnight_ms]
    monkeypatch.setattr(time, "time_ns", lambda: now_ms[0] * 1_000_000)
    with Queue.open_for_append(tmp_path, create=layout()) as queue:
        toucher = page_toucher(queue.cycles, queue.layout, MIB)
        assert toucher is not None
        turn = turn_of(toucher)
        appender = queue.appender(toucher=toucher)
        appender.append([b"today"])
        turn.settle()
        assert ready_files(tmp_path) == ["20240306F.precreated"]
        inode = (tmp_path / "20240306F.precreated").stat().st_ino
        now_ms[0] += 30_000
        appender.append([b"tomorrow"])
        assert (tmp_path / "20240306F.cq4").stat().st_ino == inode
        assert ready_files(tmp_path) == []
        turn.settle()
        now_ms[0] += DAY_MS - 10
        appender.append([bytes(MIB)])  # an order: it looks at the clock again
        turn.settle()
        assert ready_files(tmp_path) == ["20240307F.precreated"]
        toucher.close()
        assert ready_files(tmp_path) == []
    assert [data[:8] for _, data in read(tmp_path)] == [b"today", b"tomorrow", bytes(8)]
