"""The plan of an audit: an end that is not known is named, and never taken for the end."""

import shutil
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.closedcycles import ClosedCycle, ClosedCycles
from cqrepl.queue.files.syncedmark import store_synced
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.queue.inspection import lostend
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.read.chains import Chains
from cqrepl.spark.jobs.auditplan import CopyPlan, plan_copies, unfollowed
from tests.support.samples import fill, noon_index, noon_path

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 70}
ALL = (0, int(noon_index(ROLL, ahead=9)))


@pytest.fixture(autouse=True)
def _nobody_makes_files(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"making_s": 0.0, "if_promised": False}
    monkeypatch.setattr(lostend.lost_end, "__kwdefaults__", usual)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    fill(tmp_path / "q", ROLL, COUNTS)
    return tmp_path / "q"


@pytest.fixture
def copy(queue: Path) -> Path:
    return Path(shutil.copytree(queue, queue.with_name("copy")))


def at(ahead: int, sequence: int = 0) -> int:
    return noon_index(ROLL, ahead=ahead, sequence=sequence)


def spans(plan: CopyPlan) -> list[tuple[int, int]]:
    return [(one.index_first, one.index_last) for one in plan.ranges]


def told(*paths: Path, common: bool = True) -> list[tuple[int, tuple[bool, ...], str]]:
    plans = plan_copies(paths, *ALL, common=common)
    return [(each.index_first, each.present, each.text or "") for each in unfollowed(plans, [])]


@pytest.mark.parametrize("common", [True, False])
def test_sound_copies_have_no_unknown_end(queue: Path, copy: Path, common: bool) -> None:
    assert told(queue, copy, common=common) == []


def test_a_copy_that_is_behind_ends_what_is_compared(queue: Path, tmp_path: Path) -> None:
    fill(tmp_path / "behind", ROLL, {0: 5, 1: 10})
    plans = plan_copies([queue, tmp_path / "behind"], *ALL, common=True)
    assert [spans(plan) for plan in plans] == [[(at(0), at(0, 4)), (at(1), at(1, 9))]] * 2
    assert told(queue, tmp_path / "behind") == []


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("side", [0, 1])
def test_a_last_file_that_is_missing(queue: Path, copy: Path, common: bool, side: int) -> None:
    lost = noon_path(copy, ROLL, ahead=2)
    lost.unlink()
    paths = [queue, copy] if side else [copy, queue]
    (found,) = told(*paths, common=common)
    assert found[:2] == (at(2), (side == 1, side == 0))
    assert found[2].startswith(f"{lost}: expected a store file, as listing.highestCycle in ")


def test_a_last_file_that_nobody_has(queue: Path, copy: Path) -> None:
    for path in queue, copy:
        noon_path(path, ROLL, ahead=2).unlink()
    assert len(told(queue, copy, common=False)) == 2


def test_a_last_file_that_only_replication_has_noted(queue: Path, copy: Path) -> None:
    shutil.rmtree(copy)
    fill(copy, ROLL, {0: 5, 1: 300})
    with Queue.open(copy) as opened:
        cycle = Cycle(at(2) >> opened.cycles.shift)
    closed = ClosedCycles(copy)
    closed.remember(ClosedCycle(cycle, 70, bytes(16)))
    closed.note_below(Cycle(cycle + 1))
    ((index, _, text),) = told(queue, copy)
    assert index == at(2)
    assert "as closed.cqmanifest says" in text


@pytest.mark.parametrize("size", [0, 4096])
def test_a_last_file_without_a_header(queue: Path, copy: Path, size: int) -> None:
    empty = noon_path(copy, ROLL, ahead=2)
    empty.write_bytes(bytes(size))
    ((index, present, text),) = told(queue, copy)
    assert (index, present) == (at(2), (True, False))
    assert text == f"{empty}: expected a store file, found {size} bytes without a header"


def test_a_last_file_that_is_damaged(queue: Path, copy: Path) -> None:
    """It is compared up to where what writers recorded proves that it can be followed."""
    with Queue.open(copy) as opened:
        tailer = opened.tailer(at(2, 50))
        batch = tailer.next_batch()
        assert batch is not None
        header = batch.offsets[0] - 4
    path = noon_path(copy, ROLL, ahead=2)
    with path.open("r+b") as file:
        file.seek(header)
        file.write((0x3FFF_FF00).to_bytes(4, "little"))
    plans = plan_copies([queue, copy], *ALL, common=True)
    assert spans(plans[0]) == spans(plans[1])
    ((index, present, text),) = told(queue, copy)
    assert at(2) <= index <= at(2, 50)
    assert spans(plans[0])[-1][1] < index
    assert present == (True, False)
    assert str(path) in text


def test_excerpts_that_were_on_the_disk(queue: Path, copy: Path) -> None:
    """An older file, or one that was filled anew, has the right name and header."""
    store_synced(copy, at(2, 70))
    assert told(queue, copy) == []
    shutil.rmtree(copy.with_name("older"), ignore_errors=True)
    fill(copy.with_name("older"), ROLL, {**COUNTS, 2: 20})
    noon_path(copy.with_name("older"), ROLL, ahead=2).replace(noon_path(copy, ROLL, ahead=2))
    ((index, _, text),) = told(queue, copy)
    assert index == at(2, 20)
    assert "as synced.cqmark says; found 20 of 70" in text
    plans = plan_copies([queue, copy], *ALL)
    assert spans(plans[1]) == spans(plans[0])  # what it lacks is compared, too


def test_a_closed_file_that_is_missing_between_others(queue: Path, copy: Path) -> None:
    with Queue.open(copy) as opened:
        ClosedFiles(opened.cycles, Chains(opened.cycles)).look(Index(at(2)))
    lost = noon_path(copy, ROLL, ahead=1)
    lost.unlink()
    ((index, _, text),) = told(queue, copy)
    assert index == at(1)
    assert text.startswith(f"{lost}: expected 300 excerpts, the store file is not there")


def test_bounds_leave_out_an_unknown_end(queue: Path, copy: Path) -> None:
    noon_path(copy, ROLL, ahead=2).unlink()
    plans = plan_copies([queue, copy], 0, at(1, 299))
    assert list(unfollowed(plans, [])) == []
