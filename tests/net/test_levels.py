"""Levels that sinks tell beyond the acknowledgement: on their disks, and taken by programs."""

import errno
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import trio

from cqrepl import Host, HostSettings
from cqrepl.commands.statuspage import page
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy, OnTimeout
from cqrepl.queue import Queue
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.chroniclemarks import ACKNOWLEDGED_KEY, SYNCED_KEY
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced, store_synced
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.index import Index
from cqrepl.queue.quarantine import quarantine
from cqrepl.replicator.disk import syncedfiles, syncer
from cqrepl.replicator.leadership import AckUnknown
from cqrepl.replicator.marks.ackboard import AckBoard
from cqrepl.replicator.source import Source
from cqrepl.status.snapshot import snapshot_of
from cqrepl.surroundings import Surroundings
from tests.support.disks import FailingDisk
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    at,
    eventually,
    joined,
    live_sink,
    live_source,
    more_excerpts,
)
from tests.support.samples import NOON_MS, fill, noon_index, noon_path
from tests.support.tables import keys_of

APPENDED, SYNCED, APPLIED = AckLevel
LAST = noon_index(sequence=2)


@pytest.fixture
def slow_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Excerpts that no wait asks for are synced only after hours."""
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 10_000)
    monkeypatch.setattr(syncedfiles, "TABLE_SECONDS", 10_000)


async def in_thread(wait: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(wait)


def waits(board: AckBoard, index: int, level: AckLevel) -> Callable[[], None]:
    return partial(board.wait, index, 1, SECONDS, level=level)


@pytest.mark.usefixtures("has_pump", "slow_background")
async def test_what_is_waited_for_is_synced_at_once(tmp_path: Path) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 3})

    def work(board: AckBoard) -> None:
        with Queue.open_for_append(path) as queue:
            for number in range(30):
                index = queue.append(b"%d" % number)
                board.wait(index, 1, SECONDS, level=SYNCED)
                mark = load_synced(copy)
                assert mark is not None
                assert mark.end > index, "the mark is on the disk before the source is told"
                assert board.marks_at(SYNCED)[2] >= index
                assert board.marks[2] >= index

    async with joined(path, copy) as (source, _):
        await in_thread(partial(work, source.board()))


@pytest.mark.usefixtures("has_pump")
async def test_it_is_told_in_the_background_too(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with joined(path, tmp_path / "copy") as (source, _):
        board = source.board()
        await eventually(lambda: board.marks_at(SYNCED) == {2: LAST})
        assert board.wanted == {APPENDED}


async def test_a_task_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with joined(path, tmp_path / "copy") as (source, _):
        with trio.fail_after(SECONDS):
            await source.board().wait_acked(LAST, level=SYNCED)


@pytest.mark.usefixtures("has_pump", "slow_background")
async def test_a_sink_that_comes_again_says_what_it_has_synced(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with live_source(path) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await in_thread(waits(source.board(), LAST, SYNCED))
    async with live_source(path) as source:
        board = source.board()
        async with live_sink(tmp_path / "copy", source.port):
            await eventually(lambda: board.marks_at(SYNCED) == {2: LAST})


@pytest.mark.usefixtures("has_pump")
async def test_what_a_program_has_taken_is_told(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with live_source(path) as source:
        board = source.board()
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await in_thread(waits(board, LAST, APPENDED))
            assert board.marks_at(APPLIED) == {}
            sink.applied(LAST - 1)
            await in_thread(waits(board, LAST - 1, APPLIED))
            assert board.marks_at(APPLIED) == {2: LAST - 1}
            sink.applied(LAST + 100)  # no more is told than was acknowledged
            await in_thread(waits(board, LAST, APPLIED))
            assert board.marks_at(APPLIED) == {2: LAST}
            with pytest.raises(ValueError, match="'other' came"):
                sink.applied(LAST, "other")


@pytest.mark.usefixtures("has_pump")
async def test_what_sinks_have_said_is_kept_over_a_restart(tmp_path: Path) -> None:
    """To be looked at; a wait counts what is said in this run."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 3})
    async with live_source(path) as source:
        async with live_sink(copy, source.port) as sink:
            await in_thread(waits(source.board(), LAST, APPENDED))
            sink.applied(LAST - 1)
            await in_thread(waits(source.board(), LAST, SYNCED))
            await in_thread(waits(source.board(), LAST - 1, APPLIED))
            await eventually(lambda: kept(source) == (LAST, LAST, LAST - 1))
    async with live_source(path) as source:
        assert kept(source) == (LAST, LAST, LAST - 1)
        assert source.board().marks_at(SYNCED) == {}
        source.queues["q"].marks[2].lower_to(LAST - 2)
        assert kept(source) == (LAST - 2, LAST - 2, LAST - 2)
    keys = keys_of(path)
    assert (keys["cqrepl.2.syn"], keys["cqrepl.2.apl"]) == (LAST - 2, LAST - 2)


