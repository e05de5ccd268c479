"""The demonstration of a cluster: three processes that elect their leader, while tasks flow.

The leader is killed and comes back; then its successor is frozen and comes back. Each task that was
accepted has to be finished, and once: that is read from the copies on the disk, when all is over.
"""

import json
import signal
from collections import Counter
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from cqrepl.broker.client import TaskClient, TasksRefused
from cqrepl.broker.fields import TaskWords, decode
from cqrepl.broker.taskboard import Status, TaskTable
from cqrepl.console.endings import held_back
from cqrepl.console.output import flush, write_text
from cqrepl.demofolder import demo_folder
from cqrepl.demohosts import DemoHosts, cluster_file
from cqrepl.demonode import BOARD, GROUP, addresses_in
from cqrepl.net.address import Address
from cqrepl.queue import Queue

HOSTS: Final = (1, 2, 3)
SETTLE_SECONDS: Final = 60.0  # for what was accepted to be finished, after the last fault
_SUBMITTERS: Final = 4
_SLOTS: Final = 16
_PAUSE_SECONDS: Final = 0.005  # of a submitter, so that the demonstration leaves room for others
# so much of the time is over when each thing happens
_KILL, _COME_BACK, _FREEZE, _THAW = 0.25, 0.45, 0.6, 0.8


@dataclass(slots=True)
class ClusterResult:
    """The findings of a demonstration.

    Args:
        submitted: tasks that were accepted.
        finished: those of them that are finished on the disk.
        lost: those of them that are not there, or not finished.
        twice: tasks that were finished twice, or stand there twice.
        epochs: in which hosts have led, by their numbers.
        gaps: seconds from each fault to the next task that was accepted.
    """

    submitted: int = 0
    finished: int = 0
    lost: int = 0
    twice: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    gaps: list[float] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """True where nothing was lost or done twice, and leaders have changed at all."""
        return bool(self.submitted) and not self.lost and not self.twice and len(self.epochs) > 2


def run_cluster(seconds: float, keep: Path | None, *, as_json: bool) -> bool:
    """Runs the demonstration and prints its result; true when nothing was lost or done twice.

    Raises:
        OSError: its files cannot be written, or no process be started.
    """
    with demo_folder(keep) as folder:
        demo = _Demo(folder, seconds)
        with held_back():
            trio.run(demo.run)
        demo.judge()
    _print_result(demo.result, as_json=as_json)
    return demo.result.is_right


