"""Excerpts that a live pump stores are synced without the event loop, where a wait asks for it."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest

from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.queue import NotAQueue, Queue
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.syncedmark import NOTHING_DOUBTFUL, load_synced, store_synced
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.disk import syncedfiles
from cqrepl.replicator.disk.storedthread import StoredThread
from cqrepl.replicator.disk.syncedfiles import SyncedFiles
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.incoming.copylevels import BeyondAppended, _sync_stored
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.queues import TakingSession
from tests.net.live_pumps import (
    CID,
    LONG_MS,
    OTHER_CID,
    WAIT_S,
    Ends,
    Running,
    frames_of,
    sink_lane,
)
from tests.support.disks import FailingDisk, SlowDisk
from tests.support.samples import fill, noon_index, noon_path

needs_pump = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pump")
Sync = Callable[[Index], bool]


class Stored:
    """A running pump with two copies that are waited for, and a thread that syncs them as told."""

    def __init__(self, path: Path, ends: Ends, first: Sync, second: Sync) -> None:
        self.later = SimpleQueue[str]()
        self.thread = StoredThread(lambda call: call())
        self.copies, lanes, self._frames = [], [], []
        fill(path / "q", "FAST_DAILY", {0: 4})
        with Queue.open(path / "q") as queue:
            self.indexes = [excerpt.index for excerpt in queue.tailer()]
            batch = queue.tailer().next_batch(count_max=1)
            assert batch is not None
            for name, cid, sync in (("first", CID, first), ("second", OTHER_CID, second)):
                copy = Queue.open(path / name, create=queue.layout)
                appender = copy.appender()
                appender.append_at(batch)
                lane = sink_lane(appender, cid=cid)
                self.thread.watch(copy, lane, sync, partial(self.later.put, name))
                self.copies.append(copy)
                lanes.append(lane)
                self._frames.append(frames_of(queue, cid))
        self._ends = ends
        self._pump = Running(lambda: ends.receive(*lanes, slice_ms=LONG_MS))

    def store(self, copy: int, nth: int) -> int:
        """Has the pump store an excerpt, from the second on; its index, once it is acknowledged."""
        self._ends.far.sendall(self._frames[copy][nth])
        assert self._ends.far.recv(1 << 16)
        return self.indexes[nth]

    def end(self) -> None:
        self.thread.end()
        self._ends.control.interrupt()
        self._pump.ended()
        for each in self.copies:
            each.close()


@contextmanager
def stored(path: Path, first: Sync, second: Sync) -> Iterator[Stored]:
    with Ends.connected() as ends:
        one = Stored(path, ends, first, second)
        try:
            yield one
        finally:
            one.end()


def never(_: Index) -> bool:
    raise AssertionError("nothing of it is waited for")


@needs_pump
def test_the_pump_has_it_synced(tmp_path: Path) -> None:
    synced = SimpleQueue[int]()

    def sync(index: Index) -> bool:
        synced.put(index)
        return index != one.indexes[2]  # that one is for the event loop

    with stored(tmp_path, sync, never) as one:
        for nth in (1, 2, 3):
            index = one.store(0, nth)
            assert synced.get(timeout=WAIT_S) == index
        assert one.later.get(timeout=WAIT_S) == "first"
        assert one.later.empty()


@needs_pump
def test_a_queue_that_is_closed_is_left_alone(tmp_path: Path) -> None:
    synced = SimpleQueue[int]()

    def sync(index: Index) -> bool:
        synced.put(index)
        return True

    with stored(tmp_path, never, sync) as one:
        one.thread.forget(one.copies[0])
        one.store(0, 1)
        index = one.store(1, 1)
        assert synced.get(timeout=WAIT_S) == index
        assert one.later.empty()


@needs_pump
def test_an_error_is_left_to_the_event_loop_and_another_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, told = SimpleQueue[int](), SimpleQueue[type[BaseException]]()
    monkeypatch.setattr(threading, "excepthook", lambda each: told.put(each.exc_type))

    def sync(index: Index) -> bool:
        assert index != one.indexes[1], "say, as its queue was just closed"
        synced.put(index)
        return True

    with stored(tmp_path, sync, never) as one:
        one.store(0, 1)
        assert one.later.get(timeout=WAIT_S) == "first"
        index = one.store(0, 2)
        assert synced.get(timeout=WAIT_S) == index
        assert told.get(timeout=WAIT_S) is AssertionError


def given_up(path: Path, disk: SlowDisk) -> tuple[SyncedFiles, Index]:
    """Files that are given up while a thread waits for this disk, and then goes on to its end; and
    the end of their queue."""
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open(path) as queue:
        files, end = SyncedFiles(queue, None, Index(0)), queue.next_index()
        sync = partial(files.sync, end, NOTHING_DOUBTFUL, is_at_once=True)
        thread = threading.Thread(target=sync)
        thread.start()
        assert disk.begun.wait(WAIT_S)
        files.give_up()
    disk.goes_on.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    return files, end


def test_no_mark_tells_of_a_queue_that_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does who gives it up wait for the disk."""
    disk = SlowDisk()
    monkeypatch.setattr(syncedfiles, "surroundings", lambda: disk)
    files, _ = given_up(tmp_path, disk)
    assert str(noon_path(tmp_path)) not in open_files()
    assert load_synced(tmp_path) is None
    assert files.end == 0


