"""A mark above the end of a queue tells of a loss: nothing of ours is appended in its place."""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from cqrepl import AckLevel, Host, HostSettings, WaitEnded
from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue, QueueDamaged
from cqrepl.queue.files.markslots import MarkLevel
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.write.groupcommit import Durability
from cqrepl.surroundings import Surroundings, within
from tests.support.copies import assert_same
from tests.support.invoke import Invoke, invoke
from tests.support.replicas import (
    LOOPBACK,
    acked,
    eventually,
    joined,
    last_of,
    live_sink,
    live_source,
    stopped,
)
from tests.support.samples import NOON_MS, Excerpts, fill, layout, noon_index, noon_path, read

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


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("how", [removed, put_back])
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


async def test_a_program_with_a_host_is_refused_until_then(
    tmp_path: Path, replicated: Excerpts
) -> None:
    path = tmp_path / "q"
    removed(path, path)
    settings = HostSettings.of(listen=LOOPBACK, host_id=1, sources={"q": path})
    async with Host(settings) as host:
        with pytest.raises(QueueDamaged, match=LOST):
            await host.queue("q").append(b"other", now_ms=NOON_MS)
        leading = host.queue("q").leading
        with pytest.raises(QueueDamaged, match=LOST):
            await trio.to_thread.run_sync(leading.append, [b"other"])
        async with live_sink(tmp_path / "copy", host.port):
            await eventually(lambda: last_of(path) == LAST)
            assert await host.queue("q").append(b"more", now_ms=NOON_MS) == LAST + 1
    assert read(path)[:-1] == replicated


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


async def test_accept_missing_accepts_it_as_well(
    tmp_path: Path, replicated: Excerpts, invoke: Invoke
) -> None:
    put_back(tmp_path / "q", tmp_path / "less")
    result = invoke("repair", tmp_path / "q", "--accept-missing", "--apply")
    assert result.exit_code == 0, result.output
    with Queue.open(tmp_path / "q") as queue:
        assert queue.append(b"other", now_ms=NOON_MS) == noon_index(sequence=ENDS)


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
        (stop,) = source.stops
        assert stop.reason is StopReason.DAMAGED
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


async def test_a_host_that_starts_keeps_what_tells_of_the_loss(tmp_path: Path) -> None:
    """No copy is known: only a person settles it."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 9})
    async with live_source(path):
        await eventually(lambda: load_synced(path) is not None or True)
    store_synced(path, LAST + 1)
    removed(path, path)
    for _ in range(2):
        async with live_source(path):
            pass
        with pytest.raises(QueueDamaged, match=LOST):
            append(path)


def append(path: Path) -> int:
    with Queue.open(path, wait_for_seconds=0) as queue:
        return queue.append(b"other", now_ms=NOON_MS)


class Restarted(Surroundings):
    def boot_id(self) -> bytes:
        return b"another start of the machine"


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
                append(path)
        async with live_sink(tmp_path / "third", source.port, host_id=3):
            await eventually(lambda: last_of(path) == LAST)
            assert append(path) == LAST + 1


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
