"""Are copies of a queue equal? A whole reading of all copies, spread over tasks.

Theory of operation. What each copy holds is planned once, by its files; what is appended later is
in no answer. Tasks digest the copies block by block (`blocks`), the driver compares digests of the
same block, and only blocks that differ are read again (`comparing`): excerpts never meet in a
shuffle. So a copy costs its reading and hashing, and a difference one block more.

A copy whose file cannot be followed is read as far as any copy reaches, block by block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from cqrepl.queue import (
    Queue,
    QueueError,
    QueueLayout,
    cycle_of,
)
from cqrepl.queue.format.index import INDEX_MAX, Index
from cqrepl.queue.inspection.neighbours import joined
from cqrepl.spark.jobs.auditplan import common_layout, plan_copies, unfollowed
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference, absent, are_one, compare_block
from cqrepl.spark.jobs.blocks import (
    TASK_BYTES,
    block_spans,
    digest_of,
    digest_of_all,
    read_pieces,
    tasks_of,
)
from cqrepl.spark.jobs.tasks import Answer, run_tasks
from cqrepl.spark.ranges import IndexRange

_BLOCKS_IN_TASK: Final = 16  # of those that are read again


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleAudit:
    """One cycle: how many excerpts each copy holds, and a digest of them; None: it holds none.

    The digest is that of the digests of the blocks; None too where a copy cannot be read.
    """

    cycle: int
    counts: tuple[int | None, ...]
    digests: tuple[str | None, ...]

    @property
    def is_same(self) -> bool:
        """True when every copy holds the same."""
        return None not in self.digests and len(set(self.digests)) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block in one copy; `digest` is None where it could not be read, and `text` says why."""

    copy: int
    index_first: int
    index_last: int
    digest: str | None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What an audit found. Cycles and differences are in the order of their indexes.

    Args:
        unknown: copies and cycles of which the end could not be found: more may have been there.
    """

    paths: tuple[Path, ...]
    layout: QueueLayout
    cycles: tuple[CycleAudit, ...]
    differences: tuple[Difference, ...]
    blocks: tuple[Block, ...]
    unknown: tuple[tuple[int, int], ...] = ()

    @property
    def is_same(self) -> bool:
        """True when all copies hold the same excerpts."""
        return not self.differences

    @property
    def is_damaged(self) -> bool:
        """True when a copy could not be read to its end."""
        return any(each.verdict is BlockVerdict.UNREADABLE for each in self.differences)

    @property
    def count(self) -> int:
        """How many excerpts the fullest copy holds, cycle by cycle."""
        return sum(max(count or 0 for count in cycle.counts) for cycle in self.cycles)


def audit(
    spark: SparkSession,
    paths: Sequence[Path | str],
    *,
    index_first: int = 0,
    index_last: int = INDEX_MAX,
    common: bool = False,
    task_bytes: int = TASK_BYTES,
) -> Audit:
    """Compares copies of a queue; the first one is what each further one should be.

    Args:
        common: up to the end of the shortest copy only: for copies that are being made. A copy
            whose end is not known is never the same.
        task_bytes: of store file that a task reads, about.

    Raises:
        QueueError: one of them is no queue.
        LayoutMismatch: they give other indexes to the same excerpts.
    """
    copies = tuple(Path(path).absolute() for path in paths)
    layout = common_layout(copies)
    plans = plan_copies(copies, index_first, index_last, common=common)
    tasks = [(plan.copy, task) for plan in plans for task in tasks_of(plan.ranges, task_bytes)]
    blocks = [Block(**each) for each in run_tasks(spark, "digested", _digest, tasks)]
    suspects = list(_suspects(blocks, len(copies)))
    differences = [each for each in suspects if isinstance(each, Difference)]
    again = [each for each in suspects if not isinstance(each, Difference)]
    differences += _look_closer(spark, copies, again)
    differences += unfollowed(plans, differences)
    return Audit(
        paths=copies,
        layout=layout,
        cycles=tuple(_cycles(blocks, len(copies), layout.roll_cycle.shift)),
        differences=tuple(_ordered(differences)),
        blocks=tuple(blocks),
        unknown=tuple((plan.copy, cycle) for plan in plans for cycle in plan.unknown),
    )


def _digest(task: tuple[int, tuple[IndexRange, ...]]) -> Iterator[Answer]:
    """The digests of the blocks of a task."""
    copy, ranges = task
    with Queue.open(ranges[0].queue) as queue:
        for each in ranges:
            for first, last in block_spans(each.index_first, each.index_last):
                yield asdict(_digest_block(queue, copy, first, last))


def _digest_block(queue: Queue, copy: int, first: int, last: int) -> Block:
    try:
        digest = digest_of(first, read_pieces(queue, first, last))
    except QueueError as error:
        return Block(copy=copy, index_first=first, index_last=last, digest=None, text=str(error))
    return Block(copy=copy, index_first=first, index_last=last, digest=digest)


def _suspects(blocks: list[Block], count: int) -> Iterator[Difference | tuple[int, int]]:
    """Blocks that are not the same everywhere; those that whole copies lack are told at once."""
    by_block = sorted(blocks, key=lambda block: (block.index_first, block.copy))
    for first, group in groupby(by_block, key=lambda block: block.index_first):
        held = list(group)
        last = max(block.index_last for block in held)
        kinds = {(block.digest, block.index_last) for block in held}
        if len(kinds) == 1 and held[0].digest is not None:
            if len(held) < count:
                copies = {block.copy for block in held}
                yield absent(first, last, tuple(nth in copies for nth in range(count)))
        else:
            yield first, last


def _look_closer(
    spark: SparkSession, paths: tuple[Path, ...], spans: list[tuple[int, int]]
) -> list[Difference]:
    """The differences within blocks that have any."""

    def work(some: list[tuple[int, int]]) -> Iterator[Answer]:
        for first, last in some:
            for found in compare_block(paths, first, last):
                yield {**asdict(found), "verdict": found.verdict.value}

    tasks = [
        spans[start : start + _BLOCKS_IN_TASK] for start in range(0, len(spans), _BLOCKS_IN_TASK)
    ]
    return [_difference(answer) for answer in run_tasks(spark, "compared", work, tasks)]


def _difference(answer: dict[str, Any]) -> Difference:
    lists = {name: tuple(answer[name]) for name in ("present", "lengths")}
    return Difference(**{**answer, **lists, "verdict": BlockVerdict(answer["verdict"])})


def _ordered(differences: list[Difference]) -> Iterator[Difference]:
    """In the order of their indexes, neighbours joined; a place that cannot be read told once."""
    ordered = sorted(differences, key=lambda each: (each.index_first, each.verdict.value))
    broken: set[tuple[tuple[bool, ...], str | None]] = set()
    for each in joined(iter(ordered), are_one):
        if each.verdict is BlockVerdict.UNREADABLE:
            key = each.present, each.text
            if key in broken:
                continue
            broken.add(key)
        yield each


def _cycles(blocks: list[Block], count: int, shift: int) -> Iterator[CycleAudit]:
    ordered = sorted(blocks, key=lambda block: block.index_first)
    for cycle, group in groupby(
        ordered, key=lambda block: cycle_of(Index(block.index_first), shift)
    ):
        held = list(group)
        parts = [[block for block in held if block.copy == nth] for nth in range(count)]
        yield CycleAudit(
            cycle=cycle,
            counts=tuple(_count(part) if part else None for part in parts),
            digests=tuple(digest_of_blocks(part) for part in parts),
        )


def _count(blocks: list[Block]) -> int:
    return sum(block.index_last - block.index_first + 1 for block in blocks if block.digest)


def digest_of_blocks(blocks: Sequence[Block]) -> str | None:
    """A digest of blocks in the order of their indexes; None if one could not be read, or none."""
    digests = [block.digest for block in blocks if block.digest is not None]
    return digest_of_all(digests) if digests and len(digests) == len(blocks) else None
