"""The state of a task board: what its records have made of tasks and workers. It knows no clock.

Theory of operation. The host that leads writes records; each host applies them in their order, so
all have the same state. Nothing here asks for the time: it is a field of each record, and never
goes back. A record decides nothing by having been written: the host that wrote it could not know
what stood before it. So each is held against the state as it is applied, and what does not fit has
no effect, and a reason: a result from a worker that has lost the task, say.

    waiting -- assign --> running -- finish --> done        removed `keep` later
       ^                     |  |
       +--- fail, lost ------+  +-- the last attempt, or its deadline is over --> failed

A task's id is the index of the record that has submitted it. A key stands for one task as long as
the board knows of it. A worker has at most `slots` tasks; one that comes again names those that it
has, and the others go back.
"""

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import BinaryIO, Final

from cqrepl.broker.fields import TaskWords, Value, decode

BACKOFF_MAX_MS: Final = 15 * 60_000
_LENGTH: Final = struct.Struct("<I")


class Status(Enum):
    """The ways in which a task can stand."""

    WAITING = "waiting"  # for a worker, or for its next attempt
    RUNNING = "running"  # a worker has it
    DONE = "done"  # with a result
    FAILED = "failed"  # for good, with a reason


OVER: Final = (Status.DONE, Status.FAILED)


@dataclass(slots=True)
class Task:
    """One task.

    Args:
        attempt: the number of the last attempt; 0 before the first.
        attempts: as many at most.
        deadline: from then on it fails, in ms since 1970; 0 for never.
        due: not before then is it assigned.
        worker: that has it, or had it last.
    """

    task: int
    type: str
    payload: bytes
    key: str
    attempts: int
    backoff: int
    deadline: int
    submitted: int
    status: Status = Status.WAITING
    attempt: int = 0
    due: int = 0
    worker: str = ""
    result: bytes = b""
    why: str = ""
    ended: int = 0

    def values(self, *, with_data: bool = True) -> dict[str, Value]:
        """All of it, as a record has it."""
        found: dict[str, Value] = {
            "task": self.task,
            "type": self.type,
            "key": self.key,
            "attempts": self.attempts,
            "backoff": self.backoff,
            "deadline": self.deadline,
            "submitted": self.submitted,
            "status": self.status.value,
            "attempt": self.attempt,
            "due": self.due,
            "worker": self.worker,
            "why": self.why,
            "ended": self.ended,
        }
        return found | {"payload": self.payload, "result": self.result} if with_data else found

    @classmethod
    def of(cls, said: TaskWords) -> "Task":
        """The task that `values` has written."""
        return cls(
            task=said.number("task"),
            type=said.text("type"),
            payload=said.data("payload"),
            key=said.text("key"),
            attempts=said.number("attempts"),
            backoff=said.number("backoff"),
            deadline=said.number("deadline"),
            submitted=said.number("submitted"),
            status=Status(said.text("status")),
            attempt=said.number("attempt"),
            due=said.number("due"),
            worker=said.text("worker"),
            result=said.data("result"),
            why=said.text("why"),
            ended=said.number("ended"),
        )


