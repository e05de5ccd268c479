"""A driver keeps a few numbers of each cycle that it plans, however many cycles there are."""

import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.inspection.differences import Outcome
from cqrepl.queue.inspection.verification import opened_copies
from cqrepl.spark.jobs.archiveplan import plan_archive
from cqrepl.spark.ranges import present, split
from tests.support.samples import fill

ROLL = "FAST_DAILY"
FEW, MANY = 50, 250
KEPT_MAX = 2048  # bytes of a cycle, so 40 MB of 20,000; it was less than half of that


def batch(path: Path, _: Path) -> object:
    with Queue.open(path) as queue:
        return split(present(queue))


def archive(path: Path, _: Path) -> object:
    with Queue.open(path) as queue:
        return plan_archive(queue, {}, with_open=True)


def audit(path: Path, copy: Path) -> object:
    def opened() -> Iterator[Outcome]:
        copies.append((yield from opened_copies([path, copy], with_lost=True)))

    copies: list[object] = []
    assert list(opened()) == []
    return copies[0]


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, Path]]:
    """A queue of few cycles and one of many, and a copy of each, by the number of cycles."""
    folder = tmp_path_factory.mktemp("queues")
    found = {}
    for count in (FEW, MANY):
        path, copy = folder / f"{count}", folder / f"{count}-copy"
        fill(path, ROLL, dict.fromkeys(range(count), 1))
        found[count] = path, Path(shutil.copytree(path, copy))
    return found


@pytest.mark.parametrize("plan", [batch, archive, audit])
def test_a_plan_keeps_little_of_a_cycle(
    queues: dict[int, tuple[Path, Path]], plan: Callable[[Path, Path], object]
) -> None:

    def peak(count: int) -> int:
        tracemalloc.start()
        try:
            kept = plan(*queues[count])
            assert kept
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(FEW)  # what is made once
    # of three times: threads that another test has left in this process may allocate too
    of_many = min(peak(MANY) for _ in range(3))
    assert of_many - peak(FEW) <= KEPT_MAX * (MANY - FEW)
    mapped = Path("/proc/self/maps").read_text()
    assert not any(str(path) in mapped for both in queues.values() for path in both)
