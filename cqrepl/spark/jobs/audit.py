"""Are copies of a queue equal? By the engine of `cqrepl verify`, cycle by cycle, spread over tasks.

Theory of operation. A quick look at each copy tells its store files. Closed cycles of which the
side files prove that all copies hold the same are not read. Each other one is compared in one task,
which reads its store files side by side: excerpts, index pages, headers, and what replication has
noted. So a difference is told with its first index, its kind and its place, and excerpts never
meet in a shuffle. What is appended meanwhile, behind the quick look, is left out.

A copy of which it is not known that its end is its end is never the same (`inspection.lostend`).
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from cqrepl.queue import Queue, QueueLayout, cycle_of
from cqrepl.queue.format.index import INDEX_MAX, Cycle, Index
from cqrepl.queue.inspection.cyclecomparison import ComparedCopy, ComparedSpan
from cqrepl.queue.inspection.differences import Outcome
from cqrepl.queue.inspection.quickcomparison import are_proved_equal
from cqrepl.queue.inspection.verification import (
    cycles_of,
    lost_ends,
    nothing_compared,
    opened_copies,
    queue_flaws,
)
from cqrepl.spark.jobs.auditcycles import (
    CycleAudit,
    SeenCopy,
    Told,
    compare_cycle,
    proved,
    reopened,
    told_of,
)
from cqrepl.spark.jobs.auditplan import common_layout
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference
from cqrepl.spark.jobs.blocks import TASK_BYTES
from cqrepl.spark.jobs.tasks import handed, run_for_objects
from cqrepl.spark.witness import Witness, check_witnesses, witness_of

_Returned = TypeVar("_Returned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit. Cycles and differences are in the order of their indexes.

    Args:
        notes: lines that are worth knowing, though they are about no excerpt.
    """

    paths: tuple[Path, ...]
    layout: QueueLayout
    cycles: tuple[CycleAudit, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """True when all copies hold the same excerpts, and none is damaged: some were compared, or
        the copies are empty."""
        return not self.differences

    @property
    def is_nothing(self) -> bool:
        """True when there was nothing to compare in what was asked for, which proves nothing."""
        return any(each.verdict is BlockVerdict.NOTHING for each in self.differences)

    @property
    def is_damaged(self) -> bool:
        """True when something is wrong within a copy, whatever the others hold."""
        return any(each.verdict is BlockVerdict.UNREADABLE for each in self.differences)

    @property
    def count(self) -> int:
        """The number of excerpts: of each cycle as many as its fullest copy holds, added up."""
        return sum(max(count or 0 for count in cycle.counts) for cycle in self.cycles)

    @property
    def read(self) -> int:
        """The number of cycles that were read. The others were proved equal without it."""
        return sum(cycle.is_read for cycle in self.cycles)


def audit(
    spark: SparkSession,
    paths: Sequence[Path | str],
    *,
    index_first: int = 0,
    index_last: int = INDEX_MAX,
    common: bool = False,
    digests: bool = False,
    reads_all: bool = False,
    task_bytes: int = TASK_BYTES,
) -> Audit:
    """Compares copies of a queue; the first one is what each further one should be.

    Args:
        common: up to the end of the shortest copy only: for copies that are being made. A copy
            whose end is not known is never the same.
        digests: the chain over the excerpts of each cycle is told; such cycles are all read.
        reads_all: also what the side files prove to be equal.
        task_bytes: of store files that a task reads, about, but for a larger cycle.

    Raises:
        QueueError: one of them is no queue.
        LayoutMismatch: they give other indexes to the same excerpts.
        JobFailed: a task has failed.
    """
    places = tuple(Path(path).absolute() for path in paths)
    layout = common_layout(places)
    outcomes, copies = _exhausted(opened_copies(places, with_lost=True))
    told: list[Told] = [each for one in outcomes if (each := told_of(one, len(places))) is not None]
    if copies is not None:
        span = _span(copies, index_first, index_last, common=common, digests=digests)
        told += _compared(spark, copies, span, reads_all or digests, task_bytes)
        told += _of_queues(copies, told, layout.roll_cycle.shift)
        if not any(map(_is_proof, told)):
            if not common:
                span = replace(span, index_last=index_last if index_last < INDEX_MAX else None)
            nothing = told_of(nothing_compared(copies, span), len(places), index_first)
            told += [] if nothing is None else [nothing]
    differences = [each for each in told if isinstance(each, Difference)]
    cycles = [each for each in told if isinstance(each, CycleAudit)]
    return Audit(
        paths=places,
        layout=layout,
        cycles=tuple(sorted(cycles, key=lambda each: each.cycle)),
        differences=tuple(
            sorted(differences, key=lambda each: (each.index_first, each.verdict.value))
        ),
        notes=tuple(each for each in told if isinstance(each, str)),
    )


def _is_proof(told: Told) -> bool:
    """True when it tells of compared excerpts, or of a difference."""
    return isinstance(told, Difference) or (isinstance(told, CycleAudit) and any(told.counts))


def _exhausted(
    outcomes: Generator[Outcome, None, _Returned],
) -> tuple[list[Outcome], _Returned]:
    """All that a generator gives, and what it returns."""
    found = []
    while True:
        try:
            found.append(next(outcomes))
        except StopIteration as end:
            return found, end.value


def _span(
    copies: list[ComparedCopy], index_first: int, index_last: int, *, common: bool, digests: bool
) -> ComparedSpan:
    """The span of indexes to compare. It ends where the copies ended at the quick look: excerpts
    that were appended since are not compared."""
    lasts = [copy.info.last_index for copy in copies]
    held = [-1 if last is None else int(last) for last in lasts]
    end = min(held) if common else max(held)
    return ComparedSpan(
        index_first=index_first,
        index_last=min(index_last, end),
        with_digests=digests,
        is_common=common,
    )


def _compared(
    spark: SparkSession,
    copies: list[ComparedCopy],
    span: ComparedSpan,
    reads_all: bool,
    task_bytes: int,
) -> Iterator[Told]:
    """The results for all cycles within a span."""
    to_read = []
    for cycle in cycles_of(copies, span):
        if not reads_all and are_proved_equal(copies, cycle):
            yield from proved(copies, cycle, span)
        else:
            to_read.append(cycle)
    cut = _tasks(copies, to_read, task_bytes)
    tasks = list(zip(cut, _witnesses(copies, cut, span), strict=True))
    # what is told of thousands of store files
    with handed(spark, [SeenCopy(copy.path, copy.info) for copy in copies]) as seen:

        def work(task: tuple[list[Cycle], tuple[Witness, ...]]) -> Iterator[Told]:
            cycles, witnesses = task
            check_witnesses(witnesses)
            opened = reopened(seen())
            for cycle in cycles:
                yield from compare_cycle(opened, cycle, span)

        yield from run_for_objects(spark, "compared", work, tasks)


def _witnesses(
    copies: list[ComparedCopy], tasks: list[list[Cycle]], span: ComparedSpan
) -> Iterator[tuple[Witness, ...]]:
    """The witnesses of all copies, for each task."""
    with ExitStack() as stack:
        queues = [stack.enter_context(Queue.open(copy.path)) for copy in copies]
        for cycles in tasks:
            found = []
            for copy, queue in zip(copies, queues, strict=True):
                files = [copy.file_of(cycle) for cycle in cycles]
                spans = [
                    (int(file.index_first), min(int(file.index_last), span.index_last or 0))
                    for file in files
                    if file is not None and file.index_last is not None
                ]
                found.append(witness_of(queue, spans))
            yield tuple(found)


def _tasks(
    copies: list[ComparedCopy], cycles: Sequence[Cycle], task_bytes: int
) -> list[list[Cycle]]:
    """Cycles put together so that each task reads about so much of the first copies."""
    tasks: list[list[Cycle]] = []
    size = task_bytes
    for cycle in cycles:
        if size >= task_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(cycle)
        files = [copy.file_of(cycle) for copy in copies]
        size += max(file.position_end for file in files if file is not None)
    return tasks


def _of_queues(copies: list[ComparedCopy], told: Sequence[Told], shift: int) -> Iterator[Told]:
    """The results that no store file gives: flaws of the queues, and lost ends, once each."""
    missed = {
        (cycle_of(Index(each.index_first), shift), nth)
        for each in told
        if isinstance(each, Difference)
        for nth, is_in in enumerate(each.present)
        if not is_in
    }
    for nth, copy in enumerate(copies):
        for one in queue_flaws(nth, copy):
            found = told_of(one, len(copies))
            if found is not None:
                yield _at_a_cycle(found, copy, one.finding.path)
    for lost in lost_ends(copies, missed):
        found = told_of(lost, len(copies))
        if found is not None:
            yield found


def _at_a_cycle(found: Told, copy: ComparedCopy, path: Path) -> Told:
    """With the first index of the store file that is concerned, where it is one."""
    if isinstance(found, Difference) and not found.index_first:
        for file in copy.info.files:
            if file.path == path:
                return replace(found, index_first=file.index_first, index_last=file.index_first)
    return found
