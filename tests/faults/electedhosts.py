"""Three hosts that elect, as processes, with a line between each two that a test can cut one way.

host 2 --- line --- host 1          the higher id dials; each host has a file of its own, in
host 3 --- line --- host 1, 2       which the others are at the ends of the lines
"""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from cqrepl.queue import Queue
from cqrepl.queue.files.epochfile import load_epochs
from tests.faults.electedhost import QUEUE
from tests.support.ports import reserved_port

IDS = (1, 2, 3)
LEASE_SECONDS = 1.0
LIMIT_SECONDS = 90.0  # for whatever is waited for


class Line:
    """Passes on what two hosts say, each way while that is open."""

    def __init__(self, dialler: int, listener: int, target: int) -> None:
        self.ends = (dialler, listener)
        self.port = 0
        self._target = target
        self._open: dict[tuple[int, int], trio.Event] = {}
        for way in (self.ends, self.ends[::-1]):
            self._open[way] = trio.Event()
            self._open[way].set()

    def set(self, way: tuple[int, int], *, is_open: bool) -> None:
        if is_open:
            self._open[way].set()
        elif self._open[way].is_set():
            self._open[way] = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, near: trio.SocketStream) -> None:
        with suppress(OSError):
            far = await trio.open_tcp_stream("127.0.0.1", self._target)
            async with near, far, trio.open_nursery() as nursery:
                stop = nursery.cancel_scope
                nursery.start_soon(self._pass, near, far, self.ends, stop)
                nursery.start_soon(self._pass, far, near, self.ends[::-1], stop)

    async def _pass(
        self,
        near: trio.SocketStream,
        far: trio.SocketStream,
        way: tuple[int, int],
        both: trio.CancelScope,
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in near:
                await self._open[way].wait()
                await far.send_all(data)
        both.cancel()


@dataclass
class ElectedHosts:
    """The hosts, and what they have said."""

    folder: Path
    nursery: trio.Nursery
    election: str = "majority"  # and further keys of the section `cluster`
    roles: dict[int, tuple[str, int]] = field(default_factory=dict)  # and epochs, by host
    acked: dict[int, tuple[int, str]] = field(default_factory=dict)  # by index: epoch and payload
    twice: list[int] = field(default_factory=list)  # indexes that were safe as two excerpts
    acked_by: int = 0  # the host that has said so last
    changed: trio.Event = field(default_factory=trio.Event)
    processes: dict[int, trio.Process] = field(default_factory=dict)
    ended: list[trio.Process] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    async def begin(self) -> None:
        ports = {each: reserved_port() for each in IDS}
        for high in IDS:
            for low in range(1, high):
                line = Line(high, low, ports[low])
                self.lines.append(line)
                await self.nursery.start(line.run)
        for each in IDS:
            self._file(each).write_text(self._text(each, ports))
            await self.start(each)

    def at(self, host_id: int) -> Path:
        return self.folder / str(host_id) / QUEUE

    def _file(self, host_id: int) -> Path:
        return self.folder / f"cluster{host_id}.yaml"

    def _text(self, own: int, ports: dict[int, int]) -> str:
        lines = ["cluster:", "  context:", "    heartbeatIntervalMs: 1000"]
        lines += ["    heartbeatTimeoutMs: 5000", f"    basePath: {self.folder}/$hostId"]
        for each, port in ports.items():
            ways = {line.ends: line.port for line in self.lines}
            at = ways.get((own, each), port)
            lines.append(f'  host{each}: {{hostId: {each}, connectUri: "127.0.0.1:{at}"}}')
        lines += ["queues:", f"  {QUEUE}: {{acknowledge: true, rollCycle: FAST_DAILY}}", "cqrepl:"]
        election = f"leaseTimeout: {LEASE_SECONDS:g}s, election: {self.election}"
        lines.append(f"  cluster: {{{election}}}")
        policy = "{level: synced, from: majority, timeout: 3s, on_timeout: fail}"
        return "\n".join([*lines, f"  ack: {{{QUEUE}: {policy}}}"]) + "\n"

    async def start(self, host_id: int) -> None:
        command = [sys.executable, "-m", "tests.faults.electedhost", str(self._file(host_id))]
        with (self.folder / f"log{host_id}").open("ab") as log:
            process = await trio.lowlevel.open_process(
                [*command, str(host_id)], stdout=subprocess.PIPE, stderr=log
            )
        self.processes[host_id] = process
        self.ended.append(process)
        self.nursery.start_soon(self._listen, host_id, process)

    async def _listen(self, host_id: int, process: trio.Process) -> None:
        assert process.stdout is not None
        said = b""
        async for data in process.stdout:
            *lines, said = (said + data).split(b"\n")
            for line in lines:
                self._heard(host_id, json.loads(line))
            self.changed.set()
            self.changed = trio.Event()

    def _heard(self, host_id: int, said: dict[str, Any]) -> None:
        if "role" in said:
            self.roles[host_id] = said["role"], said["epoch"]
        if "acked" in said:
            index = said["acked"]
            if index in self.acked:
                self.twice.append(index)
            self.acked[index] = said["epoch"], said["payload"]
            self.acked_by = host_id

    async def until(self, is_so: Callable[[], bool]) -> None:
        with trio.fail_after(LIMIT_SECONDS):
            while not is_so():
                with trio.move_on_after(0.5):
                    await self.changed.wait()

    async def appends(self, count: int = 20, *, not_by: Iterable[int] = ()) -> None:
        """So many more excerpts are safe, the last one at another host than these."""
        wanted = len(self.acked) + count
        await self.until(lambda: len(self.acked) >= wanted and self.acked_by not in not_by)

    async def next_after(self, host_id: int) -> float:
        """The seconds until another host has an excerpt that is safe."""
        began = trio.current_time()
        await self.until(lambda: self.acked_by not in (0, host_id))
        return trio.current_time() - began

    async def follows(self, host_id: int) -> None:
        """A host follows the one that leads now."""

        def is_so() -> bool:
            leads = [epoch for role, epoch in self.roles.values() if role == "leading"]
            return bool(leads) and self.roles.get(host_id) == ("following", max(leads))

        await self.until(is_so)

    def signal(self, host_id: int, number: int) -> None:
        self.processes[host_id].send_signal(number)

    async def kill(self, host_id: int) -> None:
        self.signal(host_id, signal.SIGKILL)
        await self.processes[host_id].wait()
        self.roles.pop(host_id, None)

    def cut(self, host_id: int, *, out: bool, into: bool) -> None:
        """Nothing that a host says gets out any more, or nothing to it."""
        for line in self.lines:
            if host_id in line.ends:
                other = sum(line.ends) - host_id
                line.set((host_id, other), is_open=not out)
                line.set((other, host_id), is_open=not into)

    async def end(self) -> None:
        """All end in order, once all copies are the same."""
        for each in IDS:
            self.signal(each, signal.SIGTERM)
        for each in IDS:
            await self.processes[each].wait()

    def judge(self) -> None:
        """Nothing that was safe is missing or another excerpt; each is of the epoch in which it was
        appended, as the copy knows it that holds the most."""
        copies = {each: _read(self.at(each)) for each in IDS}
        epochs = {each: load_epochs(self.at(each)) for each in IDS}
        best = max(IDS, key=lambda each: (epochs[each].number, max(copies[each], default=0)))
        held, history = copies[best], epochs[best].history
        lost = {index for index, (_, text) in self.acked.items() if held.get(index) != text}
        assert not lost, f"{len(lost)} of {len(self.acked)} that were safe: {sorted(lost)[:5]}"
        assert not self.twice
        begun = {each.number: each.start for each in history}
        for index, (epoch, _) in self.acked.items():
            later = [start for number, start in begun.items() if number > epoch]
            assert index < min(later, default=index + 1), f"{index:#x} is of an epoch after {epoch}"


def _read(path: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    with Queue.open(path) as queue, closing(queue.tailer()) as tailer:
        while (batch := tailer.next_batch()) is not None:
            for index, payload in batch:
                found[index] = bytes(payload).decode()
    return found


@asynccontextmanager
async def elected_hosts(folder: Path, election: str = "majority") -> AsyncIterator[ElectedHosts]:
    """All of them, with some excerpts that are safe; judged at the end of the block."""
    async with trio.open_nursery() as nursery:
        made = ElectedHosts(folder, nursery, election)
        try:
            await made.begin()
            await made.appends()
            yield made
            await made.appends()
            await made.end()
        finally:
            with trio.CancelScope(shield=True):
                for process in made.ended:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
            nursery.cancel_scope.cancel()
    made.judge()


def shown(seconds: Iterable[float]) -> str:
    """Times, for people who read the log of a test."""
    return ", ".join(map("{:.2f}".format, seconds))
