"""Archives a queue as Parquet, by day and cycle, so that it can be had back index for index.

Theory of operation. Only cycles that are closed are archived, as nothing comes into them any more;
on demand the open one too, which is then archived anew the next time. Tasks write parts and answer
with the digests of their blocks; the driver writes the manifest when it sees all parts there, so an
archive is what its manifest says, even if a run that was cut off has left more. No part is written
over, and those that the new manifest does not name are removed last. What was archived is not given
up for something else, but by order (`archiveplan`). In a directory one run at a time is busy; in an
object store the one that comes second begins again (`archiveplace`).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from cqrepl.console.units import plural
from cqrepl.queue import LayoutMismatch, Queue, QueueDamaged, QueueLayout, cycle_of
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.queue.inspection.storescan import PayloadDigest
from cqrepl.spark.jobs.archivefiles import (
    ArchivedCycle,
    ArchivePart,
    Manifest,
    day_of,
    part_folder,
    part_name,
    read_version,
    write_manifest,
    write_part,
)
from cqrepl.spark.jobs.archivehold import hold, is_held, release
from cqrepl.spark.jobs.archiveowner import bound_identity, check_bound
from cqrepl.spark.jobs.archiveplace import MANIFEST, ArchiveChanged, ArchivePlace, place_of
from cqrepl.spark.jobs.archiveplan import ArchivePlan, FoundCycle, plan_archive, taken_over
from cqrepl.spark.jobs.archivesweep import remove_left_over
from cqrepl.spark.jobs.archivethere import check_remade, check_written, parts_gone
from cqrepl.spark.jobs.archiveverify import check_parts
from cqrepl.spark.jobs.blocks import (
    TASK_BYTES,
    Piece,
    block_last,
    block_spans,
    digest_of,
    read_pieces,
)
from cqrepl.spark.jobs.notedpieces import read_noted
from cqrepl.spark.jobs.seentasks import SeenTask, seen_tasks
from cqrepl.spark.jobs.tasks import Answer, run_tasks
from cqrepl.spark.ranges import IndexRange

_TRIES: Final = 5


def archive(
    spark: SparkSession,
    path: Path | str,
    out: Path | str | ArchivePlace,
    *,
    with_open: bool = False,
    verify: bool = False,
    replace: bool = False,
    holds: bool | None = None,
    task_bytes: int = TASK_BYTES,
) -> tuple[Manifest, int]:
    """Brings an archive up to date with a queue; what it holds then, and how many cycles are new.

    Args:
        with_open: the cycle that is still written, too.
        verify: read all parts back, also those of earlier runs, and compare digests.
        replace: archive anew what the queue holds otherwise than the archive, and what the archive
            has lost the parts of.
        holds: the queue names the archive, so that retention waits for it, or no longer, whatever
            becomes of the run; None: as it did.
        task_bytes: of store file that a task reads, about.

    Raises:
        QueueError: there is no queue, or something else than an archive in `out`; or the driver
            does not see there what the tasks have written.
            The archive is that of another queue.
        LayoutMismatch: so, of another roll cycle.
        ArchiveDiffers: the queue holds less of a cycle than the archive, or other bytes. Nothing of
            the archive is changed.
        QueueLocked: another run is busy with the archive.
        ArchiveChanged: other runs have changed it again and again.
        QueueDamaged: the queue cannot be read; or what is archived cannot be read back, or has
            gone; or the manifest has, then nothing is changed.
    """
    path, place = Path(path).absolute(), place_of(out)
    options = _Options(
        with_open=with_open, verify=verify, replace=replace, holds=holds is True,
        task_bytes=task_bytes,
    )  # fmt: skip
    with Queue.open(path) as queue:
        if holds is False:  # first: it has to end where the archive has gone, too
            release(queue, place.text)
        before, _ = _held(place, queue.layout)  # before anything is made: it may be no archive
        if not replace:
            check_bound(queue, before, place.text)
        with place.locked():
            manifest, count = _brought_up(spark, queue, place, options)
            if place.settled_s == 0:
                remove_left_over(place, manifest)
            if holds or is_held(queue, place.text):
                hold(queue, place.text, manifest.cycles)
    return manifest, count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """See `archive`."""

    with_open: bool
    verify: bool
    replace: bool
    holds: bool
    task_bytes: int


def _brought_up(
    spark: SparkSession, queue: Queue, place: ArchivePlace, options: _Options
) -> tuple[Manifest, int]:
    """The manifest that is in place now, and how many cycles are new in it.

    Where another run has put its own in place meanwhile, what it has archived is not done again.
    """
    for left in reversed(range(_TRIES)):
        try:
            return _added(spark, queue, place, options)
        except ArchiveChanged:
            if not left:
                raise
    raise AssertionError("unreachable")


def _added(
    spark: SparkSession, queue: Queue, place: ArchivePlace, options: _Options
) -> tuple[Manifest, int]:
    layout = queue.layout
    before, version = _begun(queue, place, options)
    cycles = before.cycles
    if not options.replace:
        check_bound(queue, before, place.text)
    gone = parts_gone(place, cycles)
    if gone and place.manifest()[1] != version:
        raise ArchiveChanged(f"{place.text}: another run has taken what its manifest had named")
    lost = {cycle.cycle for cycle, _ in gone}
    held = {cycle.cycle: cycle for cycle in cycles if cycle.cycle not in lost}
    if options.holds or (gone and not options.replace and is_held(queue, place.text)):
        # before anything is archived: nothing goes meanwhile
        hold(queue, place.text, list(held.values()))
    if gone and not options.replace:
        check_remade(place, gone, ())
    plan = plan_archive(queue, held, with_open=options.with_open)
    same = plan.judge(_digests(spark, queue.path, plan, options.task_bytes))
    held |= {each.cycle: each for each in same}
    if options.replace:
        taken_over(plan, queue)
    plan.check(queue)
    identity = bound_identity(queue, before, plan, place.text, replaces=options.replace)
    check_remade(place, gone, plan.new)
    ranges = [found.held for found in plan.new]
    parts = _write_parts(spark, place, layout, ranges, options.task_bytes)
    manifest = _merged(layout, held, plan.new, parts, identity)
    if options.verify:
        check_parts(spark, place, manifest)
    write_manifest(place, manifest, version)
    return manifest, len(plan.new)


def _begun(queue: Queue, place: ArchivePlace, options: _Options) -> tuple[Manifest, str | None]:
    """As `_held`, of an archive that has a manifest from now on: that of one that holds nothing
    comes before its first part, so parts without one are of an archive that has lost it."""
    manifest, version = _held(place, queue.layout)
    if version is None:
        if options.holds:
            hold(queue, place.text, ())
        write_manifest(place, Manifest(layout=queue.layout, cycles=()), None)
        return _held(place, queue.layout)
    return manifest, version


def _digests(spark: SparkSession, path: Path, plan: ArchivePlan, task_bytes: int) -> dict[int, str]:
    """The digests of the blocks that are compared, as the queue holds them, by first index."""
    ranges = [
        part for found, archived in plan.compared for part in _as_archived(found.held, archived)
    ]

    def work(task: SeenTask) -> Iterator[Answer]:
        with task.opened() as queue:
            for each in task.ranges:
                for first, last in block_spans(each.index_first, each.index_last):
                    yield {
                        "first": first,
                        "digest": digest_of(first, read_pieces(queue, first, last)),
                    }

    answers = run_tasks(spark, "compared", work, seen_tasks(ranges, task_bytes))
    return {answer["first"]: answer["digest"] for answer in answers}


def _as_archived(held: IndexRange, archived: ArchivedCycle) -> Iterator[IndexRange]:
    """The range of the queue, cut where the archived parts are cut.

    The last block of a part ends where the part ends. Only with the same cuts do the last blocks
    of queue and archive hold the same excerpts.
    """
    size = held.size_bytes / held.count
    for part in archived.parts:
        count = part.index_last - part.index_first + 1
        yield IndexRange(
            queue=held.queue, index_first=part.index_first, index_last=part.index_last,
            size_bytes=max(1, int(size * count)),
        )  # fmt: skip


def _merged(
    layout: QueueLayout,
    held: dict[int, ArchivedCycle],
    new: list[FoundCycle],
    parts: list[ArchivePart],
    identity: Identity | None,
) -> Manifest:
    """The manifest of all archived cycles: those it held before, and the new ones with their
    parts. A new cycle replaces what was held of it."""
    by_cycle = {found.cycle: found for found in new}
    for cycle, group in groupby(parts, key=lambda part: _cycle(part, layout)):
        held[cycle] = ArchivedCycle(
            cycle=cycle,
            day=day_of(layout, cycle),
            file=layout.roll_cycle.file_name(cycle, layout.epoch) + ".cq4",
            is_closed=by_cycle[cycle].is_closed,
            parts=tuple(group),
            state=by_cycle[cycle].state,
        )
    archived = tuple(held[cycle] for cycle in sorted(held))
    return Manifest(layout=layout, cycles=archived, identity=identity)


def _held(place: ArchivePlace, layout: QueueLayout) -> tuple[Manifest, str | None]:
    """The manifest of an archive, and the mark that tells it from later ones.

    Raises:
        QueueDamaged: there are parts, and no manifest any more.
    """
    if place.manifest()[1] is None and place.is_unused():
        parts = place.parts()
        if parts and place.manifest()[1] is None:  # else another run has begun meanwhile
            count = plural(len(parts), "part")
            raise QueueDamaged(
                f"{place.at(MANIFEST)}: expected the manifest of {count}, found none; put it back,"
                " or make it anew of them (cqrepl spark archive rebuild-manifest), or archive to"
                " another directory: these are left as they are"
            )
        if not parts:
            return Manifest(layout=layout, cycles=()), None  # there was no run yet
    manifest, version = read_version(place)
    if not manifest.layout.matches(layout):
        raise LayoutMismatch(f"{place.text}: expected {layout}, found {manifest.layout}")
    return manifest, version


def _cycle(part: ArchivePart, layout: QueueLayout) -> Cycle:
    return cycle_of(Index(part.index_first), layout.roll_cycle.shift)


def _write_parts(
    spark: SparkSession,
    out: ArchivePlace,
    layout: QueueLayout,
    ranges: list[IndexRange],
    task_bytes: int,
) -> list[ArchivePart]:
    """Has the tasks write parts, and the driver look for them.

    Raises:
        QueueError: it does not see one.
    """

    def work(task: SeenTask) -> Iterator[Answer]:
        with task.opened() as queue:
            for each in task.ranges:
                part, size = _write_part(queue, out, layout, each)
                yield {"size": size, "part": asdict(part)}

    answers = run_tasks(spark, "archived", work, seen_tasks(ranges, task_bytes))
    check_written(out, {answer["part"]["path"]: answer["size"] for answer in answers})
    return [_part(answer["part"]) for answer in answers]


def _part(answer: dict[str, Any]) -> ArchivePart:
    return ArchivePart(**{**answer, "blocks": tuple(answer["blocks"])})


def _write_part(
    queue: Queue, out: ArchivePlace, layout: QueueLayout, found: IndexRange
) -> tuple[ArchivePart, int]:
    """The part, and the bytes of its file."""
    cycle = cycle_of(Index(found.index_first), queue.cycles.shift)
    folder = part_folder(layout, cycle)
    blocks: list[str] = []
    with out.draft(f"{folder}/part-{found.index_first:016x}") as draft:
        payload_bytes = write_part(draft, _digested(queue, found, blocks))
        size = draft.stat().st_size
        path = f"{folder}/{part_name(found.index_first, found.index_last, blocks)}"
        out.keep(draft, path)
    part = ArchivePart(
        path=path,
        index_first=found.index_first,
        index_last=found.index_last,
        payload_bytes=payload_bytes,
        blocks=tuple(blocks),
    )
    return part, size


def _digested(queue: Queue, found: IndexRange, blocks: list[str]) -> Iterator[Piece]:
    """The pieces of a range; the digest of each block is added when it has passed."""
    digest: PayloadDigest | None = None
    for piece in read_noted(queue, found.index_first, found.index_last):
        digest = digest or PayloadDigest(Index(piece.index_first))
        digest.take(piece.lengths, piece.payload)
        yield piece
        if piece.index_last in (block_last(piece.index_first), found.index_last):
            blocks.append(digest.text())
            digest = None
