"""Planning does not step over a closed store file that is gone, unless retention took it."""

from pathlib import Path

import pytest

from cqrepl.queue import IndexGap, Queue, QueueDamaged
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.read.chains import Chains
from cqrepl.spark.ranges import IndexRange, followed, present
from tests.support.samples import fill, noon_index, noon_path

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 7, 3: 2}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a queue whose closed cycles have been noted."""
    path = tmp_path / "q"
    fill(path, ROLL, COUNTS)
    with Queue.open(path) as queue:
        ClosedFiles(queue.cycles, Chains(queue.cycles)).look(Index(noon_index(ROLL, ahead=3)))
    return path


def at(ahead: int, sequence: int = 0) -> int:
    return noon_index(ROLL, ahead=ahead, sequence=sequence)


def counts(ranges: list[IndexRange]) -> list[int]:
    return [one.count for one in ranges]


def test_whole_queues_are_planned_as_ever(path: Path) -> None:
    with Queue.open(path) as queue:
        assert counts(present(queue)) == [5, 300, 7, 2]
        assert counts(followed(queue)) == [5, 300, 7, 2]
        assert counts(followed(queue, at(1, 100))) == [200, 7, 2]


@pytest.mark.parametrize(
    ("first", "last"), [(0, at(9)), (at(0, 2), at(3, 1)), (at(1), at(1, 7)), (at(1, 9), at(2, 1))]
)
def test_a_missing_file_ends_a_batch(path: Path, first: int, last: int) -> None:
    lost = noon_path(path, ROLL, ahead=1)
    lost.unlink()
    with Queue.open(path) as queue, pytest.raises(QueueDamaged, match="expected 300 ex") as raised:
        present(queue, first, last)
    assert str(raised.value).startswith(str(lost))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("first", [0, at(0), at(0, 5), at(1), at(1, 9)])
def test_a_missing_file_ends_a_stream(path: Path, first: int) -> None:
    lost = noon_path(path, ROLL, ahead=1)
    lost.unlink()
    with Queue.open(path) as queue:
        for may_be_lost in (False, True):  # nothing of retention took it
            with pytest.raises(QueueDamaged, match="expected 300 excerpts") as raised:
                followed(queue, first, may_be_lost=may_be_lost)
            assert str(lost) in str(raised.value)


def test_bounds_beside_the_missing_file_are_read(path: Path) -> None:
    noon_path(path, ROLL, ahead=1).unlink()
    with Queue.open(path) as queue:
        assert counts(present(queue, at(0), at(0, 9))) == [5]
        assert counts(present(queue, at(2), at(9))) == [7, 2]
        assert counts(followed(queue, at(2, 3))) == [4, 2]


def test_what_retention_took_is_no_damage(path: Path) -> None:
    noon_path(path, ROLL, ahead=0).unlink()
    noon_path(path, ROLL, ahead=1).unlink()
    with Queue.open(path) as queue:
        assert counts(present(queue)) == [7, 2]
        assert counts(followed(queue)) == [7, 2]
        assert counts(followed(queue, at(0, 3), may_be_lost=True)) == [7, 2]
        with pytest.raises(IndexGap, match="its store file was removed"):
            followed(queue, at(0, 3))


def test_an_older_file_that_is_shorter(path: Path, tmp_path: Path) -> None:
    fill(tmp_path / "older", ROLL, {1: 9, 2: 1})
    noon_path(tmp_path / "older", ROLL, ahead=1).replace(noon_path(path, ROLL, ahead=1))
    with Queue.open(path) as queue:
        for plan in (present, followed):
            with pytest.raises(QueueDamaged, match="expected 300 excerpts, found 9"):
                plan(queue)
        assert counts(present(queue, at(1), at(1, 5))) == [6]


def test_cutting_opens_a_queue_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cqrepl.spark import ranges

    fill(tmp_path / "q", ROLL, dict.fromkeys(range(4), 2000))
    with Queue.open(tmp_path / "q") as queue:
        found = present(queue)
    opened: list[Path] = []
    opening = Queue.open

    def counted(path: Path) -> Queue:
        opened.append(path)
        return opening(path)

    monkeypatch.setattr(Queue, "open", counted)
    splits = ranges.split(found, split_bytes=1, split_excerpts=500)
    assert len(splits) > 8
    assert opened == [tmp_path / "q"]
