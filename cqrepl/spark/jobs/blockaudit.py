"""Digests copies of a queue block by block, and compares the digests: a rebuild is planned by it.

Theory of operation. The ranges of each copy are planned once, by its files; excerpts that are
appended later are in no answer. Tasks digest the copies block by block (`blocks`). The driver
compares digests of the same block, and only blocks that differ are read again (`comparing`):
excerpts never meet in a shuffle. So a copy costs its reading and hashing, and a difference one
block more.

A copy whose file cannot be followed is read as far as any copy reaches, block by block.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from cqrepl.queue import (
    Queue,
    QueueError,
    QueueLayout,
)
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.inspection.neighbours import joined
from cqrepl.spark.jobs.auditplan import common_layout, plan_copies, unfollowed
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference, absent, are_one, compare_block
from cqrepl.spark.jobs.blocks import (
    TASK_BYTES,
    block_spans,
    digest_of,
    read_pieces,
)
from cqrepl.spark.jobs.seentasks import SeenTask, seen_tasks
from cqrepl.spark.jobs.tasks import Answer, run_tasks
from cqrepl.spark.witness import Witness, check_witnesses, witness_of

_BLOCKS_IN_TASK: Final = 16  # of those that are read again


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block in one copy; `digest` is None where it could not be read, and `text` says why."""

    copy: int
    index_first: int
    index_last: int
    digest: str | None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAudit:
    """The blocks of all copies and their differences, in the order of their indexes.

    Args:
        unknown: copies and cycles of which the end could not be found: more may have been there.
    """

    paths: tuple[Path, ...]
    layout: QueueLayout
    differences: tuple[Difference, ...]
    blocks: tuple[Block, ...]
    unknown: tuple[tuple[int, int], ...] = ()


def audit_blocks(
    spark: SparkSession,
    paths: Sequence[Path | str],
    *,
    task_bytes: int = TASK_BYTES,
) -> BlockAudit:
    """Compares copies of a queue; the first one is what each further one should be.

    Args:
        task_bytes: of store file that a task reads, about.

    Raises:
        QueueError: one of them is no queue.
        LayoutMismatch: they give other indexes to the same excerpts.
    """
    copies = tuple(Path(path).absolute() for path in paths)
    layout = common_layout(copies)
    plans = plan_copies(copies, 0, INDEX_MAX)
    tasks = [(plan.copy, task) for plan in plans for task in seen_tasks(plan.ranges, task_bytes)]
    blocks = [Block(**each) for each in run_tasks(spark, "digested", _digest, tasks)]
    suspects = list(_suspects(blocks, len(copies)))
    differences = [each for each in suspects if isinstance(each, Difference)]
    again = [each for each in suspects if not isinstance(each, Difference)]
    differences += _look_closer(spark, copies, again)
    differences += unfollowed(plans, differences)
    return BlockAudit(
        paths=copies,
        layout=layout,
        differences=tuple(_ordered(differences)),
        blocks=tuple(blocks),
        unknown=tuple((plan.copy, cycle) for plan in plans for cycle in plan.unknown),
    )


def _digest(task: tuple[int, SeenTask]) -> Iterator[Answer]:
    """The digests of the blocks of a task."""
    copy, seen = task
    with seen.opened() as queue:
        for each in seen.ranges:
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

    def work(task: tuple[list[tuple[int, int]], tuple[Witness, ...]]) -> Iterator[Answer]:
        some, witnesses = task
        check_witnesses(witnesses)
        for first, last in some:
            for found in compare_block(paths, first, last):
                yield {**asdict(found), "verdict": found.verdict.value}

    cut = [
        spans[start : start + _BLOCKS_IN_TASK] for start in range(0, len(spans), _BLOCKS_IN_TASK)
    ]
    with ExitStack() as stack:
        copies = [stack.enter_context(Queue.open(path)) for path in paths]
        tasks = [(some, tuple(witness_of(copy, some) for copy in copies)) for some in cut]
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
