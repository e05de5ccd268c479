"""Does an archive still hold what its manifest says? All of its parts are read, or some of them.

Each part is held against the digests of its blocks, and its name against these, so a manifest and
parts that do not belong together are found, too.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from cqrepl.console.units import plural
from cqrepl.queue import QueueDamaged
from cqrepl.spark.jobs.archivefiles import (
    ArchivePart,
    Manifest,
    check_cycle,
    check_name,
    checked_pieces,
    read_manifest,
)
from cqrepl.spark.jobs.archiveplace import ArchivePlace, place_of
from cqrepl.spark.jobs.tasks import Answer, run_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of verifying an archive.

    Args:
        parts: how many parts were read.
        count: the excerpts in these.
        damages: what is wrong, a line for each part that is not what it was.
    """

    manifest: Manifest
    parts: int
    count: int
    damages: tuple[str, ...]


def verify_archive(
    spark: SparkSession, archive: Path | str | ArchivePlace, *, sample: float = 1.0
) -> Verified:
    """Reads parts of an archive, and compares digests.

    Args:
        sample: the share of the parts that is read, chosen at random; at least one.

    Raises:
        QueueError: there is no archive.
        QueueDamaged: its manifest cannot be read, or says what cannot be.
    """
    place = place_of(archive)
    manifest = read_manifest(place)
    parts = _sampled([part for cycle in manifest.cycles for part in cycle.parts], sample)
    for cycle in manifest.cycles:
        check_cycle(place, cycle)
    damages = damaged_parts(spark, place, parts)
    if damages:  # of what a run has replaced meanwhile nothing is to be told
        named = {part.path for cycle in read_manifest(place).cycles for part in cycle.parts}
        gone = [place.at(part.path) for part in parts if part.path not in named]
        damages = [text for text in damages if not text.startswith(tuple(gone))]
    return Verified(
        manifest=manifest,
        parts=len(parts),
        count=sum(part.index_last - part.index_first + 1 for part in parts),
        damages=tuple(damages),
    )


def check_parts(spark: SparkSession, archive: ArchivePlace, manifest: Manifest) -> None:
    """Does nothing when all parts of a manifest hold what it says.

    Raises:
        QueueDamaged: one does not; the first one is named.
    """
    damages = damaged_parts(
        spark, archive, [part for cycle in manifest.cycles for part in cycle.parts]
    )
    if damages:
        more = f"; and {plural(len(damages) - 1, 'more part')}" if len(damages) > 1 else ""
        raise QueueDamaged(f"{damages[0]}{more}")


def damaged_parts(
    spark: SparkSession, archive: ArchivePlace, parts: Sequence[ArchivePart]
) -> list[str]:
    """The damages of parts that do not hold what their digests say, a line for each part."""

    def work(part: ArchivePart) -> Iterator[Answer]:
        try:
            check_name(archive, part)
            for _ in checked_pieces(archive, part):
                pass
        except QueueDamaged as error:
            yield {"text": str(error)}

    return [answer["text"] for answer in run_tasks(spark, "verified", work, parts)]


def _sampled(parts: list[ArchivePart], sample: float) -> list[ArchivePart]:
    count = min(len(parts), max(1, round(len(parts) * sample)))
    chosen = sorted(secrets.SystemRandom().sample(range(len(parts)), count))
    return [parts[nth] for nth in chosen]
