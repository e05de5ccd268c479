"""After another start of the machine the first append waits for what the copies may have more."""

import errno
import logging
import os
import shutil
import time
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.acceptance import accept_lost_end
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from cqrepl.surroundings import Surroundings, within
from tests.support.copies import assert_same
from tests.support.replicas import acked, copied, joined, last_of, live_sink, live_source
from tests.support.samples import NOON_MS, fill, noon_index, noon_path, read


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A queue of 50 excerpts and its copy of 60: the power has gone, and the last 10 with it."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 50})

    async def replicate() -> None:
        async with joined(path, copy) as (source, _):
            await acked(source, last_of(path) or 0)
            # a side file is written under another name first, and may go under the copying
            shutil.copytree(path, tmp_path / "kept", ignore=shutil.ignore_patterns("*.cq*.*"))
            await acked(source, append(path, b"lost", 10))

    trio.run(replicate)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "kept", path)
    with monkeypatch.context() as before:
        before.setattr(syncedmark, "this_boot", lambda: bytes(16))
        store_synced(path, Index((last_of(path) or 0) + 1))
    return path, copy


def append(path: Path, data: bytes, count: int = 1, *, wait_for_seconds: float = 0.0) -> int:
    """Appends in the cycle of noon; the last index."""
    with Queue.open_for_append(path, wait_for_seconds=wait_for_seconds) as queue:
        return queue.append_many([data] * count, now_ms=NOON_MS)


def appended(path: Path, seconds: float) -> float:
    """The seconds that an append takes that may wait for `seconds`."""
    start = time.monotonic()
    append(path, b"more", wait_for_seconds=seconds)
    return time.monotonic() - start


async def test_what_was_lost_comes_back_first(lost: tuple[Path, Path]) -> None:
    path, copy = lost
    before = read(copy)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, appended, path, 60.0)
        await trio.sleep(0.3)
        assert len(read(path)) == 50
        async with live_source(path) as source, live_sink(copy, source.port):
            while len(read(path)) < 61:
                await trio.sleep(0.01)
            await copied(path, copy)
            assert not source.stops
    assert_same(path, copy)
    assert read(path)[:60] == before
    assert read(path)[60][1] == b"more"


async def test_the_mark_tells_that_they_are_equal(tmp_path: Path, lost: tuple[Path, Path]) -> None:
    path, copy = lost
    async with joined(path, copy):
        while not getattr(load_synced(path), "is_of_this_boot", False):
            await trio.sleep(0.01)
        assert appended(path, 60.0) < 30.0


def test_nobody_is_waited_for_twice(
    lost: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    path, _ = lost
    with caplog.at_level(logging.WARNING):
        assert appended(path, 0.3) >= 0.3
        assert appended(path, 60.0) < 30.0
    assert [record.getMessage().count("within 0.3 s no source") for record in caplog.records] == [1]
    with Queue.open(path) as queue:
        assert queue.count() == 52


def test_a_queue_without_copies_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    with monkeypatch.context() as before:
        before.setattr(syncedmark, "this_boot", lambda: bytes(16))
        store_synced(tmp_path / "q", Index((last_of(tmp_path / "q") or 0) - 2))
    assert appended(tmp_path / "q", 60.0) < 30.0


def test_none_is_waited_for_where_that_is_said(lost: tuple[Path, Path]) -> None:
    assert appended(lost[0], 0.0) < 30.0


@pytest.mark.parametrize("boot", [None, bytes(16)], ids=["this start", "an earlier start"])
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_what_takes_the_place_of_a_lost_end_is_not_called_synced(
    tmp_path: Path, boot: bytes | None, seconds: float
) -> None:
    """The mark tells of what was there before, and keeps appends out until that is accepted."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 3})
    doubtful = range(noon_index(sequence=4), noon_index(ahead=1, sequence=2))
    store_synced(path, noon_index(ahead=1, sequence=3), doubtful, boot=boot)
    noon_path(path, ahead=1).unlink()
    apply(plan_repair(path))
    before = load_synced(path)
    assert before is not None
    assert before.end == noon_index(ahead=1, sequence=3), "a repair hides nothing"
    for _ in range(2):
        with pytest.raises(QueueDamaged, match="what is on the disk"):
            append(path, b"other", 2, wait_for_seconds=seconds)
    assert load_synced(path) == before
    assert accept_lost_end(path) is not None
    append(path, b"other", 2, wait_for_seconds=seconds)
    end = noon_index(sequence=5)
    after = load_synced(path)
    assert after is not None
    assert (after.end, after.boot) == (end, before.boot)
    assert after.doubtful == range(doubtful.start, end)


def test_a_mark_that_cannot_be_lowered_is_not_accepted(tmp_path: Path) -> None:
    fill(tmp_path, "FAST_DAILY", {0: 5})
    store_synced(tmp_path, noon_index(sequence=9))
    with pytest.raises(OSError, match="No space left"), within(FullDisk()):
        accept_lost_end(tmp_path)
    with pytest.raises(QueueDamaged, match="expected excerpts up to"):
        append(tmp_path, b"other")
    assert len(read(tmp_path)) == 5
    assert accept_lost_end(tmp_path) is not None
    append(tmp_path, b"other")
    assert len(read(tmp_path)) == 6


class FullDisk(Surroundings):
    def write(self, descriptor: int, data: bytes, position: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
