"""Archives a queue as Parquet, by day and cycle, so that it can be had back index for index.

Theory of operation. Only cycles that are closed are archived, as nothing comes into them any more;
on demand the open one too, which is then archived anew the next time. Tasks write parts and answer
with the digests of their blocks; the driver writes the manifest when all parts are there, so an
archive is what its manifest says, even if a run that was cut off has left more. Parts that the new
manifest does not name any more are removed last.
"""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cqrepl.queue import LayoutMismatch, Queue, QueueDamaged, QueueLayout, cycle_of
from cqrepl.queue.format.index import INDEX_MAX, Cycle, Index
from cqrepl.queue.inspection.storescan import PayloadDigest
from cqrepl.spark.jobs.archivefiles import (
    MANIFEST,
    ArchivedCycle,
    ArchivePart,
    Manifest,
    day_of,
    is_part_folder,
    part_path,
    read_manifest,
    read_part,
    write_manifest,
    write_part,
)
from cqrepl.spark.jobs.blocks import TASK_BYTES, Piece, block_last, read_pieces, tasks_of
from cqrepl.spark.jobs.tasks import Answer, run_tasks
from cqrepl.spark.ranges import IndexRange, present


def archive(
    spark: SparkSession,
    path: Path | str,
    out: Path | str,
    *,
    with_open: bool = False,
    verify: bool = False,
    task_bytes: int = TASK_BYTES,
) -> tuple[Manifest, int]:
    """Brings an archive up to date with a queue; what it holds then, and how many cycles are new.

    Args:
        with_open: the cycle that is still written, too.
        verify: read the new parts back and compare digests.
        task_bytes: of store file that a task reads, about.

    Raises:
        QueueError: there is no queue, or something else than an archive in `out`.
        LayoutMismatch: the archive is that of another queue.
        QueueDamaged: the queue cannot be read; or what was written cannot be read back.
    """
    path, out = Path(path).absolute(), Path(out).absolute()
    with Queue.open(path) as queue:
        layout = queue.layout
        held = {cycle.cycle: cycle for cycle in _held(out, layout)}
        ranges = [
            each for each in present(queue, 0, INDEX_MAX) if _is_new(queue, each, held, with_open)
        ]
        closed = {
            cycle
            for each in ranges
            if queue.cycles.has_ended(
                cycle := cycle_of(Index(each.index_first), queue.cycles.shift)
            )
        }
    out.mkdir(parents=True, exist_ok=True)
    parts = _write_parts(spark, out, layout, ranges, task_bytes)
    if verify:
        verify_parts(spark, out, parts)
    for cycle, group in groupby(parts, key=lambda part: _cycle(part, layout)):
        held[cycle] = ArchivedCycle(
            cycle=cycle,
            day=day_of(layout, cycle),
            file=layout.roll_cycle.file_name(cycle, layout.epoch) + ".cq4",
            is_closed=cycle in closed,
            parts=tuple(group),
        )
    manifest = Manifest(layout=layout, cycles=tuple(held[cycle] for cycle in sorted(held)))
    write_manifest(out, manifest)
    _remove_unnamed(out, manifest, {_cycle(part, layout) for part in parts})
    return manifest, len(ranges)


def verify_parts(spark: SparkSession, archive: Path, parts: list[ArchivePart]) -> None:
    """Does nothing when parts hold what their digests say.

    Raises:
        QueueDamaged: one does not.
    """

    def work(part: ArchivePart) -> Iterator[Answer]:
        for _ in checked_pieces(archive, part):
            pass
        yield {}

    run_tasks(spark, "verified", work, parts)


