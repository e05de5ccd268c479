"""A mark above the end of a queue tells of a loss: nothing of ours is appended in its place."""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from cqrepl import AckLevel, WaitEnded
from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue, QueueDamaged
from cqrepl.queue.acceptance import accept_lost_end
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.markslots import MarkLevel
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from cqrepl.queue.write.groupcommit import Durability
from cqrepl.surroundings import Surroundings, within
from tests.support.copies import assert_same
from tests.support.invoke import Invoke, invoke
from tests.support.replicas import (
    acked,
    copied,
    eventually,
    joined,
    last_of,
    live_sink,
    live_source,
    stopped,
)
from tests.support.samples import NOON_MS, Excerpts, fill, layout, noon_index, noon_path, read
from tests.support.tears import Restarted

__all__ = ["invoke"]

ENDS = 4  # excerpts that are left
LAST = noon_index(sequence=8)  # that was acknowledged
LOST = re.escape(f"up to {LAST:#x}")

Loss = Callable[[Path, Path], None]


def removed(path: Path, _: Path) -> None:
    for file in path.glob("*.cq4"):
        file.unlink()


def emptied(path: Path, _: Path) -> None:
    os.truncate(noon_path(path), 0)


def put_back(path: Path, less: Path) -> None:
    noon_path(less).rename(noon_path(path))


def copied_over(path: Path, less: Path) -> None:
    shutil.copyfile(noon_path(less), noon_path(path))


HOWS = [removed, emptied, put_back, copied_over]


