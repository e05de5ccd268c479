"""Makes the manifest of an archive anew, of its parts: where it was lost, or is damaged.

Theory of operation. Every part is read, as a manifest has digests of blocks, and a name only that
of them all: it proves that they are those that were archived. What parts tell together is judged
without Spark (`foundparts`). Nothing is changed before all of that is done, and nothing where parts
contradict each other, or one is damaged: then the operator decides what belongs to the archive.
What the manifest does not tell of store files, the next run finds out: it compares each of them
with the archive.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.units import plural
from cqrepl.queue import Queue, QueueDamaged, QueueError, QueueLayout
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.inspection.storescan import PayloadDigest
from cqrepl.spark.jobs.archivefiles import (
    ArchivePart,
    Manifest,
    check_name,
    read_part,
    write_manifest,
)
from cqrepl.spark.jobs.archiveplace import MANIFEST, ArchivePlace, place_of
from cqrepl.spark.jobs.blocks import block_last
from cqrepl.spark.jobs.foundparts import CycleDoubt, KnownCycle, found_parts, judged, known_cycles
from cqrepl.spark.jobs.tasks import Answer, run_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeManifest:
    """A manifest made from the parts of an archive; and the cycles that are missing, or not known
    to be whole."""

    manifest: Manifest
    doubts: tuple[CycleDoubt, ...]


def make_manifest(
    spark: SparkSession,
    archive: Path | str | ArchivePlace,
    *,
    queue: Path | str | None = None,
    roll_cycle: str | None = None,
    replaces: bool = False,
    is_applied: bool = False,
) -> MadeManifest:
    """The manifest of an archive, of its parts alone.

    Args:
        queue: the queue that was archived, or a copy of it.
        roll_cycle: its roll cycle, where no queue is left.
        replaces: a manifest that is there is given up for it.
        is_applied: it is put in place; else nothing is changed.

    Raises:
        BadArguments: neither queue nor roll cycle is given, or a manifest is there.
        QueueError: there are no parts, or there is no queue.
        LayoutMismatch: the parts are of another queue.
        QueueDamaged: a part does not hold what its name says, or parts contradict each other.
        QueueLocked: a run is busy with the archive.
        ArchiveChanged: another run has put a manifest in place meanwhile.
    """
    place = place_of(archive)
    layout, known, cycle_last = _known(queue, roll_cycle)
    if not place.parts():  # before anything is made: it may be no archive
        raise QueueError(f"{place.text}: expected parts of an archive, found none")
    with place.locked():
        version = place.manifest()[1]
        if version is not None and not replaces:
            raise BadArguments(
                f"{place.at(MANIFEST)}: expected none, as --replace was not given, found one"
            )
        cycles = _read(spark, place, found_parts(place, layout))
        archived, doubts = judged(layout, cycles, known, cycle_last)
        manifest = Manifest(layout=layout, cycles=tuple(archived))
        if is_applied:
            write_manifest(place, manifest, version)
    return MadeManifest(manifest=manifest, doubts=tuple(doubts))


def _known(
    queue: Path | str | None, roll_cycle: str | None
) -> tuple[QueueLayout, dict[int, KnownCycle], int]:
    """The layout that divides indexes; and both results of `known_cycles`, empty and -1 without a
    queue."""
    if (queue is None) == (roll_cycle is None):
        raise BadArguments("expected the queue that was archived, or else its roll cycle")
    if queue is not None:
        with Queue.open(queue) as found:
            return found.layout, *known_cycles(found)
    try:
        return QueueLayout.of(by_name(roll_cycle or "")), {}, -1
    except ValueError as error:
        raise BadArguments(str(error)) from error


def _read(
    spark: SparkSession, place: ArchivePlace, cycles: Sequence[Sequence[ArchivePart]]
) -> list[list[ArchivePart]]:
    """The parts with the digests of what they hold.

    Raises:
        QueueDamaged: one does not hold what its name says; the first one is named.
    """

    def work(part: ArchivePart) -> Iterator[Answer]:
        try:
            found = _digested(place, part)
            check_name(place, found)
        except QueueDamaged as error:
            yield {"text": str(error)}
        else:
            yield {"blocks": found.blocks, "payload_bytes": found.payload_bytes}

    parts = [part for cycle in cycles for part in cycle]
    answers = run_tasks(spark, "read", work, parts)
    damages = [answer["text"] for answer in answers if "text" in answer]
    if damages:
        more = f"; and {plural(len(damages) - 1, 'more part')}" if len(damages) > 1 else ""
        raise QueueDamaged(f"{damages[0]}{more}")
    found = {
        part.path: replace(
            part, blocks=tuple(answer["blocks"]), payload_bytes=answer["payload_bytes"]
        )
        for part, answer in zip(parts, answers, strict=True)
    }
    return [[found[part.path] for part in cycle] for cycle in cycles]


def _digested(place: ArchivePlace, part: ArchivePart) -> ArchivePart:
    """A part with the digests of its blocks, as it is."""
    blocks: list[str] = []
    size = 0
    digest: PayloadDigest | None = None
    for piece in read_part(place, part):
        digest = digest or PayloadDigest(Index(piece.index_first))
        digest.take(piece.lengths, piece.payload)
        size += len(piece.payload)
        if piece.index_last in (block_last(piece.index_first), part.index_last):
            blocks.append(digest.text())
            digest = None
    return replace(part, blocks=tuple(blocks), payload_bytes=size)
