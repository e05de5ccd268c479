"""Appending on a disk that is full, in a process of its own that a fault would kill."""

import os
from pathlib import Path

from cqrepl.queue import Queue
from tests.net.test_disk_full import small_file_system
from tests.support import forks
from tests.support.goldens import unpack
from tests.support.samples import NOON_MS, fill_up, read


def test_a_full_disk_is_an_error_and_no_crash(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", "12m"):
        path = tmp_path / "disk" / "queue"

        def work() -> None:
            count = fill_up(path)
            assert count > 20
            assert len(read(path)) == count

        assert forks.run(work) == 0


def test_t16_a_sparse_file_of_java_on_a_full_disk(tmp_path: Path) -> None:
    """Its pages are holes: storing into one would kill the process."""
    disk = tmp_path / "disk"
    with small_file_system(disk, "12m"):
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
