import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import QueueError, QueueLocked, locks
from cqrepl.queue.locks import UNLOCKED, WordLock, is_alive
from cqrepl.queue.tablestore import TableStore
from tests.unit.queue import processes
from tests.unit.queue.samples import layout

KEY = "chronicle.write.lock"
ALIVE = 1  # the first process


@pytest.fixture
def table(tmp_path: Path) -> Iterator[TableStore]:
    table = TableStore.create(tmp_path / "metadata.cq4t", layout())
    yield table
    table.close()


def _reaped() -> int:
    """An id that no process has any more."""
    pid = processes.start(lambda: None)
    processes.finish(pid)
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
