"""Makes the store files of cycles in tasks of Spark: one task for a cycle, several for a large one.

Theory of operation. A cycle that is larger than what each processor has to do is cut into parts
between blocks. Each part is laid by a task of its own (`laidparts` tells why not into the store
file itself), and then one task for each such cycle joins what was laid, and removes that, which
takes about half as long as making it in one task would. Cycles of one part are built at once. A
cycle that the target has already is compared instead, part by part, too.

All that is made is in the workshop of the run, under names that no other attempt has, until it is
whole. So the remains of tasks that were killed, or that Spark has given up, are in no other task's
way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeVar
from uuid import uuid4

from pyspark.sql import SparkSession

from cqrepl.queue import QueueLayout
from cqrepl.spark.jobs.blocks import Piece, batch_of
from cqrepl.spark.jobs.cyclebuilder import Span, build_cycle, check_built, check_held
from cqrepl.spark.jobs.laidparts import LaidPart, join_parts, lay_part
from cqrepl.spark.jobs.tasks import Answer, run_tasks

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePart(Generic[Source]):
    """The part of a cycle that one task makes: consecutive whole blocks.

    Args:
        source: where its excerpts come from; carried to the task.
        spans: the blocks of it of which the digest is known.
    """

    source: Source
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCycle(Generic[Source]):
    """A cycle that the target is to hold; `file` is the name of its store file."""

    cycle: int
    file: str
    is_closed: bool
    parts: tuple[CyclePart[Source], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCycle:
    """A cycle that was made: its store file, or None where the target has it already; and the
    answers that reading its parts gave."""

    cycle: int
    file: Path | None
    told: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task(Generic[Source]):
    """One part of a cycle."""

    planned: PlannedCycle[Source]
    nth: int
    is_there: bool

    @property
    def part(self) -> CyclePart[Source]:
        return self.planned.parts[self.nth]


Reading = Callable[[Source, list[Answer]], Iterator[Piece]]


def is_split(size_bytes: int, total_bytes: int, at_once: int, task_bytes: int) -> bool:
    """True when several tasks make a cycle: one task alone would keep the others waiting.

    Args:
        total_bytes: of all cycles.
        at_once: how many tasks run at once.
        task_bytes: what a part has at least, about.
    """
    share = total_bytes // at_once
    return size_bytes > max(share, task_bytes)


def make_cycles(
    spark: SparkSession,
    what: str,
    places: tuple[Path, Path],
    layout: QueueLayout,
    cycles: Sequence[PlannedCycle[Source]],
    read: Reading[Source],
    *,
    is_read_back: bool,
) -> list[MadeCycle]:
    """Makes those cycles that the target does not have yet, and compares the others.

    Args:
        what: the word for it in the line of progress.
        places: the target, and the workshop beside it.
        read: gives the excerpts of a part's source; what it adds to the list goes to the driver.
        is_read_back: what was made is read again, and its digests compared.

    Raises:
        JobFailed: a task has failed, as where the target holds something else.
    """
    target, folder = places
    tasks = [
        _Task(planned=planned, nth=nth, is_there=(target / planned.file).exists())
        for planned in cycles
        for nth in range(len(planned.parts))
    ]

    def work(task: _Task[Source]) -> Iterator[Answer]:
        planned, part, told = task.planned, task.part, list[Answer]()
        if task.is_there:
            is_last = task.nth == len(planned.parts) - 1
            check_held(target / planned.file, part.spans, is_last=is_last)
            yield {"told": told}
            return
        batches = map(batch_of, read(part.source, told))
        if len(planned.parts) > 1:
            laid = lay_part(folder, batches)
            yield {"told": told, "laid": asdict(laid)}
            return
        file = build_cycle(folder, layout, batches, is_closed=planned.is_closed)
        if is_read_back:
            check_built(file, part.spans)
        yield {"told": told, "file": str(file)}

    files: dict[int, Path] = {}
    laid: dict[int, list[LaidPart]] = {}
    told: dict[int, list[Answer]] = {planned.cycle: [] for planned in cycles}
    for task, answer in zip(tasks, run_tasks(spark, what, work, tasks), strict=True):
        cycle = task.planned.cycle
        told[cycle] += answer["told"]
        if "file" in answer:
            files[cycle] = Path(answer["file"])
        if "laid" in answer:
            laid.setdefault(cycle, []).append(LaidPart(**answer["laid"]))
    large = [planned for planned in cycles if planned.cycle in laid]
    joined = _joined(spark, folder, layout, large, laid)
    if is_read_back:
        _read_back(spark, large, joined)
    files |= zip((planned.cycle for planned in large), joined, strict=True)
    return [
        MadeCycle(cycle=cycle, file=files.get(cycle), told=tuple(answers))
        for cycle, answers in told.items()
    ]


def _joined(
    spark: SparkSession,
    folder: Path,
    layout: QueueLayout,
    cycles: Sequence[PlannedCycle[Source]],
    laid: dict[int, list[LaidPart]],
) -> list[Path]:
    """The store files of cycles that were laid in parts."""

    run = uuid4().hex  # tasks of another run may outlive its driver

    def work(task: tuple[Path, list[LaidPart], bool]) -> Iterator[Answer]:
        place, parts, is_closed = task
        yield {"file": str(join_parts(place, layout, parts, is_closed=is_closed))}

    tasks = [
        (folder / f"{run}-{planned.cycle}", laid[planned.cycle], planned.is_closed)
        for planned in cycles
    ]
    return [Path(answer["file"]) for answer in run_tasks(spark, "joined", work, tasks)]


def _read_back(
    spark: SparkSession, cycles: Sequence[PlannedCycle[Source]], files: Sequence[Path]
) -> None:
    """Compares what was joined with the digests that are known."""

    def work(task: tuple[Path, tuple[Span, ...]]) -> Iterator[Answer]:
        check_built(*task)
        return iter(())

    tasks = [
        (file, part.spans)
        for planned, file in zip(cycles, files, strict=True)
        for part in planned.parts
    ]
    run_tasks(spark, "read back", work, tasks)
