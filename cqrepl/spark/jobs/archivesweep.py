"""What is in an archive's directory and not in the archive. Knows nothing of Spark.

A run that is killed leaves parts that no manifest names, and a manifest that was not put in place.
Each run removes such at its end; here it is done without one.
"""

from pathlib import Path

from cqrepl.spark.jobs.archivefiles import MANIFEST, Manifest, read_manifest
from cqrepl.spark.jobs.archivelock import locked_archive


def left_over(archive: Path, manifest: Manifest) -> list[Path]:
    """The files of an archive that its manifest does not name, in the order of their names."""
    named = {archive / part.path for cycle in manifest.cycles for part in cycle.parts}
    found = [path for path in archive.glob("day=*/cycle=*/*") if path not in named]
    return sorted([*found, *archive.glob(f".{MANIFEST}.*")])


def remove_left_over(archive: Path, manifest: Manifest) -> None:
    """Removes these files, and the folders that are empty then. The archive must be locked."""
    for path in left_over(archive, manifest):
        path.unlink(missing_ok=True)
    for folder in sorted([*archive.glob("day=*/cycle=*"), *archive.glob("day=*")], reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def sweep_archive(archive: Path | str, *, is_applied: bool) -> list[tuple[Path, int]]:
    """The files that no manifest names, with their sizes in bytes; removes them if it is to.

    Raises:
        QueueError: there is no archive.
        QueueDamaged: its manifest cannot be read. Nothing is removed.
        QueueLocked: a run is busy with it, and such files may be its own.
    """
    archive = Path(archive).absolute()
    read_manifest(archive)  # before anything is made: it may be no archive
    with locked_archive(archive):
        manifest = read_manifest(archive)
        found = [(path, path.stat().st_size) for path in left_over(archive, manifest)]
        if is_applied:
            remove_left_over(archive, manifest)
    return found
