"""A pipe in the place of a side file: hosts do not wait for it, and say so."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced
from cqrepl.replicator.disk import syncer
from tests.support.replicas import acked, copied, eventually, joined, more_excerpts
from tests.support.requirements import require
from tests.support.samples import fill, noon_index

SAID = "expected a regular file, found a pipe"


@pytest.mark.parametrize("name", [CLOSED_FILE_NAME, SLOTS_FILE_NAME])
@pytest.mark.parametrize("side", ["q", "copy"])
async def test_hosts_go_on_once_it_is_gone(
    tmp_path: Path,
    side: str,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(original, "FAST_DAILY", {0: 5, 1: 30})
    fill(copy, "FAST_DAILY", {0: 5})
    os.mkfifo(tmp_path / side / name)
    async with joined(original, copy) as (source, sink):
        await eventually(lambda: SAID in caplog.text)
        (tmp_path / side / name).unlink()
        await acked(source, written[-1][0])
        await copied(original, copy)
        assert not source.stops + sink.stops
    assert str(tmp_path / side / name) in caplog.text


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.mkdir()


def a_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        require("root", "no device can be made here")


@pytest.mark.parametrize("name", [SLOTS_FILE_NAME, SYNCED_FILE_NAME])
@pytest.mark.parametrize("side", ["q", "copy"])
@pytest.mark.parametrize("made", [a_pipe, a_directory, a_device])
async def test_what_is_in_the_way_of_marks_is_told_and_they_go_on_once_it_is_gone(
    tmp_path: Path,
    side: str,
    made: Callable[[Path], None],
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then nothing is known to be on the disk; the stream goes on."""
    caplog.set_level("INFO")
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 3})
    async with joined(original, copy) as (source, _):
        await eventually(lambda: is_synced(tmp_path / side, 3))
        (tmp_path / side / name).unlink(missing_ok=True)
        made(tmp_path / side / name)
        written = more_excerpts(original, 3, 4)
        await acked(source, written[-1][0])
        kind = made.__name__.replace("_", " ")
        told = f"{tmp_path / side / name}: expected a regular file, found {kind}"
        await eventually(lambda: told.partition(": ")[2] in caplog.text)
        assert not source.stops
        if made is a_directory:
            (tmp_path / side / name).rmdir()
        else:
            (tmp_path / side / name).unlink()
        await eventually(lambda: is_synced(tmp_path / side, 7))
        await eventually(lambda: "it is known to be on the disk again" in caplog.text)
    found = [line for line in caplog.messages if f"found {kind}" in line]
    said = [line for line in found if "the peer says" not in line]  # the source hears it too
    assert len(said) == 1, said
    assert str(tmp_path / side / name) in said[0]
    assert "after a power cut it is compared" in said[0]


def is_synced(path: Path, count: int) -> bool:
    """True when so many excerpts of the first cycle are known to be on the disk."""
    try:
        mark = load_synced(path)
    except OSError:
        return False
    return mark is not None and mark.end >= noon_index(sequence=count)


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_hosts_of_no_other_queue_do_not_begin(tmp_path: Path, side: str) -> None:
    """A mark that cannot be read leaves it unknown what a power cut may have torn."""
    for name in ("q", "copy"):
        fill(tmp_path / name, "FAST_DAILY", {0: 5})
    os.mkfifo(tmp_path / side / SYNCED_FILE_NAME)
    with pytest.RaisesGroup(
        pytest.RaisesExc(OSError, match=SAID), flatten_subgroups=True, allow_unwrapped=True
    ):
        async with joined(tmp_path / "q", tmp_path / "copy"):
            pass
