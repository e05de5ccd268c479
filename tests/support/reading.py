"""Helpers that tests of reading share: the cycles of a queue, and a clock that stands still."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from cqrepl.queue import Excerpt
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.read.backward import BackwardTailer
from tests.support.samples import Excerpts


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def cycles_of(path: Path, name: str = "FAST_DAILY", epoch: int = 0) -> Cycles:
    """The cycles of a queue that has this roll cycle."""
    return Cycles(path, by_name(name), epoch)


def some_of(tailer: Iterable[Excerpt], count: int) -> Excerpts:
    """The next excerpts, at most so many, one by one."""
    return [(one.index, bytes(one)) for one in islice(tailer, count)]


def down_of(tailer: BackwardTailer, count_max: int = 1 << 30) -> Excerpts:
    """Everything a backward tailer gives, in descending order; checks that batches fit."""
    found: Excerpts = []
    while (batch := tailer.next_batch(count_max=count_max)) is not None:
        assert 0 < len(batch) <= count_max
        found += reversed([(index, bytes(data)) for index, data in batch])
    tailer.close()
    return found
