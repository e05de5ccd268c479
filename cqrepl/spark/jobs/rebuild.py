"""Makes a queue anew from the best parts of several copies of it.

Theory of operation. An audit tells what each copy holds. Where copies hold other bytes under one
index, a person has to say which one wins, or nothing is made. Then tasks make each cycle, several
of them a large one (`cyclemaker`): its excerpts come from any copy that can be read, its file is
built beside the target, read back, and compared with the digests of copies that hold its blocks
whole. An excerpt within a cycle that no copy holds stops everything: a queue has no gaps. So does
a cycle that no copy has any more and that one is known to have had (`knowncycles`).

The excerpts are read a second time where they are taken, so those tasks look first whether they see
the copies that the driver planned with (`witness`), as those of the audit have.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from cqrepl.queue import Queue, QueueDamaged, QueueError, cycle_of
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.queue.inspection.neighbours import joined
from cqrepl.spark.jobs.blockaudit import Block, BlockAudit, audit_blocks
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference
from cqrepl.spark.jobs.blocks import (
    BLOCK_EXCERPTS,
    TASK_BYTES,
    Piece,
    block_spans,
    cut_at_blocks,
)
from cqrepl.spark.jobs.cyclebuilder import Span, install, workshop
from cqrepl.spark.jobs.cyclemaker import CyclePart, PlannedCycle, is_split, make_cycles
from cqrepl.spark.jobs.knowncycles import check_known
from cqrepl.spark.jobs.notedpieces import Doubt
from cqrepl.spark.jobs.stitcher import Stitcher, Taken, goes_on
from cqrepl.spark.jobs.tasks import Answer, parallelism
from cqrepl.spark.ranges import IndexRange
from cqrepl.spark.witness import Witness, check_witnesses, witness_of

_DISK_BLOCK: Final = 512  # bytes of what a file's status counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The result of a rebuild, with the spans it took. If there are `clashes`, these stood in the
    way and nothing was made."""

    audit: BlockAudit
    clashes: tuple[Difference, ...] = ()
    taken: tuple[Taken, ...] = ()

    @property
    def count(self) -> int:
        """The number of excerpts that the new queue holds."""
        return sum(each.index_last - each.index_first + 1 for each in self.taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RebuiltCycle:
    """One cycle to make, and the digests of blocks that a copy holds whole."""

    cycle: int
    file: str
    index_first: int
    index_last: int
    is_closed: bool
    spans: tuple[Span, ...]

    @property
    def is_known(self) -> bool:
        """True when the digest of every block is known."""
        return sum(last - first + 1 for first, last, _ in self.spans) == (
            self.index_last - self.index_first + 1
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TakenSpan:
    """The span that one task takes, and the witnesses of the copies it takes the span from."""

    index_first: int
    index_last: int
    witnesses: tuple[Witness, ...]


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
        JobFailed: a task has failed, as where it sees another copy than the driver.
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
    check_known(found.paths, found.blocks, found.layout.roll_cycle.shift)
    cycles = list(_cycles(found, order))
    sizes = [_size_of(found.paths, cycle.file) for cycle in cycles]
    total, at_once = sum(sizes), parallelism(spark)
    with ExitStack() as stack:
        copied = [stack.enter_context(Queue.open(path)) for path in found.paths]
        planned = [
            _planned(
                cycle, size, task_bytes if is_split(size, total, at_once, task_bytes) else None,
                copied,
            )
            for cycle, size in zip(cycles, sizes, strict=True)
        ]  # fmt: skip
    copies, layout = found.paths, found.layout
    for cycle in cycles:
        if not cycle.is_known and (target / cycle.file).exists():
            raise QueueError("it is there, and no copy holds all of it", path=target / cycle.file)

    def read(wanted: _TakenSpan, told: list[Answer]) -> Iterator[Piece]:
        check_witnesses(wanted.witnesses)
        stitcher = Stitcher(copies, order)
        yield from stitcher.pieces(wanted.index_first, wanted.index_last)
        told.extend({"copy": copy, "doubt": asdict(each)} for copy, each in stitcher.doubts())
        told.extend({"taken": asdict(each)} for each in stitcher.taken)

    with workshop(target) as folder:
        places = target, folder
        made = make_cycles(spark, "rebuilt", places, layout, planned, read, is_read_back=True)
        told = [one for each in made for one in each.told]
        taken = [Taken(**one["taken"]) for one in told if "taken" in one]
        taken = list(joined(iter(taken), goes_on))
        for one in told:
            if "doubt" in one:
                _check_doubt(one["copy"], Doubt(**one["doubt"]), taken)
        install(target, layout, [each.file for each in made if each.file is not None])
    return Rebuilt(audit=found, taken=tuple(taken))


def _check_doubt(copy: int, doubt: Doubt, taken: Sequence[Taken]) -> None:
    """Does nothing where the altered excerpt may be one that was not taken from its copy.

    Raises:
        QueueDamaged: all of them were taken.
    """
    for each in taken:
        is_of_it = each.copy == copy and each.index_first <= doubt.index_first
        if is_of_it and doubt.index_last <= each.index_last:
            raise doubt.to_error()


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


def _spans(blocks: list[Block], best: int, clashing: set[int]) -> Iterator[Span]:
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


def _size_of(copies: Sequence[Path], file: str) -> int:
    """The bytes on the disk of a store file, in the copy where they are most; 0: in none."""
    sizes = [0]
    for path in copies:
        with suppress(OSError):
            sizes.append((path / file).stat().st_blocks * _DISK_BLOCK)
    return max(sizes)


def _planned(
    cycle: _RebuiltCycle, size: int, task_bytes: int | None, copies: Sequence[Queue]
) -> PlannedCycle[_TakenSpan]:
    """A cycle of so many bytes in parts of about `task_bytes`; None: in one."""
    whole = IndexRange(
        queue=Path(cycle.file),
        index_first=cycle.index_first,
        index_last=cycle.index_last,
        size_bytes=max(1, size),
    )
    parts = [whole] if task_bytes is None else cut_at_blocks(whole, task_bytes)
    return PlannedCycle(
        cycle=cycle.cycle,
        file=cycle.file,
        is_closed=cycle.is_closed,
        parts=tuple(
            CyclePart(
                source=_TakenSpan(
                    index_first=part.index_first,
                    index_last=part.index_last,
                    witnesses=tuple(
                        witness_of(copy, [(part.index_first, part.index_last)]) for copy in copies
                    ),
                ),
                spans=tuple(
                    span for span in cycle.spans if part.index_first <= span[0] <= part.index_last
                ),
            )
            for part in parts
        ),
    )