@dataclass(slots=True)
class Worker:
    """One worker.

    Args:
        seen: the time of the last record that it has caused.
        running: the tasks that it has.
    """

    worker: str
    types: tuple[str, ...]
    slots: int
    seen: int
    running: set[int] = field(default_factory=set)

    def values(self) -> dict[str, Value]:
        """All of it but its tasks, as a record has it."""
        return {
            "worker": self.worker,
            "types": " ".join(self.types),
            "slots": self.slots,
            "seen": self.seen,
        }


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one record.

    Args:
        task: it was about this one; 0 for none.
        refused: why it had none; empty where it had.
    """

    task: int = 0
    refused: str = ""


class TaskTable:
    """The state machine. One thread at a time.

    Attributes:
        now: the greatest time of a record, in ms since 1970.
        epoch, leader: of the last host that has begun to lead.
    """

    def __init__(self) -> None:
        self._clear()
        self._moves: Final[Mapping[str, Callable[[TaskWords, int], Effect]]] = {
            "opened": self._open,
            "submit": self._submit,
            "join": self._join,
            "assign": self._assign,
            "finish": self._finish,
            "fail": self._fail,
            "lost": self._lose,
            "tick": self._tick,
        }

    def _clear(self) -> None:
        self.now = self.epoch = self.leader = 0
        self.tasks: dict[int, Task] = {}
        self.workers: dict[str, Worker] = {}
        self.keys: dict[str, int] = {}
        self._ready: dict[str, list[tuple[int, int]]] = {}  # by type: due, task; some are stale
        self._ends: list[tuple[int, int]] = []  # ended, task
        self._deadlines: list[tuple[int, int]] = []

    def apply(self, index: int, said: TaskWords) -> Effect:
        """Takes one record; what it did."""
        self.now = max(self.now, said.number("now"))
        move = self._moves.get(said.name)
        return Effect() if move is None else move(said, index)  # of a later version, or a question

    def ready(self, types: Iterable[str], now: int, passed: Set[int], count: int) -> list[Task]:
        """The tasks of these types that may be assigned at a time, the first ones that are due; at
        most so many.

        Args:
            passed: tasks that are about to be assigned.
        """
        found: dict[int, Task] = {}
        for each in types:
            heap, looked_at = self._ready.get(each, []), set()
            while heap and heap[0][0] <= now and len(found) < count:
                due, number = heapq.heappop(heap)
                task = self.tasks.get(number)
                if task is not None and task.status is Status.WAITING and task.due == due:
                    looked_at.add((due, number))
                    if number not in passed:
                        found[number] = task
            for entry in looked_at:
                heapq.heappush(heap, entry)
        return list(found.values())

    def next_due(self, now: int) -> int | None:
        """The time at which a task that waits for its next attempt is due next; None where none
        does."""
        heaps = (heap[0][0] for heap in self._ready.values() if heap)
        return min((due for due in heaps if due > now), default=None)

    def has_due(self, now: int, keep: int) -> bool:
        """True when a `tick` would change anything."""
        self._drop_stale()
        is_late = bool(self._deadlines) and self._deadlines[0][0] <= now
        return is_late or (bool(self._ends) and self._ends[0][0] + keep <= now)

    def _drop_stale(self) -> None:
        while self._deadlines:
            task = self.tasks.get(self._deadlines[0][1])
            if task is not None and task.status not in OVER:
                break
            heapq.heappop(self._deadlines)

    def _open(self, said: TaskWords, index: int) -> Effect:
        self.epoch, self.leader = said.number("epoch"), said.number("leader")
        return Effect()

    def _submit(self, said: TaskWords, index: int) -> Effect:
        key = said.text("key")
        if key in self.keys:
            return Effect(self.keys[key])
        task = Task(
            task=index,
            type=said.text("type"),
            payload=said.data("payload"),
            key=key,
            attempts=said.number("attempts"),
            backoff=said.number("backoff"),
            deadline=said.number("deadline"),
            submitted=self.now,
        )
        if key:
            self.keys[key] = index
        self._take_in(task)
        return Effect(index)

    def _take_in(self, task: Task) -> None:
        self.tasks[task.task] = task
        if task.status is Status.WAITING:
            self._wait(task)
        if task.deadline and task.status not in OVER:
            heapq.heappush(self._deadlines, (task.deadline, task.task))
        if task.status in OVER:
            heapq.heappush(self._ends, (task.ended, task.task))

    def _wait(self, task: Task) -> None:
        task.status = Status.WAITING
        heapq.heappush(self._ready.setdefault(task.type, []), (task.due, task.task))

    def _join(self, said: TaskWords, index: int) -> Effect:
        name = said.text("worker")
        types = tuple(said.text("types").split())
        worker = self.workers.get(name)
        if worker is None:
            worker = self.workers[name] = Worker(name, types, said.number("slots"), self.now)
        worker.types, worker.slots, worker.seen = types, said.number("slots"), self.now
        holds = set(said.text("holds").split())
        for task in sorted(worker.running):
            if f"{task}:{self.tasks[task].attempt}" not in holds:
                self._go_back(self.tasks[task], "its worker came again without it", 0)
        return Effect()

    def _assign(self, said: TaskWords, index: int) -> Effect:
        task, worker = self.tasks.get(said.number("task")), self.workers.get(said.text("worker"))
        if task is None or task.status is not Status.WAITING:
            return Effect(said.number("task"), "expected a task that waits, it does not")
        if worker is None or len(worker.running) >= worker.slots:
            return Effect(task.task, "expected a worker with a free slot, there is none")
        task.status, task.worker, task.attempt = Status.RUNNING, worker.worker, task.attempt + 1
        worker.running.add(task.task)
        worker.seen = self.now
        return Effect(task.task)

    def _held(self, said: TaskWords) -> Task | Effect:
        """The task that a worker has in this attempt; else why it has not."""
        number, name, attempt = said.number("task"), said.text("worker"), said.number("attempt")
        task = self.tasks.get(number)
        if task is None:
            return Effect(number, f"expected a task of this board, got {number}")
        if (task.worker, task.attempt) != (name, attempt):
            has = f"worker {task.worker!r} has it in attempt {task.attempt}"
            return Effect(number, f"worker {name!r} has lost it, attempt {attempt}: {has}")
        if task.status is not Status.RUNNING:
            return Effect(number, f"worker {name!r} has lost it: it is {task.status.value}")
        return task

    def _finish(self, said: TaskWords, index: int) -> Effect:
        task = self._held(said)
        if isinstance(task, Effect):
            is_again = self._is_done_so(said)
            return Effect(task.task) if is_again else task
        task.result = said.data("result")
        self._end(task, Status.DONE, "")
        return Effect(task.task)

    def _is_done_so(self, said: TaskWords) -> bool:
        """True where a worker tells once more what it has finished: it may not have been told."""
        task = self.tasks.get(said.number("task"))
        if task is None or task.status is not Status.DONE:
            return False
        return (task.worker, task.attempt) == (said.text("worker"), said.number("attempt"))

    def _fail(self, said: TaskWords, index: int) -> Effect:
        task = self._held(said)
        if isinstance(task, Effect):
            return task
        pause = min(task.backoff << min(task.attempt - 1, 32), BACKOFF_MAX_MS)
        self._go_back(task, said.text("why"), pause)
        return Effect(task.task)

    def _go_back(self, task: Task, why: str, pause: int) -> None:
        """The worker of a task has it no more, and did not finish it."""
        if task.attempt >= task.attempts:
            self._end(task, Status.FAILED, why)
            return
        self._leave(task)
        task.why, task.due = why, self.now + pause
        self._wait(task)

    def _leave(self, task: Task) -> None:
        worker = self.workers.get(task.worker)
        if worker is not None:
            worker.running.discard(task.task)
            worker.seen = self.now

    def _end(self, task: Task, status: Status, why: str) -> None:
        if task.status is Status.RUNNING:
            self._leave(task)
        task.status, task.why, task.ended = status, why, self.now
        heapq.heappush(self._ends, (task.ended, task.task))

    def _lose(self, said: TaskWords, index: int) -> Effect:
        worker = self.workers.get(said.text("worker"))
        if worker is None:
            return Effect()
        for task in sorted(worker.running):
            self._go_back(self.tasks[task], said.text("why"), 0)
        del self.workers[worker.worker]
        return Effect()

    def _tick(self, said: TaskWords, index: int) -> Effect:
        """Deadlines that are over, and tasks that were over for so long, by the record's time."""
        self._drop_stale()
        while self._deadlines and self._deadlines[0][0] <= self.now:
            task = self.tasks[heapq.heappop(self._deadlines)[1]]
            self._end(task, Status.FAILED, "its deadline is over")
            self._drop_stale()
        while self._ends and self._ends[0][0] + said.number("keep") <= self.now:
            gone = self.tasks.pop(heapq.heappop(self._ends)[1])
            if self.keys.get(gone.key) == gone.task:
                del self.keys[gone.key]
        return Effect()

    def snapshot(self, out: BinaryIO) -> None:
        """Writes every task and every worker."""
        head: dict[str, Value] = {"now": self.now, "epoch": self.epoch, "leader": self.leader}
        _write(out, TaskWords("board", head))
        for worker in sorted(self.workers.values(), key=lambda each: each.worker):
            _write(out, TaskWords("worker", worker.values()))
        for number in sorted(self.tasks):
            _write(out, TaskWords("task", self.tasks[number].values()))

    def restore(self, source: BinaryIO) -> None:
        """Takes what a snapshot has written; nothing for an empty one."""
        self._clear()
        for said in _read(source):
            if said.name == "board":
                self.now = said.number("now")
                self.epoch, self.leader = said.number("epoch"), said.number("leader")
            elif said.name == "worker":
                name, types = said.text("worker"), tuple(said.text("types").split())
                worker = Worker(name, types, said.number("slots"), said.number("seen"))
                self.workers[name] = worker
            elif said.name == "task":
                task = Task.of(said)
                self._take_in(task)
                if task.key:
                    self.keys[task.key] = task.task
                if task.status is Status.RUNNING:
                    self.workers[task.worker].running.add(task.task)


def _write(out: BinaryIO, said: TaskWords) -> None:
    data = said.encoded()
    out.write(_LENGTH.pack(len(data)))
    out.write(data)


def _read(source: BinaryIO) -> Iterator[TaskWords]:
    while head := source.read(_LENGTH.size):
        yield decode(source.read(_LENGTH.unpack(head)[0]))
