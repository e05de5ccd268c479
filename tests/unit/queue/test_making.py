"""Store files are whole by the time they have their name, and never take another's."""

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue.files.maker import make_file, precreated_path, put_in_place, take_precreated
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.storeimage import store_image
from tests.support.samples import layout

IMAGE = store_image(layout().index_count, layout().index_spacing)
MADE = partial(make_file, image=IMAGE, is_synced=False)


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_a_file_is_whole_once_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call that changes the directory, the name is missing or the file is complete."""
    path = tmp_path / "20240305F.cq4"

    def looking(call: str) -> None:
        real = getattr(os, call)

        def changed(*args: object, **kwargs: object) -> object:
            assert not path.exists() or path.read_bytes() == IMAGE
            return real(*args, **kwargs)

        monkeypatch.setattr(os, call, changed)

    for call in ("open", "pwrite", "posix_fallocate", "link", "rename", "close"):
        looking(call)
    assert MADE(path)
    monkeypatch.undo()
    assert names(tmp_path) == [path.name]
    assert path.read_bytes() == IMAGE


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "20240305F.cq4"
    path.write_bytes(b"another's")
    assert not MADE(path)
    made = precreated_path(path)
    made.write_bytes(IMAGE)
    assert not put_in_place(made, path)
    assert path.read_bytes() == b"another's"
    assert names(tmp_path) == [path.name, made.name]


def test_nothing_was_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "none.precreated", tmp_path / "none.cq4")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_taken_for_one(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "20240305F.cq4"
    make(precreated_path(path))
    with pytest.raises(QueueDamaged, match=r"20240305F.precreated.*expected a regular file"):
        take_precreated(path, lambda: IMAGE, is_synced=False)
    assert names(tmp_path) == ["20240305F.precreated"]


def test_a_leftover_that_is_a_file_in_use_is_not_written_to(tmp_path: Path) -> None:
    """A creator of the same process number died between the link and the removal."""
    first, second = tmp_path / "20240305F.cq4", tmp_path / "20240305F.precreated"
    first.write_bytes(b"in use")
    os.link(first, tmp_path / f"20240305F.precreated.{os.getpid()}")
    assert MADE(second)
    assert first.read_bytes() == b"in use"
    assert names(tmp_path) == [first.name, second.name]


def test_without_hard_links_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "20240305F.cq4"
    assert MADE(path)
    assert names(tmp_path) == [path.name]
    assert path.read_bytes() == IMAGE