@pytest.mark.parametrize("boot", [None, bytes(16)], ids=["this start", "an earlier start"])
def test_a_mark_beyond_the_end_is_lowered_before_anything_comes(
    tmp_path: Path, boot: bytes | None
) -> None:
    """Excerpts that come in the place of lost ones are not on the disk because those were."""
    fill(tmp_path, "FAST_DAILY", {0: 3, 1: 3})
    with Queue.open(tmp_path) as queue:
        store_synced(tmp_path, queue.next_index(), boot=boot)
    noon_path(tmp_path, ahead=1).unlink()
    before = load_synced(tmp_path)
    with Queue.open(tmp_path) as queue:
        end = queue.next_index()
        files = SyncedFiles(queue, before, end)
        assert files.end == end
        assert files.lacks(Index(end + 1), NOTHING_DOUBTFUL)
        after = load_synced(tmp_path)
    assert before is not None
    assert after is not None
    assert (after.end, after.boot, after.doubtful) == (end, before.boot, NOTHING_DOUBTFUL)


def open_files() -> set[str]:
    """The paths of the files that this process has open."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            found.add(os.readlink(each))
    return found


def test_the_file_that_was_synced_last_stays_open(tmp_path: Path) -> None:
    """Until it is given up, or descriptors are few: then the next sync opens it anew."""
    fill(tmp_path, "FAST_DAILY", {0: 3, 1: 3})
    with Queue.open(tmp_path) as queue:
        files, end = SyncedFiles(queue, None, Index(0)), queue.next_index()
        first, second = str(noon_path(tmp_path)), str(noon_path(tmp_path, ahead=1))
        for upto, is_kept in ((noon_index(sequence=2), first), (Index(end - 1), second)):
            files.sync(upto, NOTHING_DOUBTFUL, is_at_once=True)
            assert {first, second} & open_files() == {is_kept}
        files.keep_none_open()
        assert not {first, second} & open_files()
        files.sync(end, NOTHING_DOUBTFUL, is_at_once=True)
        assert second in open_files()
        files.give_up()
        assert second not in open_files()
        assert files.end == end


def test_after_a_sync_that_failed_no_mark_rises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "FAST_DAILY", {0: 3})
    disk = FailingDisk(failures=1)  # the system has dropped what that was of
    monkeypatch.setattr(syncedfiles, "surroundings", lambda: disk)
    with Queue.open(tmp_path) as queue:
        files, end = SyncedFiles(queue, None, Index(0)), queue.next_index()
        with pytest.raises(OSError, match="Input/output"):
            files.sync(end, NOTHING_DOUBTFUL, is_at_once=True)
        assert files.has_failed
        assert files.sync(end, NOTHING_DOUBTFUL, is_at_once=True) is None
    mark = load_synced(tmp_path)
    assert mark is not None
    assert (mark.end, mark.is_of_this_boot, mark.has_failed) == (0, False, True)


def test_files_that_cannot_be_listed_are_no_failed_sync(tmp_path: Path) -> None:
    """The next process may go on, once that is mended."""
    fill(tmp_path, "FAST_DAILY", {0: 3})
    strange = tmp_path / "strange.cq4"
    with Queue.open(tmp_path) as queue:
        strange.touch()
        files = SyncedFiles(queue, None, Index(0))
        with pytest.raises(NotAQueue, match=r"found strange\.cq4"):
            files.sync(noon_index(sequence=3), NOTHING_DOUBTFUL, is_at_once=True)
        strange.unlink()
        files = SyncedFiles(queue, load_synced(tmp_path), queue.next_index())
        assert files.sync(queue.next_index(), NOTHING_DOUBTFUL, is_at_once=True) is None
        assert files.end == noon_index(sequence=3)


def test_a_sync_that_failed_is_told_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of it once: what is behind the mark is compared as after a power cut."""
    fill(tmp_path, "FAST_DAILY", {0: 3})
    with Queue.open(tmp_path) as queue:
        end = queue.next_index()
        store_synced(tmp_path, end - 1)
        with monkeypatch.context() as failing:
            failing.setattr(syncedfiles, "surroundings", FailingDisk)
            files = SyncedFiles(queue, load_synced(tmp_path), end)
            with pytest.raises(OSError, match="Input/output"):
                files.sync(end, NOTHING_DOUBTFUL, is_at_once=True)
        mark = load_synced(tmp_path)
        assert mark is not None
        assert mark.doubtful_before(end) == range(end - 1, end)
        files = SyncedFiles(queue, mark, end)
        assert files.sync(end, range(end - 1, end), is_at_once=True) is None
        assert load_synced(tmp_path) == mark, "what the system dropped is not there by that"
        monkeypatch.setattr(syncedmark, "this_boot", lambda: bytes(16))
        files = SyncedFiles(queue, mark, end)
        assert files.sync(end, range(end - 1, end), is_at_once=True) is None
        mark = load_synced(tmp_path)
        assert mark is not None
        assert (mark.end, mark.is_of_this_boot, mark.has_failed) == (end, True, False)
        assert mark.doubtful == range(end - 1, end), "until a copy is compared"


def test_what_is_stored_in_a_removed_file_is_told_to_no_source(tmp_path: Path) -> None:
    fill(tmp_path, "FAST_DAILY", {0: 3})
    told = list[Index]()

    class Owner:
        def say_level(self, name: str, level: AckLevel, index: Index) -> bool:
            told.append(index)
            return True

    queue = SinkQueue("q", tmp_path, by_name("FAST_DAILY"), 0, None, Syncer())
    queue.lock()
    owner = queue.owner = cast(TakingSession, Owner())
    index = Index(queue.next_index - 1)
    assert _sync_stored(queue, queue.disk, owner, index)
    assert told == [index]
    (tmp_path / FILE_NAME).rename(tmp_path / "moved")
    assert not _sync_stored(queue, queue.disk, owner, index)
    assert told == [index]
    queue.rest()


def test_how_far_a_program_has_taken_a_queue_never_goes_back() -> None:
    beyond = BeyondAppended()
    assert [beyond.apply(index) for index in (5, 3, 5, 6)] == [True, False, False, True]
    assert beyond.applied == 6
    beyond.apply(1)
    assert beyond.applied == 6
