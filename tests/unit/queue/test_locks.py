import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import QueueError, QueueLocked
from cqrepl.queue.files import locks, mapping
from cqrepl.queue.files.locks import UNLOCKED, WordLock, is_alive
from cqrepl.queue.files.tablestore import TableStore
from tests.support import forks
from tests.support.samples import layout

KEY = "chronicle.write.lock"
ALIVE = 1  # the first process


@pytest.fixture
def table(tmp_path: Path) -> Iterator[TableStore]:
    table = TableStore.create(tmp_path / "metadata.cq4t", layout())
    yield table
    table.close()


def _reaped() -> int:
    """An id that no process has any more."""
    pid = forks.start(lambda: None)
    forks.finish(pid)
    return pid


def test_taking_and_giving_back(table: TableStore) -> None:
    lock = WordLock(table, KEY)
    assert lock.holder() is None
    lock.acquire()
    assert lock.is_held
    assert lock.holder() == os.getpid()
    lock.release()
    assert lock.holder() is None
    assert table.value(KEY, 0).load() == UNLOCKED


def test_two_locks_of_one_process_exclude_each_other(table: TableStore) -> None:
    one, other = WordLock(table, KEY), WordLock(table, KEY)
    with one.held(0.0):
        assert not other.try_acquire()
        with pytest.raises(QueueLocked) as locked:
            other.acquire(0.001)
        assert locked.value.holder == os.getpid()
    assert other.try_acquire()
    other.release()


@pytest.mark.parametrize("thread_id", [0, 0x1234])
def test_a_dead_holder_is_taken_over_at_once(table: TableStore, thread_id: int) -> None:
    table.value(KEY, UNLOCKED).store((thread_id << 32) + _reaped())
    lock = WordLock(table, KEY)
    lock.acquire()
    lock.release()


def test_our_own_id_left_by_an_earlier_process_is_taken_over(table: TableStore) -> None:
    table.value(KEY, UNLOCKED).store(os.getpid())
    lock = WordLock(table, KEY)
    lock.acquire()
    assert not WordLock(table, KEY).try_acquire()
    lock.release()


def test_a_living_holder_is_never_robbed(table: TableStore) -> None:
    table.value(KEY, UNLOCKED).store(ALIVE)
    lock = WordLock(table, KEY)
    for timeout_s in (0.0, 0.002):
        with pytest.raises(QueueLocked, match=f"process {ALIVE} holds it"):
            lock.acquire(timeout_s)
    assert lock.holder() == ALIVE


def test_a_lock_that_was_taken_away_is_noticed(table: TableStore) -> None:
    lock = WordLock(table, KEY)
    lock.acquire()
    table.value(KEY, UNLOCKED).store(UNLOCKED)
    with pytest.raises(QueueError, match="to be held by process"):
        lock.release()
    lock.acquire()
    lock.release()


def test_a_lock_that_changes_hands_meanwhile_is_tried_again(
    table: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes free between our look at it and our exchange."""
    lock = WordLock(table, KEY)
    value = table.value(KEY, UNLOCKED)
    value.store(_reaped())
    real = locks.is_alive

    def freed_meanwhile(pid: int) -> bool:
        value.store(UNLOCKED)
        return real(pid)

    monkeypatch.setattr(locks, "is_alive", freed_meanwhile)
    lock.acquire()
    lock.release()


def test_which_processes_are_alive() -> None:
    assert is_alive(os.getpid())
    assert is_alive(ALIVE)
    assert not is_alive(_reaped())
    assert not is_alive(0)
    assert not is_alive(999_999_999)
    assert not is_alive(0xFFFFFFFF)


def test_another_users_process_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert is_alive(ALIVE)


def test_without_process_files_a_process_that_answers_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    assert is_alive(os.getpid())
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "stat").write_bytes(b"")
    assert is_alive(os.getpid())


# ---------------------------------------------------------------- a process id used again

START_KEY = "cqrepl.write.lock.start"


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


def test_who_holds_the_lock_is_noted_beside_it(table: TableStore) -> None:
    lock = WordLock(table, KEY)
    noted = table.value(START_KEY, -1)
    assert noted.load() == 0
    start = locks.start_of(os.getpid())
    assert start is not None
    with lock.held(0.0):
        assert noted.load() == locks._pack(os.getpid(), start)
        assert noted.load() >> 41 == os.getpid()
    assert noted.load() == 0


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
        patch.setattr(mapping, "_PROC", tmp_path)
        assert not lock.try_acquire()
    with monkeypatch.context() as patch:
        patch.setattr(locks, "_PROC", tmp_path)
        assert not lock.try_acquire()
    assert lock.holder() == ALIVE


def test_an_open_file_that_is_not_mapped_counts_for_nothing(table: TableStore) -> None:
    store = mapping.Mapping(table.path, writable=True)
    assert store.may_be_mapped_by(os.getpid())
    store.close()
    assert store.may_be_mapped_by(os.getpid())  # closed: it cannot be compared


def test_what_does_not_fit_beside_the_lock_is_not_noted() -> None:
    assert locks._pack(5, None) == 0
    assert locks._pack(1 << 22, 5) == 0
    assert locks._pack(5, 1 << 41) == 0
    assert 0 < locks._pack((1 << 22) - 1, (1 << 41) - 1) < 1 << 63


def test_without_process_files_no_start_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    assert locks.start_of(os.getpid()) is None


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