def checked_pieces(archive: Path, part: ArchivePart) -> Iterator[Piece]:
    """The excerpts of a part.

    Raises:
        QueueDamaged: they are not those that were archived; raised behind the block.
    """
    digests = {last: (first, digest) for first, last, digest in part.spans()}
    digest: PayloadDigest | None = None
    for piece in read_part(archive, part):
        digest = digest or PayloadDigest(Index(piece.index_first))
        digest.take(piece.lengths, piece.payload)
        yield piece
        if piece.index_last in digests:
            first, wanted = digests[piece.index_last]
            if digest.text() != wanted:
                raise QueueDamaged(
                    f"expected digest {wanted} of {first:#x} to {piece.index_last:#x},"
                    f" found {digest.text()}",
                    path=archive / part.path,
                )
            digest = None


def _held(out: Path, layout: QueueLayout) -> tuple[ArchivedCycle, ...]:
    """The cycles that are in the archive already."""
    if not out.exists() or not any(out.iterdir()):
        return ()
    if not (out / MANIFEST).exists() and all(is_part_folder(each) for each in out.iterdir()):
        return ()  # a first run was cut off
    manifest = read_manifest(out)
    if not manifest.layout.matches(layout):
        raise LayoutMismatch(f"expected {layout}, found {manifest.layout}", path=out)
    return manifest.cycles


def _is_new(
    queue: Queue, found: IndexRange, held: dict[int, ArchivedCycle], with_open: bool
) -> bool:
    """True when a cycle is to be archived: it may be, and the archive does not hold all of it."""
    cycle = cycle_of(Index(found.index_first), queue.cycles.shift)
    is_closed = queue.cycles.has_ended(cycle)
    if not is_closed and not with_open:
        return False
    archived = held.get(cycle)
    return archived is None or (archived.index_last, archived.is_closed) != (
        found.index_last,
        is_closed,
    )


def _cycle(part: ArchivePart, layout: QueueLayout) -> Cycle:
    return cycle_of(Index(part.index_first), layout.roll_cycle.shift)


def _write_parts(
    spark: SparkSession, out: Path, layout: QueueLayout, ranges: list[IndexRange], task_bytes: int
) -> list[ArchivePart]:
    def work(task: tuple[IndexRange, ...]) -> Iterator[Answer]:
        with Queue.open(task[0].queue) as queue:
            for each in task:
                yield asdict(_write_part(queue, out, layout, each))

    answers = run_tasks(spark, "archived", work, tasks_of(ranges, task_bytes))
    return [_part(answer) for answer in answers]


def _part(answer: dict[str, Any]) -> ArchivePart:
    return ArchivePart(**{**answer, "blocks": tuple(answer["blocks"])})


def _write_part(queue: Queue, out: Path, layout: QueueLayout, found: IndexRange) -> ArchivePart:
    name = part_path(
        layout, cycle_of(Index(found.index_first), queue.cycles.shift), found.index_first
    )
    blocks: list[str] = []
    size = write_part(out / name, _digested(queue, found, blocks))
    return ArchivePart(
        path=name,
        index_first=found.index_first,
        index_last=found.index_last,
        payload_bytes=size,
        blocks=tuple(blocks),
    )


def _digested(queue: Queue, found: IndexRange, blocks: list[str]) -> Iterator[Piece]:
    """The pieces of a range; the digest of each block is added when it has passed."""
    digest: PayloadDigest | None = None
    for piece in read_pieces(queue, found.index_first, found.index_last):
        digest = digest or PayloadDigest(Index(piece.index_first))
        digest.take(piece.lengths, piece.payload)
        yield piece
        if piece.index_last in (block_last(piece.index_first), found.index_last):
            blocks.append(digest.text())
            digest = None


def _remove_unnamed(out: Path, manifest: Manifest, cycles: set[int]) -> None:
    """Removes what earlier runs left in the folders of cycles that were archived anew."""
    named = {out / part.path for cycle in manifest.cycles for part in cycle.parts}
    for cycle in manifest.cycles:
        if cycle.cycle in cycles:
            for path in (out / cycle.parts[0].path).parent.iterdir():
                if path not in named:
                    path.unlink(missing_ok=True)
