"""A full disk, limits on file sizes, and files that may not be written."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from tests.support import forks
from tests.support.requirements import require
from tests.support.samples import (
    NOON_MS,
    check_marks,
    fill,
    layout,
    noon_index,
    noon_path,
    read,
    unpack,
)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file can grow beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill_up(path: Path) -> int:
    """Appends until there is no space; how many excerpts were taken."""
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        for i in range(1000):
            batch = ExcerptBatch.of(noon_index(sequence=2 * i), [bytes(50_000), b"%d" % i])
            try:
                appender.append_at(batch)
            except OSError:
                assert appender.next_index == noon_index(sequence=2 * i)
                return 2 * i
    raise AssertionError("there was no limit")


def test_a_limit_on_file_sizes_is_an_error_before_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with file_size_limit(5 << 20):
        count = fill_up(path)
        assert count > 20
    assert len(read(path)) == count
    with Queue.open_for_append(path) as queue:  # goes on where there is space again
        queue.appender().append_at(ExcerptBatch.of(noon_index(sequence=count), [b"later"]))
    assert read(path)[-1][1] == b"later"
    check_marks(path)


def test_no_space_for_a_new_cycle_leaves_the_old_one_open(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, "FAST_DAILY", {0: 3})
    before = noon_path(path).read_bytes()
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        with file_size_limit(10_000), pytest.raises(OSError, match="File too large"):
            appender.append_at(ExcerptBatch.of(noon_index(ahead=1), [b"x"]))
        assert not noon_path(path, ahead=1).exists()
        assert noon_path(path).read_bytes() == before
        assert appender.next_index == noon_index(sequence=3)
        appender.append_at(ExcerptBatch.of(noon_index(ahead=1), [b"x"]))
    assert len(read(path)) == 4


def test_no_space_for_a_new_queue(tmp_path: Path) -> None:
    with file_size_limit(1000), pytest.raises(OSError, match="File too large"):
        Queue.open_for_append(tmp_path / "queue", create=layout())
    Queue.open_for_append(tmp_path / "queue", create=layout()).close()


def test_a_mark_without_space_is_not_kept(tmp_path: Path) -> None:
    path = unpack("fast_daily_basic", tmp_path)
    with file_size_limit(1000), Queue.open(path) as queue:
        os.truncate(path / "metadata.cq4t", 65_536)
        assert not queue.raise_sent(5)


def mounted(disk: Path) -> Path:
    """A new file system of 12 MiB there."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        require("root", "root mounts a disk")
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        require("root", "mounting is not allowed here")
    return disk


def test_a_full_disk_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """On a file system of 12 MiB, in a process of its own that a fault would kill."""
    disk = mounted(tmp_path / "disk")
    try:
        path = disk / "queue"

        def work() -> None:
            count = fill_up(path)
            assert count > 20
            assert len(read(path)) == count

        assert forks.run(work) == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_sparse_file_of_java_on_a_full_disk(tmp_path: Path) -> None:
    """Its pages are holes: storing into one would kill the process."""
    disk = mounted(tmp_path / "disk")
    try:
        path = disk / "queue"
        unpack("fast_daily_basic", disk).rename(path)
        [store] = path.glob("*.cq4")
        os.truncate(store, 80 << 20)
        (disk / "ballast").write_bytes(bytes(10 << 20))

        def work() -> None:
            with Queue.open_for_append(path) as queue:
                appender = queue.appender()
                taken = 0
                try:
                    while taken < 10_000:
                        appender.append([bytes(5000)] * 10, NOON_MS)
                        taken += 10
                except OSError:
                    pass
            assert 0 < taken < 10_000
            assert len(read(path)) == 33 + taken

        assert forks.run(work) == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)
