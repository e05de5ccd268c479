"""Locks, pens and commits when their holder dies, its process id is used again, or it forks."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.kernel.pen import Refusal, pen_type
from cqrepl.queue import Durability, Queue, QueueLocked
from cqrepl.queue.files import locks, mapping, procmaps
from cqrepl.queue.files.locks import UNLOCKED, WordLock, is_alive
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.tablestore import TableStore
from tests.support import forks
from tests.support.kernels import kernel_named
from tests.support.samples import NOON_MS, layout, read

KEY = "chronicle.write.lock"
START_KEY = "cqrepl.write.lock.start"
ALIVE = 1  # the first process


@pytest.fixture
def table(tmp_path: Path) -> Iterator[TableStore]:
    table = TableStore.create(tmp_path / "metadata.cq4t", layout())
    yield table
    table.close()


def test_a_process_that_was_waited_for_is_dead(table: TableStore) -> None:
    pid = forks.start(lambda: None)
    forks.finish(pid)
    assert not is_alive(pid)
    table.value(KEY, UNLOCKED).store(pid)
    with WordLock(table, KEY).held(0.0):
        assert not WordLock(table, KEY).try_acquire()


# ---------------------------------------------------------------- a process id used again


def _sleeper(path: Path | None) -> tuple[int, int]:
    """A process that maps a table store or not, and the descriptor that ends it."""
    ready, done = os.pipe(), os.pipe()

    def work() -> None:
        os.close(done[1])
        program = (
            "import mmap, os, sys\n"
            "f = sys.argv[1] and open(sys.argv[1], 'r+b')\n"
            "m = f and mmap.mmap(f.fileno(), 4096)\n"
            f"os.write({ready[1]}, b'!'); os.read({done[0]}, 1)\n"
        )
        for descriptor in (ready[1], done[0]):
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, [sys.executable, "-c", program, str(path or "")])

    pid = forks.start(work)
    os.read(ready[0], 1)
    for descriptor in (*ready, done[0]):
        os.close(descriptor)
    return pid, done[1]


def _end(sleeper: tuple[int, int]) -> None:
    pid, end = sleeper
    os.close(end)
    assert forks.finish(pid) == 0


def _note(table: TableStore, pid: int, start: int | None) -> None:
    """Leaves the lock as a process of this id and start time does when it is killed."""
    table.value(KEY, UNLOCKED).store(pid)
    table.value(START_KEY, 0).store(locks._pack(pid, start))


def test_a_lock_of_a_process_id_that_is_used_again_is_taken_over(table: TableStore) -> None:
    sleeper = _sleeper(None)
    pid, _ = sleeper
    start = locks.start_of(pid)
    assert start is not None
    lock = WordLock(table, KEY)
    for kept in (start, None):  # the very process; and nothing is known
        _note(table, pid, kept)
        assert not lock.try_acquire()
        assert lock.holder() == pid
    _note(table, pid, start - 1)
    lock.acquire()
    assert lock.holder() == os.getpid()
    lock.release()
    # the note is about another process: the holder is one that knows nothing of notes
    _note(table, pid, start)
    table.value(START_KEY, 0).store(locks._pack(pid + 1, start - 1))
    assert not lock.try_acquire()
    _end(sleeper)
    lock.acquire()
    lock.release()


def test_a_process_that_uses_the_table_store_is_never_robbed(table: TableStore) -> None:
    """Java may have taken the lock, on top of what a killed process of the same id left."""
    sleeper = _sleeper(table.path)
    pid, _ = sleeper
    start = locks.start_of(pid)
    assert start is not None
    lock = WordLock(table, KEY)
    _note(table, pid, start - 1)
    assert not lock.try_acquire()
    assert lock.holder() == pid
    _end(sleeper)
    lock.acquire()
    lock.release()


def test_a_process_whose_files_cannot_be_seen_is_never_robbed(
    table: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = locks.start_of(ALIVE)
    assert start is not None
    _note(table, ALIVE, start + 1)
    lock = WordLock(table, KEY)
    with monkeypatch.context() as patch:
        patch.setattr(procmaps, "_PROC", tmp_path)
        assert not lock.try_acquire()
    with monkeypatch.context() as patch:
        patch.setattr(locks, "_PROC", tmp_path)
        assert not lock.try_acquire()
    assert lock.holder() == ALIVE


# ---------------------------------------------------------------- forks


def test_a_forked_child_holds_none_of_its_parents_locks(table: TableStore) -> None:
    lock, other = WordLock(table, KEY), WordLock(table, "chronicle.append.lock")
    with lock.held(0.0):

        def work() -> None:
            assert not lock.is_held
            assert not lock.try_acquire()
            with pytest.raises(QueueLocked) as locked:
                lock.acquire(0.001)
            assert locked.value.holder == os.getppid()
            other.acquire()
            assert other.holder() == os.getpid()
            start = table.value("cqrepl.append.lock.start", 0).load()
            assert start == locks._pack(os.getpid(), locks.start_of(os.getpid()))
            other.release()

        assert forks.run(work) == 0
        assert lock.is_held
        assert lock.holder() == os.getpid()


def test_a_child_forked_with_the_lock_held_does_not_give_it_back(table: TableStore) -> None:
    lock = WordLock(table, KEY)
    parent, pid = os.getpid(), -1
    try:
        with lock.held(0.0):
            pid = os.fork()
            if pid:
                assert forks.finish(pid) == 0
                assert lock.holder() == parent
    finally:
        if pid == 0:  # the child has left the block too
            os._exit(0 if lock.holder() == parent else 1)
    assert lock.holder() is None


def test_mutexes_that_other_threads_hold_are_free_in_a_child(table: TableStore) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with mapping.RECORD_LOCK_GUARD, WordLock(table, KEY).held(1.0):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)

    def work() -> None:
        again = TableStore(table.path, writable=True)
        again.value("another.key", 0)
        assert not WordLock(again, KEY).try_acquire()

    try:
        assert forks.run(work) == 0
    finally:
        leave.set()
        thread.join()


def test_a_forked_child_does_not_use_its_parents_pen(tmp_path: Path) -> None:
    kernel_named("native")
    if pen_type() is None:
        pytest.skip("CQREPL_KERNEL asks for the plain kernel")
    path = tmp_path / "queue"
    with Queue.open_for_append(path, create=layout("TEST2_DAILY")) as queue:
        appender = queue.appender()
        appender.append_one(b"first", NOON_MS)
        pen = appender._pen
        assert pen is not None

        def child() -> None:
            assert pen.append_one(b"child", NOON_MS) == -Refusal.CONTENDED
            appender.append_one(b"child", NOON_MS)
            assert appender._pen is not None
            assert appender._pen.append_one(b"child", NOON_MS) > 0

        assert forks.run(child) == 0
        assert pen.append_one(b"parent", NOON_MS) > 0
    assert [data for _, data in read(path)] == [b"first", b"child", b"child", b"parent"]


def test_a_forked_child_does_not_wait_for_its_parents_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forks while a thread is in the middle of a sync, and leads the commits of the queue."""
    path = tmp_path / "queue"
    reached, opened = threading.Event(), threading.Event()
    sync = Mapping.sync

    def gated(mapping: Mapping, start: int, end: int) -> None:
        reached.set()
        assert opened.wait(60)
        sync(mapping, start, end)

    with Queue.open(path, create=layout(), durability=Durability.SYNCED) as queue:
        queue.append(b"a", now_ms=NOON_MS)
        appender = queue.appender()
        monkeypatch.setattr(Mapping, "sync", gated)
        thread = threading.Thread(target=queue.append, args=(b"b",), kwargs={"now_ms": NOON_MS})
        thread.start()
        assert reached.wait(60)
        commits = queue._commits
        assert commits is not None

        def work() -> None:
            opened.set()
            assert not commits._is_led
            assert not queue._for_writing().write_lock.is_held

        pid = forks.start(work)
        opened.set()
        thread.join()
        assert forks.finish(pid) == 0
        appender.append([b"c"], NOON_MS)
    assert [data for _, data in read(path)] == [b"a", b"b", b"c"]
