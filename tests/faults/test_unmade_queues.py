"""Queues whose creator has died, or had no room: nothing stays that others wait for."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cqrepl import Host, HostSettings, SourceSettings, serve_sink, serve_source
from cqrepl.queue import NotAQueue, Queue
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.errors import UnfinishedQueue
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.queuestate.logs import ENTRY, EntryLog, LogKind
from tests.net.test_disk_full import small_file_system
from tests.support import forks
from tests.support.replicas import copied, eventually, more_excerpts
from tests.support.samples import NOON_MS, fill, layout, read

LEFT = [
    pytest.param(b"", id="no-byte"),
    pytest.param(bytes(131_072), id="no-header"),
    pytest.param(b"\0\0\0\x80" + bytes(131_068), id="begun"),
]


def leave(path: Path, left: bytes) -> None:
    """A table store without a header, as Java leaves it, and one that never got its name."""
    path.mkdir(exist_ok=True)
    for name in (FILE_NAME, f"{FILE_NAME}.precreated.1"):
        (path / name).write_bytes(left)
        os.utime(path / name, (1, 1))  # no process is at work on it


def test_a_queue_that_is_made_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_file_system(disk, "12m"):
        path = disk / "queue"
        path.mkdir()
        ballast = disk / "ballast"
        ballast.write_bytes(bytes((12 << 20) - (32 << 10)))  # room for a header, and not for all
        with pytest.raises(OSError) as full:
            Queue.open_for_append(path, create=layout())
        assert full.value.errno == errno.ENOSPC
        assert full.value.filename == str(path / FILE_NAME), "which disk is full is told"
        assert list(path.iterdir()) == []
        with pytest.raises(NotAQueue, match="found none"):
            Queue.open_for_append(path)
        ballast.unlink()
        with Queue.open_for_append(path, create=layout()) as queue:
            queue.append(b"0", now_ms=NOON_MS)


@pytest.mark.parametrize("call", ["open", "posix_fallocate", "pwrite", "link", "unlink"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_a_creator_that_dies_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, is_done: bool
) -> None:
    path = tmp_path / "queue"
    path.mkdir()
    real = getattr(os, call)

    def killed(*args: object, **kwargs: object) -> object:
        if is_done:
            real(*args, **kwargs)
        os._exit(forks.CRASH_CODE)

    def make() -> None:
        monkeypatch.setattr(os, call, killed)
        Queue.open_for_append(path, create=layout())

    assert forks.run(make) == forks.CRASH_CODE
    if (path / FILE_NAME).exists():
        Queue.open(path).close()
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.append(b"0", now_ms=NOON_MS)
    assert [data for _, data in read(path)] == [b"0"]


def test_two_creators_make_one_queue_without_hard_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is done just before this one would be."""
    path, real, found = tmp_path / "queue", os.link, []
    program = (
        "import sys; from cqrepl.queue import Queue;"
        "queue = Queue.open_for_append(sys.argv[1], create='FAST_DAILY');"
        "queue.append(b'0', now_ms=int(sys.argv[2]))"
    )

    def link(made: str, name: str) -> None:
        monkeypatch.setattr(os, "link", real)
        subprocess.run([sys.executable, "-P", "-c", program, path, str(NOON_MS)], check=True)
        found.append((path / FILE_NAME).stat().st_ino)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.append(b"1", now_ms=NOON_MS)
    assert [(path / FILE_NAME).stat().st_ino] == found, "those who have it open have this one"
    assert [data for _, data in read(path)] == [b"0", b"1"]


@pytest.mark.parametrize("left", LEFT)
def test_a_promise_beside_it_is_no_queue(tmp_path: Path, left: bytes) -> None:
    leave(tmp_path, left)
    KeptEpochs(tmp_path).promise(1, 2)
    assert len(list(tmp_path.iterdir())) == 3
    assert not holds_queue(tmp_path)


@pytest.mark.parametrize("left", LEFT)
async def test_a_sink_makes_its_copy_where_a_creator_has_died(tmp_path: Path, left: bytes) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 5})
    leave(copy, left)
    async with (
        serve_source([path], listen="127.0.0.1:0") as source,
        serve_sink({"q": copy}, connect=f"127.0.0.1:{source.port}"),
    ):
        await copied(path, copy)


@pytest.mark.parametrize("left", LEFT)
async def test_a_source_makes_its_queue_where_a_creator_has_died(
    tmp_path: Path, left: bytes
) -> None:
    path = tmp_path / "q"
    leave(path, left)
    made = SourceSettings(made_with={"q": "FAST_DAILY"})
    here = HostSettings.of(listen="127.0.0.1:0", host_id=1, sources={"q": path}, source=made)
    async with Host(here):
        assert read(path) == []


@pytest.mark.parametrize("left", LEFT)
def test_a_log_is_made_where_its_creator_has_died(tmp_path: Path, left: bytes) -> None:
    leave(tmp_path, left)
    for count in (1, 2):
        log = EntryLog(tmp_path, "q", LogKind.APPENDED)
        log.note(bytes(ENTRY.size))
        log.close()
        assert len(read(tmp_path)) == count


async def test_a_source_waits_for_one_that_is_not_made_yet(tmp_path: Path) -> None:
    """Its other queues go out meanwhile."""
    path, other, folder = tmp_path / "q", tmp_path / "other", tmp_path / "copies"
    fill(path, "FAST_DAILY", {0: 5})
    leave(other, b"")
    with pytest.raises(UnfinishedQueue, match="found no header"):
        Queue.open_for_append(other)
    copies = {"q": folder / "q", "other": folder / "other"}
    folder.mkdir()
    async with (
        serve_source([path, other], listen="127.0.0.1:0") as source,
        serve_sink(copies, connect=f"127.0.0.1:{source.port}"),
    ):
        await copied(path, copies["q"])
        assert "found no header" in source.late["other"].message
        Queue.open_for_append(other, create=layout()).close()
        more_excerpts(other, 0, 5)
        await eventually(lambda: (copies["other"] / FILE_NAME).exists())
        await copied(other, copies["other"])
