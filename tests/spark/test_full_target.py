"""A disk that has no room for what is restored or rebuilt, and a target that is not to be written.

Each job says so in one line, leaves nothing that could be taken for a queue, and ends right when it
is run again where there is room.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.spark.jobs.archive import archive as archive_of
from tests.net.test_disk_full import small_file_system
from tests.spark.queues import excerpts, make_queue
from tests.support.requirements import require

COUNT = 70_000  # two blocks, so two parts, of less than 4 MiB together
NO_ROOM = [  # the size of the disk, and what it has no room for
    ("restore", "1m", r"\.laid'"),
    ("rebuild", "6m", r"(?<!\.laid)'"),
]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cycle of two blocks."""
    return make_queue(tmp_path_factory.mktemp("queue") / "orders", (COUNT,))


@pytest.fixture(scope="module")
def archive(spark: SparkSession, queue: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its archive, a file for each block."""
    out = tmp_path_factory.mktemp("archive") / "out"
    archive_of(spark, queue, out, with_open=True, task_bytes=1)
    return out


def made(job: str, archive: Path, queue: Path, target: Path) -> Result:
    """The result of the command that makes a queue again, in parts of one block."""
    wanted = [str(archive), str(target)] if job == "restore" else [str(queue), "--to", str(target)]
    return CliRunner().invoke(cli, ["spark", job, *wanted, "--part-size", "1"])


def assert_told(done: Result, code: int, said: str) -> None:
    assert done.exit_code == code, done.output
    assert re.fullmatch(rf"cqrepl spark \w+: {said}\n", done.stderr)


@contextmanager
def shown_at(folder: Path, place: Path) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "--bind", str(folder), str(place)], capture_output=True)
    if done.returncode:
        require("root", "mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def read_only(folder: Path, place: Path) -> Iterator[None]:
    """Does as `shown_at`, but the place cannot be written to."""
    with shown_at(folder, place):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield


@pytest.mark.parametrize(("job", "size", "file"), NO_ROOM)
def test_a_disk_without_room(
    spark: SparkSession, queue: Path, archive: Path, tmp_path: Path, job: str, size: str, file: str
) -> None:
    assert spark
    disk = tmp_path / "disk"
    with small_file_system(disk, size) as enlarge:
        done = made(job, archive, queue, disk / "back")
        said = rf"\[Errno 28\] No space left on device: '{disk}/back\.building/[\w./]+{file}"
        assert_told(done, 6, said)
        assert list(disk.iterdir()) == []
        enlarge()
        again = made(job, archive, queue, disk / "back")
        assert again.exit_code == 0, again.output
        assert excerpts(disk / "back") == excerpts(queue)
        assert [path.name for path in disk.iterdir()] == ["back"]


def test_a_disk_that_is_not_written(
    spark: SparkSession, queue: Path, archive: Path, tmp_path: Path
) -> None:
    assert spark
    (tmp_path / "own").mkdir()
    with read_only(tmp_path / "own", tmp_path / "disk"):
        done = made("restore", archive, queue, tmp_path / "disk" / "back")
    assert_told(done, 2, rf"\[Errno 30\] Read-only file system: '{tmp_path}/disk/back\.building'")


@pytest.mark.parametrize("job", ["restore", "rebuild"])
def test_a_target_that_is_not_written(
    spark: SparkSession, queue: Path, archive: Path, tmp_path: Path, job: str
) -> None:
    """The command tells of such a target before anything is made."""
    assert spark
    (tmp_path / "own").mkdir()
    with read_only(tmp_path / "own", tmp_path / "back"):
        done = made(job, archive, queue, tmp_path / "back")
    assert_told(done, 2, f"{tmp_path}/back: expected a directory that can be written to")
    assert {path.name for path in tmp_path.iterdir()} == {"own", "back"}


@pytest.mark.parametrize(
    ("job", "is_once_more"), [("restore", True), ("rebuild", True), ("restore", False)]
)
def test_a_target_into_which_finished_files_cannot_be_linked(
    spark: SparkSession, queue: Path, archive: Path, tmp_path: Path, job: str, is_once_more: bool
) -> None:
    """It is another disk than what is beside it, or the same one, mounted once more."""
    assert spark
    (tmp_path / "own").mkdir()
    back = tmp_path / "back"
    with shown_at(tmp_path / "own", back) if is_once_more else small_file_system(back):
        done = made(job, archive, queue, back)
        assert list(back.iterdir()) == []
    assert_told(done, 2, f"{back}: expected it on the same file system as {tmp_path}")
    assert {path.name for path in tmp_path.iterdir()} == {"own", "back"}
