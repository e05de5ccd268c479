"""A board does with tasks and workers what its records say, at the times that they say."""

import io

import pytest

from cqrepl.broker.fields import TaskWords, Value, decode
from cqrepl.broker.taskboard import BACKOFF_MAX_MS, Effect, Status, TaskTable
from wire import WireError


class Log:
    """A board, and the records that it was given."""

    def __init__(self) -> None:
        self.board = TaskTable()
        self.index = 100

    def write(self, name: str, now: int = 0, **values: Value) -> Effect:
        self.index += 1
        said = TaskWords(name, {"now": now} | values)
        return self.board.apply(self.index, decode(said.encoded()))

    def submit(self, now: int = 0, **more: Value) -> int:
        values: dict[str, Value] = {"type": "mail", "attempts": 3}
        return self.write("submit", now, **(values | more)).task

    def join(self, worker: str = "w1", now: int = 0, holds: str = "", slots: int = 1) -> None:
        self.write("join", now, worker=worker, types="mail", slots=slots, holds=holds)

    def assign(self, task: int, worker: str = "w1", now: int = 0) -> Effect:
        return self.write("assign", now, task=task, worker=worker)

    def status(self, task: int) -> Status:
        return self.board.tasks[task].status


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_task_is_its_record_and_a_key_is_one_task(log: Log) -> None:
    task = log.submit(key="k", payload=b"first")
    assert task == log.index
    assert log.submit(key="k", payload=b"second") == task
    assert log.board.tasks[task].payload == b"first"
    assert log.submit() != log.submit()


def test_a_worker_finishes_what_it_has(log: Log) -> None:
    task = log.submit()
    log.join()
    assert not log.assign(task).refused
    assert log.board.workers["w1"].running == {task}
    done = log.write("finish", 5, task=task, worker="w1", attempt=1, result=b"r")
    assert done == Effect(task)
    assert (log.status(task), log.board.tasks[task].result) == (Status.DONE, b"r")
    assert log.board.workers["w1"].running == set()
    again = log.write("finish", 6, task=task, worker="w1", attempt=1, result=b"other")
    assert again == Effect(task)
    assert log.board.tasks[task].result == b"r"


@pytest.mark.parametrize("name", ["finish", "fail"])
def test_nothing_is_taken_from_a_worker_that_has_lost_the_task(log: Log, name: str) -> None:
    task = log.submit(attempts=5)
    log.join()
    log.join("w2")
    log.assign(task)
    log.write("lost", 10, worker="w1", why="silent")
    late = log.write(name, 11, task=task, worker="w1", attempt=1)
    assert late.refused == "worker 'w1' has lost it: it is waiting"
    log.assign(task, "w2")
    late = log.write(name, 12, task=task, worker="w1", attempt=1)
    assert "has lost it, attempt 1: worker 'w2' has it in attempt 2" in late.refused
    log.write("lost", 13, worker="w2", why="silent")
    log.join("w1", 14)
    log.assign(task, "w1", 14)
    late = log.write(name, 15, task=task, worker="w1", attempt=1)
    assert "attempt 1: worker 'w1' has it in attempt 3" in late.refused
    assert log.status(task) is Status.RUNNING
    assert log.write(name, 16, task=7, worker="w1", attempt=1).refused.startswith("expected a task")


def test_a_task_is_assigned_to_a_worker_with_a_free_slot_only(log: Log) -> None:
    first, second = log.submit(), log.submit()
    assert "worker with a free slot" in log.assign(first).refused
    log.join()
    assert not log.assign(first).refused
    assert "worker with a free slot" in log.assign(second).refused
    assert "expected a task that waits" in log.assign(first).refused
    assert "expected a task that waits" in log.assign(12345).refused


def test_an_attempt_that_failed_is_followed_by_a_later_one(log: Log) -> None:
    task = log.submit(attempts=3, backoff=1000)
    log.join()
    for attempt, due in ((1, 2000), (2, 4000)):
        log.assign(task, now=1000)
        log.write("fail", 1000 * attempt, task=task, worker="w1", attempt=attempt, why="no")
        assert log.status(task) is Status.WAITING
        assert log.board.tasks[task].due == due
        assert not log.board.ready(["mail"], due - 1, set(), 9)
        assert log.board.next_due(due - 1) == due
        assert [each.task for each in log.board.ready(["mail"], due, set(), 9)] == [task]
    log.assign(task, now=4000)
    log.write("fail", 4000, task=task, worker="w1", attempt=3, why="never")
    assert (log.status(task), log.board.tasks[task].why) == (Status.FAILED, "never")


def test_a_pause_between_attempts_has_a_limit(log: Log) -> None:
    task = log.submit(attempts=1000, backoff=60_000)
    log.join()
    for attempt in range(1, 100):
        log.assign(task)
        log.write("fail", 0, task=task, worker="w1", attempt=attempt)
    assert log.board.tasks[task].due == BACKOFF_MAX_MS


def test_a_worker_that_comes_again_keeps_what_it_names(log: Log) -> None:
    kept, lost = log.submit(), log.submit()
    log.join(slots=2)
    log.assign(kept)
    log.assign(lost)
    log.join(holds=f"{kept}:1 {lost}:7 99:1", slots=2)
    assert (log.status(kept), log.status(lost)) == (Status.RUNNING, Status.WAITING)
    assert log.board.workers["w1"].running == {kept}


def test_a_deadline_ends_a_task_wherever_it_is(log: Log) -> None:
    waiting, running = log.submit(deadline=50), log.submit(deadline=60)
    log.join()
    log.assign(running)
    assert not log.board.has_due(49, keep=1000)
    assert log.board.has_due(50, keep=1000)
    log.write("tick", 50, keep=1000)
    assert (log.status(waiting), log.status(running)) == (Status.FAILED, Status.RUNNING)
    log.write("tick", 60, keep=1000)
    assert log.status(running) is Status.FAILED
    assert log.board.workers["w1"].running == set()
    assert log.board.tasks[running].why == "its deadline is over"


def test_tasks_that_are_over_and_their_keys_go_after_a_time(log: Log) -> None:
    task = log.submit(key="k")
    log.join()
    log.assign(task)
    log.write("finish", 100, task=task, worker="w1", attempt=1)
    assert not log.board.has_due(1099, keep=1000)
    log.write("tick", 1099, keep=1000)
    assert task in log.board.tasks
    assert log.board.has_due(1100, keep=1000)
    log.write("tick", 1100, keep=1000)
    assert task not in log.board.tasks
    assert log.submit(key="k") != task


def test_the_time_of_a_board_never_goes_back(log: Log) -> None:
    log.submit(now=500)
    task = log.submit(now=100)
    assert log.board.tasks[task].submitted == 500


def test_records_of_a_later_version_change_nothing_but_the_time(log: Log) -> None:
    assert log.write("dance", 7) == Effect()
    assert log.board.now == 7
    data = TaskWords("submit", {"type": "t"}).encoded()
    assert decode(data) == TaskWords("submit", {"type": "t"})
    with pytest.raises(WireError):
        decode(b"\xff\xff")
    with pytest.raises(WireError, match="expected a word of a service, got none"):
        decode(b"")


def test_an_empty_snapshot_is_the_state_of_nothing(log: Log) -> None:
    log.submit(key="k")
    log.board.restore(io.BytesIO())
    assert (log.board.tasks, log.board.keys, log.board.now) == ({}, {}, 0)
