"""Finds and removes files at an archive's place that its manifest does not name. Knows nothing of
Spark.

A run that is killed leaves parts that no manifest names, and a manifest that was not put in place.
In a directory each run removes such files at its end. In an object store another run may be busy:
there only this module removes them, and only old ones.
"""

import re
from pathlib import Path
from typing import Final

from cqrepl.spark.jobs.archivefiles import Manifest, read_manifest
from cqrepl.spark.jobs.archiveplace import MANIFEST, MANIFESTS, ArchivePlace, Stored, place_of

_OURS: Final = re.compile(
    rf"day=[^/]*/cycle=[^/]*/[^/]+|\.{re.escape(MANIFEST)}\..*|{MANIFESTS}/.*"
)


def left_over(archive: ArchivePlace, manifest: Manifest) -> list[Stored]:
    """The files of an archive that its manifest does not name, in the order of their names."""
    named = {part.path for cycle in manifest.cycles for part in cycle.parts}
    return sorted(
        (
            each
            for each in archive.stored()
            if _OURS.fullmatch(each.name)
            and each.name not in named
            and each.age_s >= archive.settled_s
        ),
        key=lambda each: each.name,
    )


def remove_left_over(archive: ArchivePlace, manifest: Manifest) -> None:
    """Removes these files, and the folders that are empty then. The archive must be locked."""
    archive.remove([each.name for each in left_over(archive, manifest)])


def sweep_archive(archive: Path | str, *, is_applied: bool) -> list[tuple[str, int]]:
    """The files that no manifest names, with their sizes in bytes; removes them if it is to.

    Raises:
        QueueError: there is no archive.
        QueueDamaged: its manifest cannot be read. Nothing is removed.
        QueueLocked: a run is busy with it, and such files may be its own.
    """
    place = place_of(archive)
    read_manifest(place)  # before anything is made: it may be no archive
    with place.locked():
        manifest = read_manifest(place)
        found = left_over(place, manifest)
        if is_applied:
            place.remove([each.name for each in found])
    return [(each.name, each.size) for each in found]