def kept(source: Source) -> tuple[int, int, int]:
    marks = source.queues["q"].marks[2]
    return marks.acknowledged, marks.synced, marks.applied


@pytest.mark.usefixtures("has_pump")
async def test_it_is_told_without_anything_that_waits_or_flows(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with joined(path, tmp_path / "copy"):
        await eventually(lambda: keys_of(path).get("cqrepl.2.syn") == LAST)


async def test_java_sees_on_both_sides_what_is_on_the_disk(tmp_path: Path) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 3})
    async with joined(path, copy):
        await eventually(lambda: java_synced(path) == java_synced(copy) == LAST)
        (index, _), *_ = more_excerpts(path, 3, 1)
        await eventually(lambda: java_synced(path) == java_synced(copy) == index)
    quarantine(copy, LAST)
    assert java_synced(copy) == LAST - 1, "lowered with what is cut"


def java_synced(path: Path) -> int | None:
    table = path / FILE_NAME
    return keys_of(path).get(SYNCED_KEY.lower()) if table.exists() else None


class CountingDisk(Surroundings):
    """Names of the files that were synced."""

    synced: ClassVar[list[str]] = []

    def sync(self, descriptor: int) -> None:
        self.synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        super().sync(descriptor)


@pytest.mark.usefixtures("slow_background")
async def test_a_group_costs_two_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the store file and of the mark: not of the table store, though marks there rise too."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 3})
    policies = {"q": AckPolicy(level=SYNCED)}

    def work(board: AckBoard) -> None:
        with Queue.open_for_append(path) as queue:
            for number in range(20):
                index = queue.append(b"%d" % number, now_ms=NOON_MS)
                board.wait(index, 1, SECONDS, level=SYNCED)

    async with live_source(path, policies=policies) as source:
        async with live_sink(copy, source.port):
            await in_thread(waits(source.board(), LAST, SYNCED))
            await eventually(lambda: load_synced(path) is not None)  # the source's own first sync
            CountingDisk.synced.clear()
            monkeypatch.setattr(syncedfiles, "surroundings", CountingDisk)
            monkeypatch.setattr(syncedmark, "surroundings", CountingDisk)
            await in_thread(partial(work, source.board()))
            found = list(CountingDisk.synced)
            await eventually(lambda: keys_of(copy)[ACKNOWLEDGED_KEY.lower()] == LAST + 20)
    store, mark = noon_path(copy).name, syncedmark.SYNCED_FILE_NAME
    assert set(found) == {store, mark}
    assert found[::2] == [store] * (len(found) // 2)
    assert found[1::2] == [mark] * (len(found) // 2)
    assert 1 <= len(found) // 2 <= 20


@pytest.mark.usefixtures("has_pump")
async def test_what_the_disk_does_not_take_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with live_source(path) as source:
        board = source.board()
        monkeypatch.setattr(syncedfiles, "surroundings", FailingDisk)
        async with live_sink(tmp_path / "copy", source.port):
            await in_thread(waits(board, LAST, APPENDED))
            with pytest.raises(TimeoutError):
                await in_thread(partial(board.wait, LAST, 1, 2, level=SYNCED))
            assert board.marks_at(SYNCED) == {}


@pytest.mark.usefixtures("has_pump")
async def test_nor_by_the_next_process_before_the_machine_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its syncs succeed: the system has told of the failure, and takes the pages for written. What
    is behind the mark is compared each time."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 3})
    async with live_source(path) as source:
        board = source.board()
        async with live_sink(copy, source.port):
            await in_thread(waits(board, LAST, SYNCED))
        more_excerpts(path, 3, 4)
        with monkeypatch.context() as failing:
            failing.setattr(syncedfiles, "surroundings", FailingDisk)
            async with live_sink(copy, source.port):
                await in_thread(waits(board, LAST + 4, APPENDED))
                await eventually(lambda: "Input/output error" in caplog.text)
        async with live_sink(copy, source.port) as sink:
            await eventually(lambda: sink.queues["q"].received_excerpts == 4)
            more_excerpts(path, 7, 1)
            await in_thread(waits(board, LAST + 5, APPENDED))
            await eventually(lambda: sink.queues["q"].disk.unproved_from is None)
            assert "a sync failed since the machine was started" in caplog.text
        assert board.marks_at(SYNCED) == {2: LAST}
        monkeypatch.setattr(syncedmark, "this_boot", lambda: bytes(16))
        async with live_sink(copy, source.port) as sink:
            await in_thread(waits(board, LAST + 5, SYNCED))
            assert sink.queues["q"].received_excerpts == 5


async def test_a_sink_that_can_no_longer_sync_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    async with joined(path, tmp_path / "copy") as (source, sink):
        queue = source.queues["q"]
        await eventually(lambda: queue.board.marks_at(SYNCED) == {2: LAST})

        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, "the disk errs")

        monkeypatch.setattr(sink.queues["q"].disk._files, "sync", fail)
        [(index, _)] = more_excerpts(path, 3, 1)
        await eventually(lambda: SYNCED in queue.kept_back()[2])
        policy = AckPolicy(level=SYNCED, timeout_seconds=0, on_timeout=OnTimeout.FAIL)
        with pytest.raises(AckUnknown, match=r"host 2 keeps synced back: .* the disk errs"):
            await queue.leading.wait_acked(index, policy)
        appended = AckPolicy(timeout_seconds=0, on_timeout=OnTimeout.FAIL)
        with pytest.raises(AckUnknown) as other:
            await queue.leading.wait_acked(index + 1, appended)
        assert not other.value.hindrances, "it says nothing of another level"
    assert caplog.text.count("host 2 keeps synced back: ") == 1


async def test_the_status_of_both_hosts_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    hindrance = OSError(errno.ENOSPC, "no room for the mark")
    streams = HostSettings.of(listen=LOOPBACK, sources={"q": tmp_path / "q"}, **BEATS)
    async with Host(streams) as one:
        takes = HostSettings.of(connect=at(one.port), sinks={"q": tmp_path / "copy"}, **BEATS)
        async with Host(takes) as other:
            here, there = one.source.queues["q"], other.sink.queues["q"]
            here.board.want(APPLIED)
            await eventually(lambda: here.board.marks_at(SYNCED) == {2: LAST})
            monkeypatch.setattr(there.disk._files, "sync", lambda *_, **__: hindrance)
            more_excerpts(tmp_path / "q", 3, 1)
            await eventually(lambda: here.kept_back()[2].keys() == {SYNCED, APPLIED})
            here.unproved.why = there.unproved.why = "what is from there on is unproved"
            said = "\n".join(page(snapshot_of(one)))
            own = "\n".join(page(snapshot_of(other)))
    for level, why in (("synced", "no room for the mark"), ("applied", "no program there")):
        assert re.search(f"^queue q: host 2 keeps {level} back: .*{why}", said, re.M)
        assert re.search(f"^queue q: {level} is kept back here: .*{why}", own, re.M)
    assert "queue q: here what is from there on is unproved" in said


async def test_a_disk_that_is_well_again_keeps_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    async with joined(path, tmp_path / "copy") as (source, sink):
        queue = source.queues["q"]
        await eventually(lambda: queue.board.marks_at(SYNCED) == {2: LAST})
        with monkeypatch.context() as full:
            hindrance = OSError(errno.ENOSPC, "no room for the mark")
            full.setattr(sink.queues["q"].disk._files, "sync", lambda *_, **__: hindrance)
            more_excerpts(path, 3, 1)
            await eventually(lambda: "no room for the mark" in str(queue.kept_back()[2]))
        await eventually(lambda: not queue.kept_back()[2])
        assert queue.board.marks_at(SYNCED)[2] > LAST


async def test_a_wait_for_applied_hears_that_no_program_takes_anything(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with joined(path, tmp_path / "copy") as (source, sink):
        queue = source.queues["q"]
        queue.board.want(APPLIED)
        await eventually(lambda: APPLIED in queue.kept_back().get(2, {}))
        policy = AckPolicy(level=APPLIED, timeout_seconds=0, on_timeout=OnTimeout.FAIL)
        with pytest.raises(AckUnknown, match="no program there has taken anything"):
            await queue.leading.wait_acked(LAST, policy)
        sink.applied(LAST)
        await eventually(lambda: not queue.kept_back()[2])


@pytest.mark.parametrize("mark", [None, LAST])
async def test_what_was_here_and_never_synced_is_synced_though_nothing_comes(
    tmp_path: Path, mark: Index | None
) -> None:
    """As the host that led before leaves it when it is killed, and comes back as a copy."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 3})
    async with joined(path, copy) as (source, _):
        await eventually(lambda: source.board().marks_at(SYNCED) == {2: LAST})
    (copy / SYNCED_FILE_NAME).unlink()
    if mark is not None:
        store_synced(copy, mark)
    async with joined(path, copy) as (source, _):
        await eventually(lambda: source.board().marks_at(SYNCED) == {2: LAST})
