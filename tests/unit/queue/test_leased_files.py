"""A file that another process holds a lease of for an instant, to ask who uses it."""

import fcntl
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cqrepl.queue.files import fileusers, procmaps
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.filesync import sync_file
from cqrepl.queue.files.fileusers import check_unused
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.sidefile import read_side_file


def mapped(path: Path) -> None:
    Mapping(path, writable=True).close()


def mapped_to_read(path: Path) -> None:
    Mapping(path, writable=False).close()


def read_as_bytes(path: Path) -> None:
    with closing(FileBytes(path)) as file:
        assert file.size() == 8


def synced(path: Path) -> None:
    sync_file(path.parent, path)


USES = [mapped, mapped_to_read, read_as_bytes, read_side_file, synced]


@pytest.mark.parametrize("use", USES)
def test_it_is_opened_once_the_lease_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    holder = os.open(path, os.O_RDONLY)
    fcntl.fcntl(holder, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pytest.skip("this file system knows no leases")
    refused = threading.Event()
    usual = os.open

    def watched(*arguments: object, **options: object) -> int:
        try:
            # it passes on what it was given
            return usual(*arguments, **options)  # type: ignore[arg-type]
        except BlockingIOError:
            refused.set()
            raise

    monkeypatch.setattr(os, "open", watched)

    def give_back() -> None:
        assert refused.wait(10)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    thread = threading.Thread(target=give_back)
    thread.start()
    try:
        use(path)
    finally:
        refused.set()
        thread.join()
        os.close(holder)


def test_a_file_that_a_thread_of_this_process_closes_meanwhile_is_not_another_process_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has it open as the lease is asked for, and not as the descriptors are listed."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    descriptor = os.open(path, os.O_RDONLY)
    looks: list[Path] = []

    def late(wanted: Path) -> bool:
        if not looks:
            os.close(descriptor)
        looks.append(wanted)
        return procmaps.has_open(wanted)

    monkeypatch.setattr(fileusers, "has_open", late)
    check_unused(tmp_path, [path])
    if not looks:
        os.close(descriptor)
        pytest.skip("this file system knows no leases")
