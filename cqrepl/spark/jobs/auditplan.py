"""What each copy of a queue holds, by its files: the plan of an audit. Knows nothing of Spark.

A cycle whose end cannot be found is read as far as any copy of it can be: behind a damaged place an
index slot may lead on. It is told in any case, as it is unknown what was behind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue import (
    LayoutMismatch,
    Queue,
    QueueDamaged,
    QueueError,
    QueueLayout,
    cycle_of,
    index_of,
)
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference
from cqrepl.spark.ranges import IndexRange, present


def common_layout(paths: Sequence[Path]) -> QueueLayout:
    """The layout that the queues have in common.

    Raises:
        QueueError: one of them is no queue.
        LayoutMismatch: they give other indexes to the same excerpts.
    """
    layouts = []
    for path in paths:
        with Queue.open(path) as queue:
            layouts.append(queue.layout)
    first = layouts[0]
    for path, other in zip(paths, layouts, strict=True):
        if (other.roll_cycle.name, other.epoch) != (first.roll_cycle.name, first.epoch):
            raise LayoutMismatch(f"expected {first} as in {paths[0]}, found {other}", path=path)
    return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A cycle that can be followed up to, excluding, `index_end`, and why not further."""

    index_first: int
    index_end: int
    text: str


class CopyPlan:
    """What one copy holds, by its files; `unknown` are cycles whose end cannot be found."""

    def __init__(self, copy: int, path: Path, index_first: int, index_last: int) -> None:
        self.copy = copy
        self.path = path
        self.unknown: dict[int, Unknown] = {}
        self.ranges: list[IndexRange] = []
        with Queue.open(path) as queue:
            shift = self.shift = queue.cycles.shift
            for cycle in queue.cycles.listing():
                first = max(index_first, index_of(cycle, SEQUENCE_FIRST, shift))
                last = min(index_last, index_of(Cycle(cycle + 1), SEQUENCE_FIRST, shift) - 1)
                try:
                    self.ranges += present(queue, first, last) if first <= last else []
                except QueueDamaged:
                    self.unknown[cycle] = _follow(queue, first, last)

    @property
    def index_last(self) -> int:
        """The last index that is known to be there; -1 for none."""
        return self.ranges[-1].index_last if self.ranges else -1


def _follow(queue: Queue, index: int, index_last: int) -> Unknown:
    """How far a cycle can be read, looking at headers only."""
    first = index
    try:
        tailer = queue.tailer(index)
        while index <= index_last and (batch := tailer.next_batch(payload_max=NO_LIMIT)):
            if batch.index_first != index:
                break
            index = min(batch.index_last, index_last) + 1
        text = "its end cannot be found"
    except QueueError as error:
        text = str(error)
    return Unknown(index_first=first, index_end=index, text=text)


def fill_unknown(plans: list[CopyPlan]) -> None:
    """Where the end of a cycle cannot be found, it is read as far as any copy can be."""
    for plan in plans:
        for cycle, unknown in plan.unknown.items():
            ends = [unknown.index_end]
            for other in plans:
                ends += [
                    each.index_last + 1
                    for each in other.ranges
                    if cycle_of(Index(each.index_first), plan.shift) == cycle
                ]
            if max(ends) > unknown.index_first:
                plan.ranges.append(
                    IndexRange(
                        queue=plan.path,
                        index_first=unknown.index_first,
                        index_last=max(ends) - 1,
                        size_bytes=1,
                    )
                )
        plan.ranges.sort(key=lambda each: each.index_first)


def unfollowed(plans: list[CopyPlan], told: list[Difference]) -> Iterator[Difference]:
    """Ends that cannot be found, but for those that the comparison came upon, too."""
    for plan in plans:
        others = tuple(other.copy != plan.copy for other in plans)
        cycles = {
            cycle_of(Index(each.index_first), plan.shift)
            for each in told
            if each.verdict is BlockVerdict.UNREADABLE and each.present == others
        }
        for cycle, unknown in plan.unknown.items():
            if cycle not in cycles:
                yield Difference(
                    verdict=BlockVerdict.UNREADABLE,
                    index_first=unknown.index_end,
                    index_last=unknown.index_end,
                    present=others,
                    text=unknown.text,
                )
