"""What is read of a closed cycle is held against what replication has noted, whole or in parts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME, ClosedCycle
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.queue.read.chains import Chains
from cqrepl.spark.jobs.blocks import BLOCK_EXCERPTS
from cqrepl.spark.jobs.notedpieces import read_noted
from tests.spark.queues import CYCLE, FIRST, make_queue, note_chains, payload
from tests.support.samples import flip_byte

COUNT = 2 * BLOCK_EXCERPTS + 5000
PARTS = [(0, BLOCK_EXCERPTS), (BLOCK_EXCERPTS, COUNT - 3), (COUNT - 3, COUNT)]


def refused(path: Path, parts: list[tuple[int, int]]) -> list[int]:
    """Which parts cannot be read as they were; all others are read whole."""
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
    with Queue.open(path) as queue:
        chain = Chains(queue.cycles).at(Index(FIRST + COUNT))
        queue.cycles.closed.remember(ClosedCycle(CYCLE, COUNT, chain))
        queue.cycles.closed.note_below(Cycle(CYCLE + 1))
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