@pytest.fixture
async def replicated(tmp_path: Path) -> Excerpts:
    """The queue "q" of nine excerpts, which its copy has all; an older store file in "less"."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    fill(tmp_path / "less", "FAST_DAILY", {0: ENDS})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    return written


def append_beside(path: Path, data: bytes) -> int:
    """As a Java writer, which looks at no mark of ours; the index."""
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        index = appender.next_index or noon_index()
        appender.append_at(ExcerptBatch.of(index, [data]))
    return index


def marks_of(path: Path) -> dict[str, int]:
    with Queue.open(path) as queue:
        found = {str(level): at for level, at in queue.host_marks.load().get(2, {}).items()}
        return found | {"java sent": queue.sent_index, "java acked": queue.acknowledged_index}


@pytest.mark.parametrize("how", HOWS)
async def test_appends_are_refused_until_a_copy_has_given_back(
    tmp_path: Path, replicated: Excerpts, how: Loss, invoke: Invoke
) -> None:
    path = tmp_path / "q"
    how(path, tmp_path / "less")
    left = read(path)
    with Queue.open(path) as queue:
        for _ in range(2):
            with pytest.raises(QueueDamaged, match=LOST) as caught:
                queue.append(b"other", now_ms=NOON_MS)
        assert f"found the end at {queue.next_index():#x}" in str(caught.value)
        assert "cqrepl repair QUEUE --apply" in str(caught.value)
        async with live_source(path) as source:
            with pytest.raises(QueueDamaged, match=LOST), Queue.open(path) as other:
                other.append(b"other", now_ms=NOON_MS)
            assert read(path) == left
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, LAST)
                index = queue.append(b"more", now_ms=NOON_MS)
                assert index == LAST + 1
                await acked(source, index)
    assert read(path)[:-1] == replicated
    assert_same(path, tmp_path / "copy")


@pytest.mark.parametrize(
    ("how", "durability"), [(removed, Durability.SYNCED), (put_back, Durability.NONE)]
)
async def test_an_appender_that_is_open_refuses_too(
    tmp_path: Path, replicated: Excerpts, how: Loss, durability: Durability
) -> None:
    path = tmp_path / "q"
    with Queue.open(path, durability=durability) as queue:
        last = queue.append(b"before", now_ms=NOON_MS)
        async with joined(path, tmp_path / "copy") as (source, _):
            await acked(source, last)
        how(path, tmp_path / "less")
        for _ in range(2):
            with pytest.raises(QueueDamaged, match=f"up to {last:#x}"):
                queue.append(b"other", now_ms=NOON_MS)
        async with joined(path, tmp_path / "copy") as (source, _):
            await acked(source, last)
            assert queue.append(b"more", now_ms=NOON_MS) == last + 1
            await acked(source, last + 1)
    assert read(path)[:9] == replicated
    assert_same(path, tmp_path / "copy")


@pytest.mark.parametrize("how", HOWS)
async def test_a_repair_accepts_the_loss(
    tmp_path: Path, replicated: Excerpts, how: Loss, invoke: Invoke
) -> None:
    path = tmp_path / "q"
    how(path, tmp_path / "less")
    left = read(path)
    before = marks_of(path)
    result = invoke("repair", path)
    assert f"expected excerpts up to {LAST:#x}" in result.stdout
    assert "nothing was changed" in result.stdout
    assert "nothing to repair" not in result.stdout
    assert marks_of(path) == before
    result = invoke("repair", path, "--apply")
    assert result.exit_code == 0, result.output
    assert "marks are lowered" in result.stdout
    last = left[-1][0] if left else -1
    assert max(marks_of(path).values()) <= max(last, 0)
    mark = load_synced(path)
    assert mark is None or mark.end <= last + 1
    assert "accepted" not in invoke("repair", path, "--apply").stdout
    with Queue.open(path) as queue:
        index = queue.append(b"other", now_ms=NOON_MS)
    async with live_source(path) as source:
        with trio.move_on_after(0.2) as waited:
            await source.wait_acked(index)
        assert waited.cancelled_caught, "the copy has another excerpt there"


@pytest.mark.parametrize("is_running", [False, True], ids=["found at the start", "while it runs"])
async def test_what_a_foreign_writer_puts_there_is_covered_by_no_mark(
    tmp_path: Path, replicated: Excerpts, is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    if not is_running:
        put_back(path, tmp_path / "less")
    async with live_source(path) as source:
        if is_running:
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, LAST)
                put_back(path, tmp_path / "less")
                index = append_beside(path, b"other")
                await stopped(source)
        else:
            index = append_beside(path, b"other")
            await eventually(lambda: bool(source.stops))
        assert {stop.reason for stop in source.stops} == {StopReason.DAMAGED}
        await eventually(lambda: source.queues["q"].marks[2].acknowledged < index)
        assert max(source.board("q").marks_at(AckLevel.APPENDED).values(), default=-1) < index
        assert source.queues["q"].marks[2].acknowledged < index
        assert marks_of(path)["java acked"] < index
        with trio.move_on_after(0.2) as waited, suppress(WaitEnded):
            await source.wait_acked(index)
            raise AssertionError(waited)
        with pytest.raises(QueueDamaged, match="up to"), Queue.open(path) as queue:
            queue.append(b"another", now_ms=NOON_MS)


def test_a_file_that_was_cut_is_refused_by_what_it_held(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 9})
    with Queue.open(path) as queue:
        queue.host_marks.raise_to(2, MarkLevel.ACKNOWLEDGED, LAST)
        batch = queue.tailer(noon_index(sequence=ENDS)).next_batch(count_max=1)
        assert batch is not None
        os.truncate(noon_path(path), batch.offsets[0] - 4)
    with pytest.raises(QueueDamaged, match=f"the documents end before .*{LOST}.* found the end at"):
        append(path)


def test_marks_of_a_queue_without_hosts(tmp_path: Path) -> None:
    """As of what was on the disk, or of Java's own source."""
    for nth, mark in enumerate(("synced", "java", "own")):
        path = tmp_path / str(nth)
        fill(path, "FAST_DAILY", {0: 9})
        if mark == "synced":
            store_synced(path, LAST + 1)
        with Queue.open(path) as queue:
            if mark == "java":
                queue.raise_acknowledged(LAST)
        if mark == "own":
            with Queue.open(path, durability=Durability.SYNCED) as queue:
                queue.append(b"synced", now_ms=NOON_MS)
        removed(path, path)
        with pytest.raises(QueueDamaged, match="expected excerpts up to"):
            append(path)


def append(path: Path) -> int:
    with Queue.open(path, wait_for_seconds=0) as queue:
        return queue.append(b"other", now_ms=NOON_MS)


def test_what_was_only_sent_may_have_gone_with_the_power(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: ENDS})
    store_synced(tmp_path / "q", noon_index(sequence=ENDS))
    with Queue.open(tmp_path / "q") as queue:
        queue.host_marks.raise_to(2, MarkLevel.SENT, LAST)
    with pytest.raises(QueueDamaged, match=LOST):
        append(tmp_path / "q")
    with within(Restarted()):
        assert append(tmp_path / "q") == noon_index(sequence=ENDS)


