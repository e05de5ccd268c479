"""Levels that sinks tell beyond the acknowledgement: on their disks, and taken by programs."""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy, From, OnTimeout
from cqrepl.protocol.sink import SinkHandler
from cqrepl.queue import NotAQueue, Queue, QueueDamaged
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.chroniclemarks import SYNCED_KEY
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced, store_synced
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.index import Index
from cqrepl.queue.quarantine import quarantine
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk import storedthread, syncedfiles, syncer
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.leadership import AckUnknown
from cqrepl.replicator.marks.ackboard import AckBoard
from cqrepl.replicator.outgoing import commitwatch
from cqrepl.replicator.safereader import SafeReader
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.disks import FailingDisk, SlowDisk
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    at,
    eventually,
    in_thread,
    joined,
    live_sink,
    live_source,
    more_excerpts,
)
from tests.support.samples import fill, noon_index
from tests.support.tables import keys_of

APPENDED, SYNCED, APPLIED = AckLevel
LAST = noon_index(sequence=2)


@pytest.fixture
def slow_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Excerpts that no wait asks for are synced only after hours."""
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 10_000)
    monkeypatch.setattr(syncedfiles, "TABLE_SECONDS", 10_000)


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
            with pytest.raises(ValueError, match="got 'other'"):
                sink.applied(LAST, "other")


async def test_what_a_program_takes_while_the_stream_begins_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is to come: the sink says what is true once its stream is on, or never."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 3})
    async with joined(path, copy) as (source, _):
        await in_thread(waits(source.board(), LAST, APPENDED))
    end = SinkHandler.end_back_copy
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:

        def taken(self: SinkHandler) -> None:
            sink.applied(LAST)
            end(self)

        monkeypatch.setattr(SinkHandler, "end_back_copy", taken)
        dialled: dict[str, Any] = {"connect": at(sink.port)} | BEATS
        async with serve_source({"q": path}, **dialled) as source:
            await eventually(lambda: source.board().marks_at(APPLIED) == {2: LAST})


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
    """And no more once its disk is well again."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    async with joined(path, tmp_path / "copy") as (source, sink):
        queue = source.queues["q"]
        await eventually(lambda: queue.board.marks_at(SYNCED) == {2: LAST})
        with monkeypatch.context() as full:
            hindrance = OSError(errno.ENOSPC, "no room for the mark")
            full.setattr(sink.queues["q"].disk._files, "sync", lambda *_, **__: hindrance)
            [(index, _)] = more_excerpts(path, 3, 1)
            await eventually(lambda: SYNCED in queue.kept_back()[2])
            policy = AckPolicy(level=SYNCED, timeout_seconds=0, on_timeout=OnTimeout.FAIL)
            with pytest.raises(AckUnknown, match=r"host 2 keeps synced back: .* no room for the"):
                await queue.leading.wait_acked(index, policy)
            appended = AckPolicy(timeout_seconds=0, on_timeout=OnTimeout.FAIL)
            with pytest.raises(AckUnknown) as other:
                await queue.leading.wait_acked(index + 1, appended)
            assert not other.value.hindrances, "it says nothing of another level"
        await eventually(lambda: not queue.kept_back()[2])
        assert queue.board.marks_at(SYNCED)[2] > LAST
    assert caplog.text.count("host 2 keeps synced back: ") == 1


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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    return tmp_path / "q"


def acknowledged(path: Path) -> int:
    """The acknowledged mark of a queue, which Java's readers go by; -2 while there is no queue."""
    try:
        with Queue.open(path) as queue:
            return queue.acknowledged_index
    except NotAQueue:
        return -2  # it is not there yet


def is_acknowledged(path: Path, index: int) -> bool:
    return acknowledged(path) == index


def read(path: Path, start: int = 0) -> list[int]:
    """The indexes that a reader sees, who sees only what is safe."""
    found: list[int] = []
    with Queue.open(path) as queue, SafeReader(queue, start) as reader:
        while (batch := reader.next_batch()) is not None:
            found += [index for index, _ in batch]
    return found


@pytest.mark.usefixtures("has_pump")
async def test_a_sink_is_told_up_to_where_its_queue_is_safe(path: Path) -> None:
    copy = path.with_name("copy")
    async with joined(path, copy) as (source, sink):
        await source.wait_acked(LAST)
        await eventually(lambda: sink.queues["q"].beyond.committed == LAST, SECONDS)
        await eventually(lambda: acknowledged(copy) == LAST)
        more = more_excerpts(path, 3, 20)
        await eventually(lambda: acknowledged(copy) == more[-1][0], SECONDS)
    assert acknowledged(copy) == more[-1][0], "it is kept"
    assert read(copy)[-1] == more[-1][0]


