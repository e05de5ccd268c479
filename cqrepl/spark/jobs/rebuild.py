"""Makes a queue anew from the best parts of several copies of it.

Theory of operation. An audit tells what each copy holds. Where copies hold other bytes under one
index, a person has to say which one wins, or nothing is made. Then each cycle is a task: its
excerpts come from any copy that can be read, its file is built beside the target, read back, and
compared with the digests of copies that hold its blocks whole. An excerpt within a cycle that no
copy holds stops everything: a queue has no gaps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from pyspark.sql import SparkSession

from cqrepl.queue import Queue, QueueDamaged, QueueError, cycle_of
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.spark.jobs.blockaudit import Block, BlockAudit, audit_blocks
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference
from cqrepl.spark.jobs.blocks import BLOCK_EXCERPTS, TASK_BYTES, block_spans, digest_of, read_pieces
from cqrepl.spark.jobs.cyclebuilder import build_cycle, check_held, install, workshop
from cqrepl.spark.jobs.stitcher import Stitcher, Taken
from cqrepl.spark.jobs.tasks import Answer, run_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was made, and of what. `clashes` are in the way if there are any: nothing was made."""

    audit: BlockAudit
    clashes: tuple[Difference, ...] = ()
    taken: tuple[Taken, ...] = ()

    @property
    def count(self) -> int:
        """How many excerpts the new queue holds."""
        return sum(each.index_last - each.index_first + 1 for each in self.taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RebuiltCycle:
    """What is to be made: one cycle, and the digests of blocks that a copy holds whole."""

    cycle: int
    file: str
    index_first: int
    index_last: int
    is_closed: bool
    spans: tuple[tuple[int, int, str], ...]

    @property
    def is_known(self) -> bool:
        """True when the digest of every block is known."""
        return sum(last - first + 1 for first, last, _ in self.spans) == (
            self.index_last - self.index_first + 1
        )


def rebuild(
    spark: SparkSession,
    copies: Sequence[Path | str],
    target: Path | str,
    *,
    prefer: Path | str | None = None,
    task_bytes: int = TASK_BYTES,
) -> Rebuilt:
    """Makes a queue that holds all that any of the copies holds.

    Args:
        prefer: the copy that wins where copies differ.

    Raises:
        QueueError: a copy is no queue, `prefer` is none of them, or the target is in the way.
        LayoutMismatch: the copies give other indexes to the same excerpts.
        QueueDamaged: an excerpt that must have been there can be read from no copy.
    """
    paths = [Path(copy).absolute() for copy in copies]
    target = Path(target).absolute()
    if target in paths:
        raise QueueError("expected another directory than those of the copies", path=target)
    best = None if prefer is None else _place(Path(prefer).absolute(), paths)
    order = sorted(range(len(paths)), key=lambda copy: copy != best)
    found = audit_blocks(spark, paths, task_bytes=task_bytes)
    clashes = tuple(each for each in found.differences if not _is_settled(each, found, best))
    if clashes:
        return Rebuilt(audit=found, clashes=clashes)
    cycles = list(_cycles(found, order))
    with workshop(target) as folder:

        def work(cycle: _RebuiltCycle) -> Iterator[Answer]:
            yield _build(folder, target, found, cycle, order)

        answers = run_tasks(spark, "rebuilt", work, cycles)
        files = [Path(answer["file"]) for answer in answers if answer["file"]]
        install(target, found.layout, files)
    taken = tuple(Taken(**each) for answer in answers for each in answer["taken"])
    return Rebuilt(audit=found, taken=taken)


def _place(path: Path, paths: list[Path]) -> int:
    if path not in paths:
        raise QueueError("expected one of the copies as the one that wins", path=path)
    return paths.index(path)


def _is_settled(difference: Difference, found: BlockAudit, best: int | None) -> bool:
    """True when it is clear what to take."""
    match difference.verdict:
        case BlockVerdict.DIFFERENT:
            return best is not None and difference.present[best]
        case BlockVerdict.MIXED:
            return best is not None and any(
                block.copy == best
                and block.digest is not None
                and block.index_first <= difference.index_first
                and block.index_last >= difference.index_last
                for block in found.blocks
            )
        case _:
            return True


def _cycles(found: BlockAudit, order: list[int]) -> Iterator[_RebuiltCycle]:
    shift = found.layout.roll_cycle.shift
    blocks = sorted(found.blocks, key=lambda block: (block.index_first, order.index(block.copy)))
    clashing = {
        first - first % BLOCK_EXCERPTS
        for each in found.differences
        if each.verdict in (BlockVerdict.DIFFERENT, BlockVerdict.MIXED)
        for first, _ in block_spans(each.index_first, each.index_last)
    }
    for cycle, group in groupby(
        blocks, key=lambda block: cycle_of(Index(block.index_first), shift)
    ):
        held = list(group)
        last = max(block.index_last for block in held)
        known = [block for block in held if (block.copy, cycle) not in found.unknown]
        if not any(block.digest for block in known if block.index_last == last):
            raise QueueDamaged(
                f"expected a copy in which cycle {cycle} can be read to its end, found none",
                index=last,
            )
        yield _RebuiltCycle(
            cycle=cycle,
            file=found.layout.roll_cycle.file_name(cycle, found.layout.epoch) + ".cq4",
            index_first=held[0].index_first,
            index_last=last,
            is_closed=any(_has_ended(path, cycle) for path in found.paths),
            spans=tuple(_spans(held, order[0], clashing)),
        )


def _spans(blocks: list[Block], best: int, clashing: set[int]) -> Iterator[tuple[int, int, str]]:
    """Of each block the digest in the best of the copies that hold all of it.

    Of a block that differs between copies, which begins at one of `clashing`, only the very best
    copy tells.
    """
    for first, group in groupby(blocks, key=lambda block: block.index_first):
        held = list(group)
        last = max(block.index_last for block in held)
        for block in held:
            is_told = block.copy == best or first not in clashing
            if is_told and block.digest is not None and block.index_last == last:
                yield first, last, block.digest
                break


def _has_ended(path: Path, cycle: Cycle) -> bool:
    with Queue.open(path) as queue:
        try:
            return queue.cycles.has_ended(cycle)
        except QueueDamaged:
            return False


def _build(
    folder: Path, target: Path, found: BlockAudit, cycle: _RebuiltCycle, order: list[int]
) -> Answer:
    """Makes the file of a cycle, or compares it with the one that is there."""
    if (target / cycle.file).exists():
        if not cycle.is_known:
            raise QueueError("it is there, and no copy holds all of it", path=target / cycle.file)
        check_held(target / cycle.file, cycle.spans)
        return {"file": None, "taken": []}
    stitcher = Stitcher(found.paths, order)
    pieces = stitcher.pieces(cycle.index_first, cycle.index_last)
    file = build_cycle(folder, found.layout, pieces, is_closed=cycle.is_closed)
    with Queue.open(file.parent) as queue:
        for first, last, digest in cycle.spans:
            if digest_of(first, read_pieces(queue, first, last)) != digest:
                raise QueueError(f"{first:#x} to {last:#x} became something else", path=file)
    return {"file": str(file), "taken": [asdict(each) for each in stitcher.taken]}
