"""A pipe in the place of a side file: hosts do not wait for it, and say so."""

import os
from pathlib import Path

import pytest

from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME
from cqrepl.replicator import syncer
from tests.support.replicas import acked, copied, eventually, joined
from tests.support.samples import fill

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


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_hosts_of_no_other_queue_do_not_begin(tmp_path: Path, side: str) -> None:
    """Where the mark cannot be read it is not known what a power cut may have torn."""
    for name in ("q", "copy"):
        fill(tmp_path / name, "FAST_DAILY", {0: 5})
    os.mkfifo(tmp_path / side / SYNCED_FILE_NAME)
    with pytest.RaisesGroup(
        pytest.RaisesExc(OSError, match=SAID), flatten_subgroups=True, allow_unwrapped=True
    ):
        async with joined(tmp_path / "q", tmp_path / "copy"):
            pass
