"""A disk fails while it is written to, and the system tells of that once.

A file system of its own stands in a sparse file, which is in memory that is then full: what is
written back to new places fails, as it does at a disk with errors.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import Durability, Queue
from cqrepl.queue.acceptance import accept_unproved
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.syncedmark import NOTHING_DOUBTFUL, load_synced, store_synced
from cqrepl.queue.format.errors import DurabilityLost
from cqrepl.queue.format.index import Index
from cqrepl.queue.write.appender import Appender
from cqrepl.replicator.disk.syncedfiles import SyncedFiles
from cqrepl.surroundings import sync_path
from tests.support.requirements import require
from tests.support.samples import NOON_MS, Excerpts, layout, noon_path, read

MEMORY = 24 << 20
FILES = ("-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=0")
BEFORE, BEHIND = 10, 40  # excerpts
SYNC = "import os, sys; os.fdatasync(os.open(sys.argv[1], os.O_RDONLY))"


class FailingDisk:
    """A file system, mounted at `path`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mounted"
        self._memory = folder / "memory"
        self._image, self._filling = self._memory / "image", self._memory / "filling"
        self.path.mkdir()
        self._memory.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={MEMORY}", "none", str(self._memory))
        with self._image.open("wb") as file:
            file.truncate(2 * MEMORY)
        subprocess.run(["mkfs.ext4", "-q", "-F", *FILES, str(self._image)], check=True)
        self._mount("-o", "loop", str(self._image), str(self.path))

    def fail(self) -> None:
        """From now on nothing gets to a place that nothing was written to."""
        try:
            with self._filling.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 12))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def mend(self) -> None:
        self._filling.unlink()

    def forget(self) -> None:
        """Drop what the system has of the files in memory: the disk is read anew. No process may
        have them open."""
        subprocess.run(["umount", str(self.path)], check=True)
        self._mount("-o", "loop", str(self._image), str(self.path))

    def end(self) -> None:
        for path in (self.path, self._memory):
            subprocess.run(["umount", str(path)], check=False)

    def _mount(self, *words: str) -> None:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            require("root", f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    if os.geteuid() != 0:
        require("root", "root mounts a file system")
    made = FailingDisk(tmp_path)
    try:
        yield made
    finally:
        made.end()


def with_failed_sync(disk: FailingDisk) -> tuple[Path, Excerpts]:
    path = disk.path / "q"
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        appender.append([b"before %d" % n for n in range(BEFORE)], NOON_MS)
        end = queue.next_index()
        for file in (*path.iterdir(), path):
            sync_path(file)
        store_synced(path, end)
        disk.fail()
        appender.append([b"%03d " % n * 16_000 for n in range(BEHIND)], NOON_MS)
        files = SyncedFiles(queue, load_synced(path), end)
        with pytest.raises(OSError, match=r"No space left|Input/output"):
            files.sync(queue.next_index(), NOTHING_DOUBTFUL, is_at_once=False)
    disk.mend()
    return path, read(path)


def test_the_next_process_does_not_take_it_for_synced(
    disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is in memory as it was, and a sync, which has nothing to write, succeeds."""
    path, written = with_failed_sync(disk)
    first = written[BEFORE][0]
    with Queue.open(path) as queue:
        end, mark = queue.next_index(), load_synced(path)
        assert mark is not None
        assert mark.doubtful_before(end) == range(first, end)
        files = SyncedFiles(queue, mark, end)
        assert files.sync(end, mark.doubtful_before(end), is_at_once=False) is None
    for file in path.iterdir():
        sync_path(file)
    in_memory = noon_path(path).read_bytes()
    disk.forget()
    assert noon_path(path).read_bytes() != in_memory
    monkeypatch.setattr(syncedmark, "this_boot", lambda: bytes(16))
    mark = load_synced(path)
    assert mark is not None
    assert mark.doubtful_before(end) == range(first, end), "so a copy is asked for it"


def grown(path: Path, appender: Appender) -> None:
    """More than what of the file has a place on the disk."""
    appender.append([b"%03d " % n * 16_000 for n in range(BEHIND)], NOON_MS)


def test_what_the_sync_of_another_program_was_told_is_heard_of(disk: FailingDisk) -> None:
    """It was told first, and knows nothing of marks, as Java."""
    path = disk.path / "q"
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        appender.append([b"before"], NOON_MS)
        files, first = SyncedFiles(queue, None, Index(0)), queue.next_index()
        assert files.sync(first, NOTHING_DOUBTFUL, is_at_once=False) is None
        disk.fail()
        grown(path, appender)
        told = subprocess.run(
            [sys.executable, "-c", SYNC, str(noon_path(path))], capture_output=True, check=False
        )
        assert b"OSError" in told.stderr
        disk.mend()
        with pytest.raises(OSError, match=r"No space left|Input/output"):
            files.sync(queue.next_index(), NOTHING_DOUBTFUL, is_at_once=False)
    mark = load_synced(path)
    assert mark is not None
    assert (mark.end, mark.has_failed) == (first, True)


def test_what_an_appender_was_told_is_heard_of(disk: FailingDisk) -> None:
    """By hosts that run and such that come, and by the next appender that syncs."""
    path = disk.path / "q"
    with Queue.open(path, create=layout(), durability=Durability.SYNCED) as queue:
        queue.append_many([b"before"] * BEFORE, now_ms=NOON_MS)
        end = queue.next_index()
        running = SyncedFiles(queue, None, Index(0))
        for file in (*path.iterdir(), path):
            sync_path(file)
        disk.fail()
        with pytest.raises(DurabilityLost, match="the sync failed"):
            grown(path, queue.appender())
    disk.mend()
    mark = load_synced(path)
    assert mark is not None
    assert (mark.end, mark.has_failed) == (end, True)
    with Queue.open(path) as queue:
        queue.append(b"behind", now_ms=NOON_MS)
        for files in (running, SyncedFiles(queue, None, Index(0))):
            with pytest.raises(DurabilityLost, match="started again"):
                files.sync(queue.next_index(), NOTHING_DOUBTFUL, is_at_once=False)
            assert files.end <= end
    with Queue.open(path, durability=Durability.SYNCED) as queue:
        with pytest.raises(DurabilityLost, match="started again"):
            queue.append(b"behind", now_ms=NOON_MS)
    assert load_synced(path) == mark


def test_nobody_can_declare_it_good_before_the_machine_is_started_again(
    disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = with_failed_sync(disk)
    mark = load_synced(path)
    with pytest.raises(DurabilityLost, match="started again"):
        accept_unproved(path)
    assert load_synced(path) == mark
    monkeypatch.setattr(syncedmark, "this_boot", lambda: bytes(16))
    assert accept_unproved(path).excerpts == BEHIND
    mark = load_synced(path)
    assert mark is not None
    assert (mark.is_of_this_boot, mark.doubtful) == (True, NOTHING_DOUBTFUL)