def test_what_was_acknowledged_is_lost_by_whatever(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: ENDS})
    store_synced(tmp_path / "q", noon_index(sequence=ENDS))
    with Queue.open(tmp_path / "q") as queue:
        queue.host_marks.raise_to(2, MarkLevel.ACKNOWLEDGED, LAST)
    with within(Restarted()), pytest.raises(QueueDamaged, match=LOST):
        append(tmp_path / "q")


async def test_of_two_hosts_each_has_to_give_back(tmp_path: Path) -> None:
    """The first one has less: what the second one has acknowledged is not to be written anew."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 9})
    fill(tmp_path / "less", "FAST_DAILY", {0: ENDS})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 6})
    async with live_source(path) as source:
        async with live_sink(tmp_path / "third", source.port, host_id=3):
            await acked(source, LAST)
    with Queue.open(path) as queue:
        queue.host_marks.raise_to(2, MarkLevel.SENT, LAST)
        queue.host_marks.raise_to(2, MarkLevel.ACKNOWLEDGED, written[5][0])
    put_back(path, tmp_path / "less")
    async with live_source(path) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[5][0])
            with pytest.raises(QueueDamaged, match="host 3 has acknowledged"):
                await trio.to_thread.run_sync(append, path)
        async with live_sink(tmp_path / "third", source.port, host_id=3):
            await eventually(lambda: last_of(path) == LAST)
            # the source may have the write lock until all has come back: its loop must go on
            assert await trio.to_thread.run_sync(append, path) == LAST + 1


def test_an_empty_queue_has_no_mark_to_speak_of(tmp_path: Path) -> None:
    Queue.open_for_append(tmp_path / "q", create=layout()).close()
    with Queue.open(tmp_path / "q") as queue:
        queue.host_marks.raise_to(2, MarkLevel.SENT, 0)
    assert append(tmp_path / "q") == noon_index()


@pytest.mark.parametrize("left", [ENDS, 8], ids=["some are gone", "one is gone"])
async def test_a_source_that_loses_its_end_while_it_runs_stops(tmp_path: Path, left: int) -> None:
    """Nothing is written in its place yet, so all copies may still give it back."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 9})
    fill(tmp_path / "less", "FAST_DAILY", {0: left})
    async with joined(path, tmp_path / "copy") as (source, _):
        await acked(source, LAST)
        put_back(path, tmp_path / "less")
        await stopped(source)
        (stop,) = source.stops
        assert stop.reason is StopReason.DAMAGED
    async with joined(path, tmp_path / "copy") as (source, _):
        await acked(source, LAST)
    assert_same(path, tmp_path / "copy")


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
            await acked(source, append_here(path, b"lost", 10))

    trio.run(replicate)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "kept", path)
    with monkeypatch.context() as before:
        before.setattr(syncedmark, "this_boot", lambda: bytes(16))
        store_synced(path, Index((last_of(path) or 0) + 1))
    return path, copy


def append_here(path: Path, data: bytes, count: int = 1, *, wait_for_seconds: float = 0.0) -> int:
    """Appends in the cycle of noon; the last index."""
    with Queue.open_for_append(path, wait_for_seconds=wait_for_seconds) as queue:
        return queue.append_many([data] * count, now_ms=NOON_MS)


def appended(path: Path, seconds: float) -> float:
    """The seconds that an append takes that may wait for `seconds`."""
    start = time.monotonic()
    append_here(path, b"more", wait_for_seconds=seconds)
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


def test_a_queue_without_copies_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    with monkeypatch.context() as before:
        before.setattr(syncedmark, "this_boot", lambda: bytes(16))
        store_synced(tmp_path / "q", Index((last_of(tmp_path / "q") or 0) - 2))
    assert appended(tmp_path / "q", 60.0) < 30.0


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
            append_here(path, b"other", 2, wait_for_seconds=seconds)
    assert load_synced(path) == before
    assert accept_lost_end(path) is not None
    append_here(path, b"other", 2, wait_for_seconds=seconds)
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
        append_here(tmp_path, b"other")
    assert len(read(tmp_path)) == 5
    assert accept_lost_end(tmp_path) is not None
    append_here(tmp_path, b"other")
    assert len(read(tmp_path)) == 6


class FullDisk(Surroundings):
    def write(self, descriptor: int, data: bytes, position: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
