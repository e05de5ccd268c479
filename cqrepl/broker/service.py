"""A task board on one group: follows on each host, and serves its clients on the one that leads.

Theory of operation. The state (`taskboard`) is made by the records of the group's log, on each
host, by a feed. The host that leads serves once its state has all that was there when it came to
lead, and its own first record is safe: so nothing is said before that a later leader would not
know. All that a client asks becomes a record, also what it only wants to see: the answer goes out
when the record is as safe as the group's policy wants it and was applied here, and says what it has
met there. So a host that leads no longer, and does not know it, answers nothing.

What is asked goes to a deque, and from there to the log in batches; each batch is waited for in a
task of its own, so the next ones are under way meanwhile. That a worker is there is no record: the
leader hears of it, and a new leader gives each worker a lease from when it came to lead.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Final

import trio

from cqrepl.broker.fields import DATA_MAX, TEXT_MAX, TaskWords, Value, decode
from cqrepl.broker.taskboard import Effect, Status, Task, TaskTable
from cqrepl.broker.taskkind import ASKS_MAX, TaskHalf
from cqrepl.net.threads import in_thread
from cqrepl.queue import ExcerptBatch
from cqrepl.queue.format.logpos import LogPos
from cqrepl.replicator.leadership import AckOutcome, Leading
from cqrepl.service.ledservice import AT_ONCE, LedService
from cqrepl.surroundings import surroundings

LOOK_SECONDS: Final = 0.25
REST_SECONDS: Final = 1.0  # to the next look for tasks, where nothing comes
BATCH_RECORDS: Final = 512
BATCH_BYTES: Final = 4 << 20
ROWS_MAX: Final = 1000  # of one answer
WORKERS_MAX: Final = 10_000
SLOTS_MAX: Final = 1000
_READS: Final = ("show", "list", "workers")
_OF_WORKERS: Final = ("finish", "fail", "leave")
# the fields of a request that go into its record; all others are the board's to write
_RECORDED: Final[Mapping[str, tuple[str, ...]]] = {
    "submit": ("type", "payload", "key", "attempts", "backoff", "deadline"),
    "join": ("worker", "types", "slots", "holds"),
    "finish": ("task", "attempt", "result"),
    "fail": ("task", "attempt", "why"),
}
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSettings:
    """The settings of one board.

    Args:
        group: the queue that is its log.
        lease_seconds: a worker that is not heard of for so long has lost its tasks.
        attempts: of a task whose submitter does not say.
        backoff_ms: from the first attempt that failed to the second; doubled each time.
        keep_ms: so long is a task kept that is over, and its key.
        tasks_max: no more are taken.
    """

    group: str
    lease_seconds: float = 30.0
    attempts: int = 3
    backoff_ms: int = 1000
    keep_ms: int = 24 * 3_600_000
    tasks_max: int = 1_000_000

    def __str__(self) -> str:
        """The settings in the words of a file, for people."""
        return (
            f"{{group: {self.group}, workerLease: {self.lease_seconds:g}s, attempts:"
            f" {self.attempts}, backoff: {self.backoff_ms}ms, keepFinished: {self.keep_ms}ms,"
            f" maxTasks: {self.tasks_max}}}"
        )


@dataclass(slots=True, eq=False)
class _Pending:
    """A record on its way, and what is done then.

    Args:
        asked: what the client asked.
        effect: None until it was applied.
        rows: the answer to a question, as of the record.
    """

    said: TaskWords
    asked: TaskWords
    half: TaskHalf | None
    effect: Effect | None = None
    rows: list[TaskWords] = field(default_factory=list)


class BoardService:
    """One board on one host; it is a `GroupService`.

    Args:
        addresses: of hosts, where clients reach them, by their ids.

    Attributes:
        led: what it has in common with other services.
        heard: when each worker was last heard of, by the clock of trio.
    """

    sort = "board"
    waits_for_first = True

    def __init__(
        self, name: str, settings: BoardSettings, addresses: Callable[[], dict[int, str]] = dict
    ) -> None:
        self.name = name
        self.settings = settings
        self.group = settings.group
        self.board = TaskTable()
        self.led = LedService(self, addresses)
        self._guard = threading.Lock()  # of the board, and of what is on its way
        # another leader's records are not taken for answers
        self._asks = int.from_bytes(surroundings().random_bytes(3)) << 32
        self._pending: dict[int, _Pending] = {}
        self._to_append: deque[_Pending] = deque()
        self._news = trio.Event()
        self._halves: set[TaskHalf] = set()
        self._workers: dict[str, TaskHalf] = {}
        self.heard: dict[str, float] = {}  # by trio's clock
        self._assigning: dict[int, str] = {}  # the worker of each task that is about to be assigned
        self._is_ticking = False

    # ---- the state, in the feed's thread ------------------------------------------------------

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        """Takes records."""
        for index, data in batch:
            said = decode(data)
            with self._guard:  # for one record: the event loop waits for it
                effect = self.board.apply(index, said)
                pending = self._pending.get(said.number("ask"))
            if pending is not None and pending.said.name == said.name:
                pending.effect = effect
                if said.name == "read":  # only this thread changes the board
                    pending.rows = self._rows(pending.asked)

    def snapshot(self, out: BinaryIO) -> None:
        """Writes the state."""
        self.board.snapshot(out)

    def restore(self, source: BinaryIO, at: LogPos) -> None:
        """Takes another state."""
        with self._guard:
            self.board.restore(source)

    def _rows(self, asked: TaskWords) -> list[TaskWords]:
        if asked.name == "workers":
            workers = sorted(self.board.workers.values(), key=lambda each: each.worker)
            return [_worker_row(each.values(), len(each.running)) for each in workers[:ROWS_MAX]]
        if asked.name == "show":
            task = self.board.tasks.get(asked.number("task"))
            return [] if task is None else [TaskWords("task", task.values())]
        count = min(asked.number("count") or ROWS_MAX, ROWS_MAX)
        wanted, kind = asked.text("status"), asked.text("type")
        rows: list[TaskWords] = []
        for task in reversed(self.board.tasks.values()):  # they are in order, also of a snapshot
            if wanted in ("", task.status.value) and kind in ("", task.type):
                rows.append(TaskWords("task", task.values(with_data=False)))
                if len(rows) == count:
                    break
        return rows

    # ---- the host -----------------------------------------------------------------------------

    def fields(self) -> dict[str, object]:
        """The fields of the board in the status of its host."""
        fault = self.led.fault
        with self._guard:
            return {
                "board": self.name,
                "serves": self.led.is_serving,
                "tasks": len(self.board.tasks),
                "workers": len(self.board.workers),
                "fault": None if fault is None else str(fault),
            }

    def opened(self, epoch: int, leader: int) -> bytes:
        """The first record of a host that begins to lead."""
        return self._record("opened", {"epoch": epoch, "leader": leader}).encoded()

    async def serve(self, leading: Leading) -> None:
        """Serves clients, until this host leads no longer."""
        now = trio.current_time()
        with self._guard:
            self.heard = dict.fromkeys(self.board.workers, now)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._append, leading, nursery)
            nursery.start_soon(self._dispatch)
            await self._look(leading)
            nursery.cancel_scope.cancel()

    def stop_serving(self) -> None:
        """Requests that wait for an answer are not known to be safe."""
        with self._guard:
            pending, self._pending = list(self._pending.values()), {}
        for each in pending:
            self._answer(each.half, each.asked, "unknown", why="the host leads no longer")
        for half in list(self._halves):
            self._refuse(half, TaskWords("refused"))
            half.visitor = ""
        self._to_append.clear()
        self._workers.clear()
        self.heard.clear()
        self._assigning.clear()
        self._is_ticking = False

    async def _look(self, leading: Leading) -> None:
        """Has what time brings about written, until this host leads no longer."""
        before = trio.current_time()
        while leading.goes_on and self.led.feed.fault is None:
            await trio.sleep(LOOK_SECONDS)
            now = trio.current_time()
            gap, before = now - before, now
            if gap > self.settings.lease_seconds / 2:  # this host stood still, not its workers
                self.heard = {worker: at + gap for worker, at in self.heard.items()}
            for worker, at in list(self.heard.items()):
                if now >= at + self.settings.lease_seconds:
                    self._lose(worker)
            with self._guard:
                is_due = self.board.has_due(self._now(), self.settings.keep_ms)
            if is_due and not self._is_ticking:
                self._is_ticking = True
                self._write(TaskWords("tick", {"keep": self.settings.keep_ms}))

    def _lose(self, worker: str) -> None:
        del self.heard[worker]
        why = "its worker was not heard of for a lease"
        self._write(TaskWords("lost", {"worker": worker, "why": why}))
        half = self._workers.pop(worker, None)
        if half is not None:  # it may come again
            half.visitor = ""
            half.end(why)

    # ---- from records to the log, and back ------------------------------------------------------

    def _now(self) -> int:
        """The time of the board, which never goes back. The guard is held."""
        return max(surroundings().wall_ms(), self.board.now)

    def _record(self, name: str, values: dict[str, Value]) -> TaskWords:
        return TaskWords(name, {"now": surroundings().wall_ms()} | values)

    def _write(
        self,
        asked: TaskWords,
        half: TaskHalf | None = None,
        values: Mapping[str, Value] | None = None,
        name: str = "",
    ) -> None:
        """Has a record written, of what was asked.

        Args:
            values: of the record; None: those that were asked.
            name: of the record; empty: that of what was asked.
        """
        self._asks += 1
        own = dict(asked.values if values is None else values) | {"ask": self._asks}
        said = self._record(name or asked.name, own)
        pending = _Pending(said, asked, half)
        with self._guard:
            self._pending[self._asks] = pending
        self._to_append.append(pending)
        self._news.set()

    async def _append(self, leading: Leading, nursery: trio.Nursery) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._to_append:
                taken: list[_Pending] = []
                records: list[bytes] = []
                size = 0
                while self._to_append and len(taken) < BATCH_RECORDS and size < BATCH_BYTES:
                    taken.append(self._to_append.popleft())
                    records.append(taken[-1].said.encoded())
                    size += len(records[-1])
                append = partial(leading.append, records, policy=AT_ONCE)
                index = await in_thread(append)
                self.led.feed.wake()
                nursery.start_soon(self._settle, leading, taken, index)

    async def _settle(self, leading: Leading, taken: list[_Pending], index: int) -> None:
        outcome = await self.led.outcome(leading, index)
        if outcome is AckOutcome.ACKED:
            await self.led.feed.reached(index)
        with self._guard:
            for each in taken:
                self._pending.pop(each.said.number("ask"), None)
        for each in taken:
            if outcome is AckOutcome.ACKED and each.effect is not None:
                self._settled(each, each.effect)
            else:
                self._assigning.pop(each.said.number("task"), None)
                self._answer(each.half, each.asked, "unknown", why="it is not known to be safe")
        if any(each.said.name == "tick" for each in taken):
            self._is_ticking = False

    def _settled(self, pending: _Pending, effect: Effect) -> None:
        said, half = pending.said, pending.half
        if said.name == "assign":
            self._assigning.pop(effect.task, None)
            if not effect.refused and half is not None:
                self._hand_out(half, effect.task, said.text("worker"))
            return
        if effect.refused:
            self._answer(half, pending.asked, "refused", effect.task, effect.refused)
            return
        if said.name == "join" and half is not None:
            self._joined(half, said.text("worker"))
        for row in pending.rows:
            if half is not None:
                half.say(
                    TaskWords(row.name, {"ask": pending.asked.number("ask")} | dict(row.values))
                )
        self._answer(half, pending.asked, "ok", effect.task)

    def _joined(self, half: TaskHalf, worker: str) -> None:
        older = self._workers.get(worker)
        if older is not None and older is not half:
            older.visitor = ""
            older.end("another worker has joined under its name")
        self._workers[worker] = half
        self.heard[worker] = trio.current_time()

    def _hand_out(self, half: TaskHalf, number: int, worker: str) -> None:
        """Sends a task to the worker that it was assigned to."""
        with self._guard:
            task = self.board.tasks.get(number)
            if task is None or task.status is not Status.RUNNING or task.worker != worker:
                return
            names = ("task", "type", "attempt", "deadline", "payload")
            work = {name: value for name, value in task.values().items() if name in names}
        half.say(TaskWords("work", work), counts=False)  # it has so many slots

    async def _dispatch(self) -> None:
        """Assigns tasks that wait to workers that are there."""
        while True:
            for worker, half in list(self._workers.items()):
                if not half.is_over:
                    for task in self._next_for(worker):
                        self._assigning[task.task] = worker
                        self._write(
                            TaskWords("assign", {"task": task.task, "worker": worker}), half
                        )
            with self._guard:
                now = self._now()
                due = self.board.next_due(now)
            pause = REST_SECONDS if due is None else min(REST_SECONDS, (due - now) / 1000)
            with trio.move_on_after(pause):
                await self.led.feed.moved()

    def _next_for(self, name: str) -> list[Task]:
        with self._guard:
            worker = self.board.workers.get(name)
            if worker is None:
                return []
            on_way = sum(each == name for each in self._assigning.values())
            free = worker.slots - len(worker.running) - on_way
            if free <= 0:
                return []
            return self.board.ready(worker.types, self._now(), self._assigning.keys(), free)

    # ---- what clients ask -----------------------------------------------------------------------

    def asked(self, half: TaskHalf, said: TaskWords) -> None:
        """A client asks, or a worker says something."""
        if not self.led.has_begun:  # its host is there already
            why = f"board {self.name!r} is about to begin on this host"
            half.say(TaskWords("refused", {"ask": said.number("ask"), "why": why}))
            return
        self._halves = {each for each in self._halves if not each.is_over} | {half}
        if not self.led.is_serving:
            self._refuse(half, said)
            return
        if half.visitor:
            self.heard[half.visitor] = trio.current_time()
        if said.name == "beat":
            return
        problem = self._problem(half, said)
        if half.unanswered >= ASKS_MAX:
            problem = f"expected at most {ASKS_MAX} requests at a time"
        if problem:
            half.say(_answer_to(said, "refused", 0, problem))
            return
        half.unanswered += 1
        if said.name == "join":  # what it says next comes behind that in the log
            half.visitor = said.text("worker")
        if said.name in _READS:
            self._write(said, half, {}, "read")
        elif said.name == "leave":
            self.heard.pop(half.visitor, None)
            self._workers.pop(half.visitor, None)
            self._write(TaskWords("lost", {"worker": half.visitor, "why": "its worker has left"}))
            half.visitor = ""
            self._answer(half, said, "ok")
        else:
            given = {"attempts": self.settings.attempts, "backoff": self.settings.backoff_ms}
            values: dict[str, Value] = dict(given) if said.name == "submit" else {}
            kept = _RECORDED[said.name]
            values |= {key: value for key, value in said.values.items() if key in kept}
            values |= {"worker": half.visitor} if said.name in _OF_WORKERS else {}
            self._write(said, half, values)

    def _problem(self, half: TaskHalf, said: TaskWords) -> str:
        """A sentence on a request that cannot be done; empty for one that can."""
        for name, value in said.values.items():
            most = TEXT_MAX if isinstance(value, str) else DATA_MAX
            if isinstance(value, int) and value < 0:
                return f"expected a {name} of at least 0, got {value}"
            if isinstance(value, str | bytes) and name != "holds" and len(value) > most:
                unit = "characters" if isinstance(value, str) else "bytes"
                return f"expected a {name} of at most {most} {unit}, got {len(value)}"
        if said.name == "submit":
            if not said.text("type") or " " in said.text("type"):
                return f"expected a type without blanks, got {said.text('type')!r}"
            if not 0 <= said.number("attempts") <= 1000:
                return f"expected 1 to 1000 attempts, got {said.number('attempts')}"
            if len(self.board.tasks) + len(self._to_append) >= self.settings.tasks_max:
                return f"expected room for a task, the board has {self.settings.tasks_max}"
        elif said.name == "join":
            if not said.text("worker") or not said.text("types").split():
                return "expected a worker with a name and at least one type"
            if not 1 <= said.number("slots") <= SLOTS_MAX:
                return f"expected 1 to {SLOTS_MAX} slots, got {said.number('slots')}"
            if len(self.board.workers) >= WORKERS_MAX:
                return f"expected room for a worker, the board has {WORKERS_MAX}"
        elif said.name in _OF_WORKERS:
            if not half.visitor:
                return "expected a worker that has joined and was heard of within its lease"
        elif said.name not in _READS:
            return f"expected a request of a task board, got {said.name!r}"
        return ""

    def _answer(
        self, half: TaskHalf | None, asked: TaskWords, outcome: str, task: int = 0, why: str = ""
    ) -> None:
        if half is not None and asked.name != "assign":
            half.unanswered -= 1
            half.say(_answer_to(asked, outcome, task, why))

    def _refuse(self, half: TaskHalf, said: TaskWords) -> None:
        """This host does not serve: says who does, as far as it knows."""
        leader, where, why = self.led.leader()
        ask = said.number("ask")
        half.say(TaskWords("refused", {"ask": ask, "leader": leader, "where": where, "why": why}))


def _answer_to(asked: TaskWords, outcome: str, task: int, why: str) -> TaskWords:
    ask, why = asked.number("ask"), why[:TEXT_MAX]
    return TaskWords("answer", {"ask": ask, "outcome": outcome, "task": task, "why": why})


def _worker_row(values: dict[str, Value], running: int) -> TaskWords:
    return TaskWords("worker", values | {"count": running})
