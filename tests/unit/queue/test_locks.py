import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import QueueError, QueueLocked
from cqrepl.queue.files import locks, mapping
from cqrepl.queue.files.locks import UNLOCKED, WordLock, is_alive
from cqrepl.queue.files.tablestore import TableStore, TableValue
from cqrepl.surroundings import Surroundings, within
from tests.support.samples import layout

KEY = "chronicle.write.lock"
ALIVE = 1  # the first process
DEAD = 999_999_999  # more than any process has


@pytest.fixture
def table(tmp_path: Path) -> Iterator[TableStore]:
    table = TableStore.create(tmp_path / "metadata.cq4t", layout())
    yield table
    table.close()


def test_taking_and_giving_back(table: TableStore) -> None:
    lock = WordLock(table, KEY)
    assert lock.holder() is None
    lock.acquire()
    assert lock.is_held
    assert lock.holder() == os.getpid()
    lock.release()
    assert lock.holder() is None
    assert table.value(KEY, 0).load() == UNLOCKED


def test_a_lock_that_this_object_holds_for_sure(table: TableStore) -> None:
    lock, other = WordLock(table, KEY), WordLock(table, KEY)
    assert not lock.is_sure
    lock.acquire()
    assert (lock.is_sure, other.is_sure) == (True, False)
    table.value(KEY, UNLOCKED).store(ALIVE)  # as by force
    assert lock.is_held
    assert not lock.is_sure
    table.value(KEY, UNLOCKED).store(os.getpid())
    lock.release()
    assert not lock.is_sure
    table.value(KEY, UNLOCKED).store(os.getpid())  # as an earlier process of this id leaves it
    assert not lock.is_sure


class StandsStill(Surroundings):
    """A machine that stands still for an hour with each pause; the holder then gives back a lock
    the third time that it runs."""

    def __init__(self, held: TableValue) -> None:
        self.pauses = 0
        self.monotonic = lambda: self.pauses * 3600.0
        self._held = held

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        if self.pauses == 3:
            self._held.store(UNLOCKED)


def test_time_in_which_the_machine_stood_still_is_not_waited(table: TableStore) -> None:
    word = table.value(KEY, UNLOCKED)
    word.store(ALIVE)
    machine = StandsStill(word)
    with within(machine):
        lock = WordLock(table, KEY)
        with pytest.raises(QueueLocked):
            lock.acquire(0.9)  # two looks
        assert machine.pauses == 2
        with lock.held(5.0):
            assert machine.pauses == 3


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
    table.value(KEY, UNLOCKED).store((thread_id << 32) + DEAD)
    lock = WordLock(table, KEY)
    lock.acquire()
    lock.release()


def test_our_own_id_left_by_an_earlier_process_is_taken_over(table: TableStore) -> None:
    table.value(KEY, UNLOCKED).store(os.getpid())
    lock = WordLock(table, KEY)
    lock.acquire()
    assert not WordLock(table, KEY).try_acquire()
    lock.release()


def test_t23_a_living_holder_is_never_robbed(table: TableStore) -> None:
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
    value.store(DEAD)
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
    assert not is_alive(0)
    assert not is_alive(DEAD)
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