class _Demo:
    """One demonstration.

    Args:
        folder: for all that it writes.
        seconds: for so long tasks are submitted.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.result = ClusterResult()
        self._folder = folder
        self._hosts = DemoHosts("cqrepl.demonode", folder, self._heard)
        self._seconds = seconds
        self._leader = 0
        self._led = trio.Event()
        self._began = 0.0
        self._is_over = False
        self._faulted: float | None = None  # since then no other leader has accepted a task
        self._faulty = 0  # the host that led then
        self._accepted: dict[str, int] = {}  # tasks, by their keys

    async def run(self) -> None:
        """Until all that was accepted is finished, or the time for that is over."""
        groups = "    groups: {count: 1, rollCycle: FAST_DAILY, preferred: false}"
        self._hosts.file.write_text(cluster_file(self._folder, HOSTS, groups))
        async with self._hosts.running(HOSTS) as nursery:
            with trio.fail_after(SETTLE_SECONDS):
                await self._led.wait()
            self._began = self._hosts.begin()
            await self._work(nursery)

    def _heard(self, host_id: int, change: dict[str, object]) -> None:
        epoch = change["epoch"]
        if (
            change["role"] == "leading"
            and isinstance(epoch, int)
            and epoch not in self.result.epochs
        ):
            self.result.epochs[epoch] = self._leader = host_id
            self._hosts.say(f"host {host_id} leads, in epoch {epoch}")
            self._led.set()

    async def _work(self, nursery: trio.Nursery) -> None:
        hosts = [Address.parse(each) for each in addresses_in(self._hosts.file).values()]
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                TaskClient(hosts, BOARD, "submitter").running()
            )
            worker = await stack.enter_async_context(TaskClient(hosts, BOARD, "worker").running())
            nursery.start_soon(self._finish_all, worker)
            async with trio.open_nursery() as submitters:
                for nth in range(_SUBMITTERS):
                    submitters.start_soon(self._submit, client, nth)
                await self._faults(nursery)
            with trio.move_on_after(SETTLE_SECONDS):
                while await self._are_open(client):
                    await trio.sleep(0.1)

    async def _submit(self, client: TaskClient, nth: int) -> None:
        count = 0
        while not self._is_over:
            key = f"{nth}-{count}"
            self._accepted[key] = await client.submit("count", key.encode(), key)
            if self._faulted is not None and self._leader != self._faulty:
                self.result.gaps.append(trio.current_time() - self._faulted)
                self._faulted = None
            count += 1
            await trio.sleep(_PAUSE_SECONDS)

    async def _finish_all(self, worker: TaskClient) -> None:
        tasks = await worker.work("worker", ["count"], _SLOTS)
        async with trio.open_nursery() as nursery:
            async for task in tasks:
                nursery.start_soon(_finish, worker, task)

    async def _are_open(self, client: TaskClient) -> bool:
        for status in (Status.WAITING, Status.RUNNING):
            _, *rows = await client.ask("list", {"status": status.value, "count": 1})
            if rows:
                return True
        return False

    async def _faults(self, nursery: trio.Nursery) -> None:
        """Kills a leader and freezes one; both come back."""
        await self._until(_KILL)
        killed = self._fault("is killed")
        await self._hosts.kill(killed)
        await self._until(_COME_BACK)
        self._hosts.say(f"host {killed} comes back")
        await self._hosts.start(nursery, killed)
        await self._until(_FREEZE)
        frozen = self._fault("is frozen")
        self._hosts.send(frozen, signal.SIGSTOP)
        await self._until(_THAW)
        self._hosts.say(f"host {frozen} goes on")
        self._hosts.send(frozen, signal.SIGCONT)
        await self._until(1.0)
        self._is_over = True

    async def _until(self, part: float) -> None:
        await trio.sleep_until(self._began + part * self._seconds)

    def _fault(self, what: str) -> int:
        """The leader, to which this happens now."""
        self._hosts.say(f"host {self._leader}, the leader, {what}")
        self._faulted, self._faulty = trio.current_time(), self._leader
        return self._leader

    def judge(self) -> None:
        """Counts by the copy that holds most, as it is on the disk."""
        tables = [_Judged(self._folder / str(each) / GROUP) for each in HOSTS]
        longest = max(tables, key=lambda each: each.last)
        done = {t.key for t in longest.table.tasks.values() if t.status is Status.DONE}
        self.result.submitted = len(self._accepted)
        self.result.finished = len(self._accepted.keys() & done)
        self.result.lost = len(self._accepted.keys() - done)
        self.result.twice = sum(each > 1 for each in longest.finished.values()) + sum(
            each > 1 for each in Counter(t.key for t in longest.table.tasks.values()).values()
        )


class _Judged:
    """The board of one copy, from its first record to its last one."""

    def __init__(self, path: Path) -> None:
        self.table = TaskTable()
        self.last = -1
        self.finished: Counter[int] = Counter()  # by task: how often it has become done
        with Queue.open(path) as queue, closing(queue.tailer()) as tailer:
            while (batch := tailer.next_batch()) is not None:
                for index, data in batch:
                    self._take(index, decode(data))

    def _take(self, index: int, said: TaskWords) -> None:
        task = self.table.tasks.get(said.number("task"))
        was_done = task is not None and task.status is Status.DONE
        self.table.apply(index, said)
        if said.name == "finish" and task is not None:
            self.finished[task.task] += task.status is Status.DONE and not was_done
        self.last = index


async def _finish(worker: TaskClient, task: TaskWords) -> None:
    with suppress(TasksRefused):  # another attempt is under way
        await worker.finish(task, b"done")


def _print_result(result: ClusterResult, *, as_json: bool) -> None:
    gaps = [round(each, 2) for each in result.gaps]
    if as_json:
        fields = {
            "v": 1,
            "submitted": result.submitted,
            "finished": result.finished,
            "lost": result.lost,
            "twice": result.twice,
            "epochs": [{"number": n, "leader": host} for n, host in sorted(result.epochs.items())],
            "gaps": gaps,
        }
        write_text(json.dumps(fields) + "\n")
    else:
        shown = ", ".join(f"{each:g} s" for each in gaps) or "never"
        write_text(f"the next task was accepted after {shown}\n")
        write_text(
            f"submitted {result.submitted:,}, finished {result.finished:,}, lost {result.lost:,},"
            f" twice {result.twice:,}\n"
        )
    flush()
