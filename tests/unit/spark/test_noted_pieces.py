"""Excerpts read of a closed cycle are held against the notes of replication, whole or in parts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.spark.jobs.blocks import BLOCK_EXCERPTS, read_pieces
from cqrepl.spark.jobs.notedpieces import Doubt, begun_check, read_noted
from cqrepl.spark.jobs.stitcher import Stitcher
from tests.spark.queues import FIRST, break_at, make_queue, note_chains, note_closed, payload
from tests.support.samples import flip_byte

COUNT = 2 * BLOCK_EXCERPTS + 5000
PARTS = [(0, BLOCK_EXCERPTS), (BLOCK_EXCERPTS, COUNT - 3), (COUNT - 3, COUNT)]


def refused(path: Path, parts: list[tuple[int, int]]) -> list[int]:
    """The numbers of the parts that cannot be read as they were; all others are read whole."""
    found = []
    with Queue.open(path) as queue:
        for nth, (begin, end) in enumerate(parts):
            try:
                pieces = list(read_noted(queue, FIRST + begin, FIRST + end - 1))
            except QueueDamaged:
                found.append(nth)
            else:
                assert sum(len(piece.lengths) for piece in pieces) == end - begin
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = make_queue(tmp_path / "queue", (COUNT, 5))
    note_chains(path)
    note_closed(path)
    return path


def no_points(path: Path) -> None:
    (side_file,) = path.glob("20231114F.cqchain")
    side_file.unlink()


def no_record(path: Path) -> None:
    (path / CLOSED_FILE_NAME).unlink()


@pytest.mark.parametrize("number", [0, 1, 4095, BLOCK_EXCERPTS - 1, BLOCK_EXCERPTS, COUNT - 1])
def test_an_excerpt_that_is_another_one(path: Path, number: int) -> None:
    no_record(path)
    assert refused(path, PARTS) == []
    assert refused(path, [(0, COUNT)]) == []
    flip_byte(path / "20231114F.cq4", payload(number), 20)
    assert refused(path, [(0, COUNT)]) == [0]
    assert refused(path, PARTS)


@pytest.mark.parametrize("without", [no_points, no_record])
def test_one_of_the_two_files_is_enough(path: Path, without: Callable[[Path], None]) -> None:
    without(path)
    assert refused(path, PARTS) == []
    flip_byte(path / "20231114F.cq4", payload(70_000), 20)
    assert refused(path, PARTS)


def test_nothing_noted_refuses_nothing(path: Path) -> None:
    no_points(path)
    no_record(path)
    flip_byte(path / "20231114F.cq4", payload(70_000), 20)
    assert refused(path, PARTS) == []


def checked(path: Path, begin: int, end: int = COUNT) -> Doubt | None:
    with Queue.open(path) as queue:
        check = begun_check(queue, FIRST + begin, FIRST + end - 1)
        for piece in read_pieces(queue, FIRST + begin, FIRST + end - 1):
            check.take(piece, queue)
        return check.doubt


def test_what_is_taken_of_a_copy_is_checked_on_the_way(path: Path) -> None:
    """Pieces are checked as they are taken: a second reading may find other bytes."""
    store = path / "20231114F.cq4"
    stitcher = Stitcher([path], [0])
    pieces = stitcher.pieces(FIRST, FIRST + COUNT - 1)
    given = [next(pieces)]
    flip_byte(store, payload(3), 20)
    given += pieces
    assert stitcher.doubts() == []
    assert sum(len(piece.lengths) for piece in given) == COUNT
    assert given[0].payload.startswith(payload(0) + payload(1) + payload(2) + payload(3))
    with pytest.raises(QueueDamaged, match="is not what it was"):
        next(Stitcher([path], [0]).pieces(FIRST, FIRST + COUNT - 1))


def test_what_cannot_be_read_before_a_part_says_nothing_of_it(path: Path) -> None:
    """It may be what another copy was taken for. The places in the part still tell."""
    begin = BLOCK_EXCERPTS + 1024
    break_at(path / "20231114F.cq4", BLOCK_EXCERPTS + 5)
    with Queue.open(path) as queue, pytest.raises(QueueDamaged):
        list(read_noted(queue, FIRST + begin, FIRST + COUNT - 1))
    assert checked(path, begin) is None
    flip_byte(path / "20231114F.cq4", payload(COUNT - 1), 20)
    with pytest.raises(QueueDamaged, match="is not what it was"):
        checked(path, begin)


def test_what_is_altered_before_a_part_is_told(path: Path) -> None:
    """The doubt ends at the next noted place. Excerpts behind that place are held against what is
    noted there."""
    begin = BLOCK_EXCERPTS + 1024
    flip_byte(path / "20231114F.cq4", payload(BLOCK_EXCERPTS + 5), 20)
    doubt = checked(path, begin)
    assert doubt is not None
    assert doubt.index_first < FIRST + BLOCK_EXCERPTS + 5
    assert FIRST + begin < doubt.index_last < FIRST + COUNT - 1
    assert "is not what it was" in str(doubt.to_error())
    flip_byte(path / "20231114F.cq4", payload(COUNT - 1), 20)
    with pytest.raises(QueueDamaged, match="is not what it was"):
        checked(path, begin)
