"""Gives a queue back from an archive: each cycle a store file, every excerpt under its index.

A task builds a cycle's file from its parts and checks the digests on the way; a cycle that is in
the target already is compared instead, so a run that was cut off can be repeated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pyspark.sql import SparkSession

from cqrepl.spark.jobs.archivefiles import (
    ArchivedCycle,
    Manifest,
    checked_pieces,
    read_manifest,
)
from cqrepl.spark.jobs.archiveplace import ArchivePlace, place_of
from cqrepl.spark.jobs.cyclebuilder import build_cycle, check_held, install, workshop
from cqrepl.spark.jobs.tasks import Answer, run_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was restored; `made` cycles now; those that existed before hold the same."""

    manifest: Manifest
    made: tuple[int, ...]


def restore(
    spark: SparkSession, archive: Path | str | ArchivePlace, target: Path | str
) -> Restored:
    """Makes a queue of an archive, in a directory that is not there, or holds a part of it.

    Raises:
        QueueError: there is no archive; or the target holds something else.
        QueueDamaged: the archive does not hold what its manifest says.
    """
    place, target = place_of(archive), Path(target).absolute()
    manifest = read_manifest(place)
    with workshop(target) as folder:

        def work(cycle: ArchivedCycle) -> Iterator[Answer]:
            if (target / cycle.file).exists():
                spans = [span for part in cycle.parts for span in part.spans()]
                check_held(target / cycle.file, spans)
                yield {"cycle": cycle.cycle, "file": None}
            else:
                pieces = chain.from_iterable(checked_pieces(place, part) for part in cycle.parts)
                path = build_cycle(folder, manifest.layout, pieces, is_closed=cycle.is_closed)
                yield {"cycle": cycle.cycle, "file": str(path)}

        answers = run_tasks(spark, "restored", work, manifest.cycles)
        made = {answer["cycle"]: answer["file"] for answer in answers if answer["file"]}
        install(target, manifest.layout, [Path(file) for file in made.values()])
    return Restored(manifest=manifest, made=tuple(made))
