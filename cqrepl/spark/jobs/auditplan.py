"""Plans an audit: lists what each copy of a queue holds, by its files. Knows nothing of Spark.

A cycle whose end cannot be found is read as far as any copy of it can be: behind a damaged place an
index slot may lead on. The audit tells of such a cycle in any case, as it is unknown what was
behind the damage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index
from cqrepl.queue.inspection.lostend import LostEnd, lost_end
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference
from cqrepl.spark.ranges import IndexRange, listed_cycles, present_in


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
    """The ranges of one copy, by its files; `unknown` are cycles whose end cannot be found."""

    def __init__(self, copy: int, path: Path, index_first: int, index_last: int) -> None:
        self.copy = copy
        self.path = path
        self.unknown: dict[int, Unknown] = {}
        self.ranges: list[IndexRange] = []
        with Queue.open(path) as queue:
            self.shift = queue.cycles.shift
            lost = _lost_end(queue.cycles)  # first: what it looks for is there by now
            listed = listed_cycles(queue.cycles)
            noted = queue.cycles.closed.load()
            for cycle in listed:
                first, last = self._within(cycle, index_first, index_last)
                if first <= last:
                    record = noted.get(cycle) if cycle < listed[-1] else None
                    self._plan(queue, cycle, first, last, record)
            for cycle, text in _missing_between(queue.cycles, listed):
                first, last = self._within(cycle, index_first, index_last)
                if first <= last:
                    self.unknown[cycle] = Unknown(index_first=first, index_end=first, text=text)
        if lost is not None and lost.index <= index_last and lost.cycle not in self.unknown:
            first = max(lost.index, index_first)
            self.unknown[lost.cycle] = Unknown(index_first=first, index_end=first, text=lost.text)

    @property
    def index_last(self) -> int:
        """The last index up to which it can be followed; -1 for none."""
        lasts = [unknown.index_end - 1 for unknown in self.unknown.values()]
        if self.ranges:
            lasts.append(self.ranges[-1].index_last)
        return max(lasts, default=-1)

    def end_at(self, index_last: int) -> None:
        """Leaves out what lies behind an index. What is unknown there stays so."""
        self.ranges = [
            each.until(min(each.index_last, index_last))
            for each in self.ranges
            if each.index_first <= index_last
        ]

    def read_to(self, index_first: int, index_last: int) -> None:
        """Has a stretch read of which it is not known whether it is there."""
        for nth, each in enumerate(self.ranges):
            if each.index_last + 1 == index_first:
                self.ranges[nth] = replace(each, index_last=index_last)
                return
        self.ranges.append(
            IndexRange(
                queue=self.path, index_first=index_first, index_last=index_last, size_bytes=1
            )
        )
        self.ranges.sort(key=lambda each: each.index_first)

    def _within(self, cycle: Cycle, index_first: int, index_last: int) -> tuple[int, int]:
        """The first and last index of a cycle's part between two indexes. They are the wrong way
        round when there is none."""
        first = index_of(cycle, SEQUENCE_FIRST, self.shift)
        last = index_of(Cycle(cycle + 1), SEQUENCE_FIRST, self.shift) - 1
        return max(index_first, first), min(index_last, last)

    def _plan(
        self, queue: Queue, cycle: Cycle, first: int, last: int, noted: ClosedCycle | None
    ) -> None:
        try:
            found = present_in(queue, cycle, Index(first), Index(last), noted=noted)
        except QueueDamaged as error:
            self.unknown[cycle] = _follow(queue, first, last, str(error))
        else:
            self.ranges += [] if found is None else [found]


def plan_copies(
    paths: Sequence[Path], index_first: int, index_last: int, *, common: bool = False
) -> list[CopyPlan]:
    """The plans of all copies: the ranges to read of each.

    Args:
        common: read only up to where every copy can be followed. What is unknown of a copy stays
            unknown.

    Raises:
        QueueError: one of them is no queue.
    """
    plans = [CopyPlan(nth, path, index_first, index_last) for nth, path in enumerate(paths)]
    if common:
        index_last = min((plan.index_last for plan in plans), default=-1)
        for plan in plans:
            plan.end_at(index_last)
    _fill_unknown(plans, index_last)
    return plans


def _lost_end(cycles: Cycles) -> LostEnd | None:
    try:
        return lost_end(cycles)
    except QueueDamaged:
        return None  # found again where its cycle is planned


def _missing_between(cycles: Cycles, listed: Sequence[Cycle]) -> Iterator[tuple[Cycle, str]]:
    """Closed store files that are noted and gone, and what is to be said of each."""
    there = set(listed)
    for cycle in sorted(cycles.closed.load()) if listed else ():
        if listed[0] < cycle < listed[-1] and cycle not in there:
            try:
                cycles.check_between(Cycle(cycle - 1), Cycle(cycle + 1))
            except QueueDamaged as error:
                yield cycle, str(error)


def _follow(queue: Queue, index: int, index_last: int, text: str) -> Unknown:
    """The part of a cycle from `index` on that can be read, by its headers only.

    Args:
        text: says why the end is unknown, unless the walk ends with an error that says it.
    """
    first = index
    try:
        tailer = queue.tailer(index)
        while index <= index_last and (batch := tailer.next_batch(payload_max=NO_LIMIT)):
            if batch.index_first != index:
                break
            index = min(batch.index_last, index_last) + 1
    except QueueError as error:
        text = str(error)
    return Unknown(index_first=first, index_end=index, text=text)


def _fill_unknown(plans: list[CopyPlan], index_last: int) -> None:
    """Has each cycle whose end cannot be found read as far as any copy of it can be."""
    held = [(plan, list(plan.ranges)) for plan in plans]
    for plan in plans:
        for cycle, unknown in plan.unknown.items():
            ends = [
                each.index_last + 1
                for other, ranges in held
                for each in ranges
                if other is not plan and cycle_of(Index(each.index_first), plan.shift) == cycle
            ]
            last = min(max([*ends, unknown.index_end]) - 1, index_last)
            if last >= unknown.index_first:
                plan.read_to(unknown.index_first, last)


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
