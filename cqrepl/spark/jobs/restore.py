"""Gives a queue back from an archive: each cycle a store file, every excerpt under its index.

Tasks make a cycle's file from its parts, several tasks that of a large cycle (`cyclemaker`), and
check the digests on the way; a cycle that is in the target already is compared instead, so a run
that was cut off can be repeated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pyspark.sql import SparkSession

from cqrepl.queue import Queue
from cqrepl.queue.format.identity import Identity
from cqrepl.spark.jobs.archivefiles import (
    ArchivedCycle,
    ArchivePart,
    Manifest,
    checked_pieces,
    read_manifest,
)
from cqrepl.spark.jobs.archiveplace import ArchivePlace, place_of
from cqrepl.spark.jobs.blocks import TASK_BYTES, Piece
from cqrepl.spark.jobs.cyclebuilder import install, workshop
from cqrepl.spark.jobs.cyclemaker import CyclePart, PlannedCycle, is_split, make_cycles
from cqrepl.spark.jobs.tasks import Answer, parallelism
from wire.header import HEADER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of a restore: the archive's manifest, and in `made` the cycles that were made now.
    Cycles that existed before were compared and hold the same."""

    manifest: Manifest
    made: tuple[int, ...]


def restore(
    spark: SparkSession,
    archive: Path | str | ArchivePlace,
    target: Path | str,
    *,
    task_bytes: int = TASK_BYTES,
) -> Restored:
    """Makes a queue of an archive, in a directory that is not there, or holds a part of it.

    Args:
        task_bytes: what a task makes of a large cycle at least, about.

    Raises:
        QueueError: there is no archive; or the target holds something else.
        QueueDamaged: the archive does not hold what its manifest says.
    """
    place, target = place_of(archive), Path(target).absolute()
    manifest = read_manifest(place)
    sizes = [_size_of(cycle) for cycle in manifest.cycles]
    total, at_once = sum(sizes), parallelism(spark)
    cycles = [
        _planned(cycle, task_bytes if is_split(size, total, at_once, task_bytes) else None)
        for cycle, size in zip(manifest.cycles, sizes, strict=True)
    ]

    def read(parts: tuple[ArchivePart, ...], _: list[Answer]) -> Iterator[Piece]:
        return chain.from_iterable(checked_pieces(place, part) for part in parts)

    with workshop(target) as folder:
        places = target, folder
        found = make_cycles(
            spark, "restored", places, manifest.layout, cycles, read, is_read_back=False
        )
        made = {each.cycle: each.file for each in found if each.file is not None}
        install(target, manifest.layout, list(made.values()))
        _bind(target, manifest.identity)
    return Restored(manifest=manifest, made=tuple(made))


def _bind(target: Path, identity: Identity | None) -> None:
    """Has what was restored be the queue that was archived: it goes on in the same archive, and is
    a copy of the others."""
    if identity is not None:
        with Queue.open(target) as queue:
            queue.identity.keep(lambda: identity)


def _size_of(cycle: ArchivedCycle) -> int:
    """About the bytes of a cycle in its store file."""
    return sum(part.payload_bytes for part in cycle.parts) + HEADER_BYTES * cycle.count


def _planned(cycle: ArchivedCycle, task_bytes: int | None) -> PlannedCycle[tuple[ArchivePart, ...]]:
    """A cycle in parts of about so many bytes; None: in one."""
    groups: list[list[ArchivePart]] = [[]]
    for part in cycle.parts:
        filled = sum(each.payload_bytes for each in groups[-1])
        if groups[-1] and task_bytes is not None and filled >= task_bytes:
            groups.append([])
        groups[-1].append(part)
    return PlannedCycle(
        cycle=cycle.cycle,
        file=cycle.file,
        is_closed=cycle.is_closed,
        parts=tuple(
            CyclePart(source=tuple(group), spans=tuple(s for part in group for s in part.spans()))
            for group in groups
        ),
    )
