"""A job says that it is done only when all is on the disk: each file, and each name on the way."""

import os
from pathlib import Path

import pytest

from cqrepl.queue import QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.surroundings import Surroundings, within
from tests.spark.queues import CYCLE, make_queue
from tests.support.requirements import require

try:
    import pyarrow as pa

    from cqrepl.spark.jobs.archiveplace import place_of
    from cqrepl.spark.jobs.cyclebuilder import install, workshop
    from cqrepl.spark.jobs.preload import SETTINGS, PreloadSettings, _keep_settings
    from cqrepl.spark.jobs.queuefiller import fill
except ImportError as error:
    require("spark", f"{error.name} is not installed")

LAYOUT = QueueLayout.of(by_name("FAST_DAILY"))


class Noting(Surroundings):
    """Notes what was synced, by the names at that moment."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync(self, descriptor: int) -> None:
        self._note(descriptor)
        super().sync(descriptor)

    def sync_names(self, descriptor: int) -> None:
        self._note(descriptor)
        super().sync_names(descriptor)

    def _note(self, descriptor: int) -> None:
        self.synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def test_a_part_and_its_folders_are_on_the_disk_before_a_manifest(folder: Path) -> None:
    disk, archive = Noting(), folder / "new" / "archive"
    place, name = place_of(archive), "day=2023-11-14/cycle=19675/part-x.parquet"
    with within(disk), place.locked():
        assert set(disk.synced) == {str(folder), str(folder / "new")}
        disk.synced.clear()
        with place.draft(name) as draft:
            draft.write_bytes(b"excerpts")
            place.keep(draft, name)
        part, *folders = disk.synced
        assert Path(part).name.startswith(".part-x.parquet.")
        assert folders == [str((archive / name).parents[nth]) for nth in range(3)]
        disk.synced.clear()
        place.swap_manifest(b"{}", None)
    manifest, root = disk.synced
    assert Path(manifest).name.startswith("._manifest.json.")
    assert root == str(archive)


def test_a_queue_that_was_filled_is_on_the_disk(folder: Path) -> None:
    disk, out = Noting(), folder / "new" / "filled"
    settings = PreloadSettings(key="key", partitions=3)
    with within(disk):
        _keep_settings(out, settings)
        assert set(disk.synced[:2]) == {str(folder), str(folder / "new")}
        draft, directory = disk.synced[2:]
        assert Path(draft).name.startswith(f"{SETTINGS}.draft-")
        assert directory == str(out)
        for _ in range(2):  # also what a run has left that was cut off
            disk.synced.clear()
            queue = out / "partition-00000"
            fill(queue, LAYOUT, CYCLE, [pa.array([b"one", b"two"])], 10)
            files = [*queue.glob("*.cq4"), queue / "metadata.cq4t", queue, out]
            assert disk.synced[-len(files) :] == [str(path) for path in files]


def test_the_directory_of_a_queue_that_was_restored_is_on_the_disk(folder: Path) -> None:
    disk, target = Noting(), folder / "new" / "target"
    made = next(make_queue(folder / "made", (5,)).glob("*.cq4"))
    with within(disk), workshop(target):
        install(target, LAYOUT, [made])
    assert {str(target), str(folder / "new"), str(folder)} <= set(disk.synced)