@pytest.mark.skipif(not live.AVAILABLE, reason="with the plain kernel the next look tells")
@pytest.mark.usefixtures("has_pump")
async def test_what_is_safe_is_told_as_it_moves_whenever_the_next_look_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one look at all queues, when the source begins, and no other one."""
    monkeypatch.setattr(commitwatch, "COMMIT_PAUSE_SECONDS", 10_000)
    policy = AckPolicy(from_=From.ALL, hosts=frozenset({2, 3}))
    one, two = path.with_name("one"), path.with_name("two")
    async with (
        serve_source([path], listen=LOOPBACK, policies={"q": policy}, **BEATS) as source,
        live_sink(one, source.port, host_id=2),
    ):
        await source.board().wait_acked(LAST, hosts=[2])
        async with live_sink(two, source.port, host_id=3):
            for sequence in (3, 4, 5, 25):
                last = more_excerpts(path, sequence, 20 if sequence == 5 else 1)[-1][0]
                for copy in (one, two):
                    await eventually(partial(is_acknowledged, copy, last), SECONDS)
                assert acknowledged(path) == last, "Java's readers see the same here"
                assert read(one)[-1] == read(two)[-1] == last


@pytest.mark.usefixtures("has_pump")
async def test_no_more_is_called_safe_than_the_policy_does(path: Path) -> None:
    """Two sinks have to have it: what one has is stored there, and no reader sees it."""
    policy = AckPolicy(from_=From.ALL, hosts=frozenset({2, 3}))
    one, two = path.with_name("one"), path.with_name("two")
    async with serve_source([path], listen=LOOPBACK, policies={"q": policy}, **BEATS) as source:
        async with live_sink(one, source.port, host_id=2):
            await source.board().wait_acked(LAST, hosts=[2])
            await trio.sleep(0.3)
            assert acknowledged(one) == acknowledged(path) == -1
            assert read(one) == read(path) == []
            async with live_sink(two, source.port, host_id=3):
                await eventually(lambda: acknowledged(one) == acknowledged(two) == LAST, SECONDS)
                await eventually(lambda: acknowledged(path) == LAST, SECONDS)
                for copy in (one, two, path):
                    assert read(copy) == [LAST - 2, LAST - 1, LAST]
                    assert read(copy, LAST) == [LAST]
            more = more_excerpts(path, 3, 20)
            await source.board().wait_acked(more[-1][0], hosts=[2])
            await trio.sleep(0.3)
            assert read(one) == read(path) == [LAST - 2, LAST - 1, LAST]


def test_a_reader_goes_by_what_it_is_given(path: Path) -> None:
    safe = -1
    with Queue.open(path) as queue, SafeReader(queue, safe=lambda: safe) as reader:
        assert reader.next_batch() is None
        for safe in range(LAST - 2, LAST + 1):
            batch = reader.next_batch()
            assert batch is not None
            assert [index for index, _ in batch] == [safe]
            assert reader.next_batch() is None


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    """The syncs of the queue "slow" end when the disk goes on."""
    disk = SlowDisk("/slow/", is_slow=False)
    monkeypatch.setattr(syncedfiles, "surroundings", lambda: disk)
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    yield disk
    disk.is_slow = False
    disk.goes_on.set()


@pytest.mark.usefixtures("has_pump")
async def test_it_holds_up_no_other(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of all that a thread of ours syncs, the event loop has the next
    monkeypatch.setattr(storedthread, "SLOW_SECONDS", -1.0)
    names = ("slow", "waited", "other")
    queues, copies = ({name: tmp_path / side / name for name in names} for side in ("q", "c"))
    for path in queues.values():
        fill(path, "FAST_DAILY", {0: 3})
    async with serve_source(queues, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):

            async def synced(name: str, sequence: int) -> None:
                index = noon_index(sequence=sequence)
                wait = partial(
                    source.board(name).wait, index, 1, SECONDS / 3, level=AckLevel.SYNCED
                )
                await trio.to_thread.run_sync(wait)

            for nth in (3, 4):
                for name in ("slow", "waited"):
                    more_excerpts(queues[name], nth, 1)
                    await synced(name, nth)
            disk.is_slow = True
            more_excerpts(queues["slow"], 5, 1)
            await eventually(disk.begun.is_set)
            more_excerpts(queues["slow"], 6, 1)
            for nth in range(5, 10):
                more_excerpts(queues["waited"], nth, 1)
                await synced("waited", nth)
                more_excerpts(queues["other"], nth - 2, 1)
                await eventually(partial(is_marked, copies["other"], nth - 2))
            mark = load_synced(copies["slow"])
            assert mark is not None
            assert mark.end == noon_index(sequence=5), "it still is"
            disk.goes_on.set()
            await synced("slow", 6)


def is_marked(path: Path, sequence: int) -> bool:
    mark = load_synced(path)
    return mark is not None and mark.end > noon_index(sequence=sequence)


async def test_one_that_is_closed_meanwhile_is_not_tried_for_ever(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """A thread that was at work has the event loop told only then that there is more to sync."""
    fill(tmp_path / "slow", "FAST_DAILY", {0: 3})
    watch = Syncer()
    with Queue.open(tmp_path / "slow") as queue:
        end = watch.watch(
            "slow", queue, queue.next_index, Chains(queue.cycles), fail, queue.check_name,
            is_proved=True,
        )  # fmt: skip
        async with watch.running():
            disk.is_slow = True
            end.sync_at_once()
            end.note()
            await eventually(disk.begun.is_set)
            watch.forget(queue)
            end.note()
            disk.is_slow = False
            disk.goes_on.set()
            with trio.fail_after(SECONDS):
                await wait_all_tasks_blocked()
            assert not end.is_dirty


def fail(error: QueueDamaged) -> None:
    raise error
