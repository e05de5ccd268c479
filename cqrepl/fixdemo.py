"""A pair of FIX engines whose acceptor survives its host: three hosts that elect, and QuickFIX/J.

The engine of the host that leads is started by its `onRole`; the initiator runs beside all of them.
Hosts are killed with their engines, as a machine that fails, or alone, so that the engine has to
find out. At the end the lines of the engines and the copy of the last leader are compared: what the
store of an engine has said to be kept is there, and no number of a session stands for two messages.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

import trio

from cqrepl.console.endings import ending_signals, held_back, let_in
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.output import flush, write_text
from cqrepl.demofolder import demo_folder
from cqrepl.demohosts import free_ports, raise_interrupt
from cqrepl.fixengine import JVM_OPTIONS, engine_pid, is_running
from cqrepl.fixfindings import EngineLines, FixFindings, judged, undelivered

HOSTS: Final = (1, 2, 3)
GROUP: Final = "fix"
ENGINE: Final = "engine"
QUEUE: Final = f"p-{GROUP}-{ENGINE}"  # of the engine, in that group
LEASE_SECONDS: Final = 2.0
LIMIT_SECONDS: Final = 90.0  # for whatever is waited for
_LOOK_SECONDS: Final = 0.05
_BETWEEN_SECONDS: Final = 2.0  # two kills, in which messages flow


def run_fix(seconds: float, jars: Path, keep: Path | None, *, as_json: bool) -> bool:
    """Runs the demonstration and prints its result; true when nothing was lost or stands twice.

    Args:
        jars: the directory of `fix-store.jar`, with its libraries in `lib`.

    Raises:
        BadArguments: there is no such jar, or no Java.
        OSError: its files cannot be written, or no process be started.
    """
    jar = jars.resolve() / "fix-store.jar"
    if not jar.exists():
        raise BadArguments(f"expected the store of FIX sessions, {jar} (tools/java/fix), got none")
    if shutil.which("java") is None:
        raise BadArguments("expected a java on the path for FIX engines, got none")
    with demo_folder(keep) as folder:
        cluster = FixCluster(folder.resolve(), jar)
        with held_back():
            leaders = trio.run(_kill_hosts, cluster, seconds)
        found = cluster.judge()
    _print_result(found, leaders, as_json=as_json)
    return found.is_right and len(leaders) > 1


async def _kill_hosts(cluster: "FixCluster", seconds: float) -> list[int]:
    """Kills the machine that leads, then the host alone, as long as there is time; the hosts that
    have led."""
    async with AsyncExitStack() as stack:
        signals = stack.enter_context(trio.open_signal_receiver(*ending_signals()))
        stack.enter_context(let_in())
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(raise_interrupt, signals)
        await stack.enter_async_context(cluster.running())
        host_id, epoch = await cluster.led()
        leaders, began = [host_id], trio.current_time()
        _say(f"the engine of host {host_id} is logged on")
        while len(leaders) < 2 or trio.current_time() < began + seconds:
            await trio.sleep(_BETWEEN_SECONDS)
            with_engine = len(leaders) % 2 == 1
            _say(f"host {host_id} is killed, {'with its engine' if with_engine else 'alone'}")
            killed, engine = host_id, await cluster.kill(host_id, with_engine=with_engine)
            faulted = trio.current_time()
            host_id, epoch = await cluster.led(after=epoch)
            took = trio.current_time() - faulted
            _say(f"{took:.1f} s later messages of the engine of host {host_id} come")
            leaders.append(host_id)
            await cluster.start(killed)
            await cluster.ended(engine)
        await cluster.delivered()
        nursery.cancel_scope.cancel()
    return leaders


def _say(line: str) -> None:
    print(f"cqrepl demo: {line}", file=sys.stderr, flush=True)


def _print_result(found: FixFindings, leaders: list[int], *, as_json: bool) -> None:
    if as_json:
        write_text(json.dumps({"v": 1, **asdict(found), "leaders": leaders}) + "\n")
    else:
        write_text(
            f"kept {found.kept:,}, lost {found.lost:,}, numbers used twice {found.twice:,}, numbers"
            f" set back {found.set_back:,}, sent once more from a copy {found.resent:,}, warnings"
            f" {found.warnings:,}\n"
        )
    flush()


class FixCluster:
    """The hosts, their engines, and the initiator.

    Args:
        folder: for all that they write; empty.
        jar: of tools/java/fix, with its libraries in `lib` beside it.
        sessions: so many.
        rate: messages a second that each end sends on each session.
        timeout_ms: for so long a store waits for a backup.
    """

    def __init__(
        self,
        folder: Path,
        jar: Path,
        *,
        sessions: int = 4,
        rate: float = 100.0,
        timeout_ms: int = 5000,
    ) -> None:
        self.folder = folder
        self._jar = jar
        self.sessions = sessions
        self._rate = rate
        self._timeout_ms = timeout_ms
        ports = free_ports(2 * len(HOSTS))
        self._ports = dict(zip(HOSTS, ports, strict=False))
        self._fix_ports = dict(zip(HOSTS, ports[len(HOSTS) :], strict=True))
        self._hosts: dict[int, trio.Process] = {}
        self._all: list[trio.Process] = []
        self._initiator: trio.Process | None = None
        self._acceptors = EngineLines()
        self._said = EngineLines()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of it, for the length of a block; then nothing of it runs."""
        try:
            for host_id in HOSTS:
                (self.folder / f"host{host_id}.yaml").write_text(self._file(host_id))
                await self.start(host_id)
            await self._start_initiator()
            yield
        finally:
            with trio.CancelScope(shield=True):
                for process in self._all:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
                for host_id in HOSTS:
                    await self._gone(host_id, signal.SIGKILL)

    def at(self, host_id: int) -> Path:
        """The directory of a copy."""
        return self.folder / str(host_id) / QUEUE

    def _file(self, host_id: int) -> str:
        start = [sys.executable, "-m", "cqrepl.fixengine", self.folder, host_id, self._jar]
        words = [self.at(host_id), self._fix_ports[host_id], self.sessions, self._rate]
        on_role = json.dumps([str(each) for each in (*start, *words, self._timeout_ms)])
        lines = ["cluster:", "  context:", "    heartbeatIntervalMs: 1000"]
        lines += ["    heartbeatTimeoutMs: 5000", f"    basePath: {self.folder}/$hostId"]
        for each, port in self._ports.items():
            lines.append(f'  host{each}: {{hostId: {each}, connectUri: "127.0.0.1:{port}"}}')
        lines += ["cqrepl:", "  sink: {onDivergence: quarantine}"]
        lines += [f"  persist: {{{GROUP}: {{ownLog: [{ENGINE}]}}}}", "  cluster:"]
        lines += [f"    leaseTimeout: {LEASE_SECONDS:g}s", f"    onRole: {on_role}"]
        return "\n".join(lines) + "\n"

    async def start(self, host_id: int) -> None:
        """Starts a host, which follows, or leads once it is elected."""
        command = [sys.executable, "-m", "cqrepl", "run", "--host-id", str(host_id)]
        command += ["--config", str(self.folder / f"host{host_id}.yaml")]
        command += ["--run-dir", str(self.folder / f"run{host_id}")]
        with (self.folder / f"host{host_id}.log").open("ab") as log:
            self._hosts[host_id] = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._all.append(self._hosts[host_id])

    async def _start_initiator(self) -> None:
        ports = ",".join(str(each) for each in self._fix_ports.values())
        words = ["initiator", ports, str(self.sessions), str(self._rate / 10), "I"]
        command = ["java", *JVM_OPTIONS, "-jar", str(self._jar), *words]
        said, errors = self.folder / "initiator.out", self.folder / "initiator.err"
        with said.open("ab") as out, errors.open("ab") as err:
            self._initiator = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=out, stderr=err
            )
        self._all.append(self._initiator)

    # ------------------------------------------------------------ what happens to them

    async def kill(self, host_id: int, *, with_engine: bool) -> int | None:
        """Ends a host as `kill -9` does; with its engine, as a machine that fails. The process of
        the engine."""
        pid = engine_pid(self.folder, host_id)
        self._hosts[host_id].kill()
        if with_engine and pid is not None:
            os.kill(pid, signal.SIGKILL)
        await self._hosts[host_id].wait()
        return pid

    def signal(self, host_id: int, number: int) -> None:
        """Sends a signal to a host and its engine."""
        pid = engine_pid(self.folder, host_id)
        self._hosts[host_id].send_signal(number)
        if pid is not None:
            os.kill(pid, number)

    def pid(self, host_id: int) -> int:
        """The process of a host."""
        return self._hosts[host_id].pid

    def thaw_host(self, host_id: int) -> None:
        """Has a host go on, and its engine not."""
        self._hosts[host_id].send_signal(signal.SIGCONT)

    async def _gone(self, host_id: int, number: int) -> None:
        pid = engine_pid(self.folder, host_id)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        await self.until(lambda: engine_pid(self.folder, host_id) is None)

    async def ended(self, pid: int | None) -> None:
        """Waits until a process has ended."""
        await self.until(lambda: pid is None or not is_running(pid))

    @staticmethod
    async def until(is_so: Callable[[], bool]) -> None:
        """Waits until something is so.

        Raises:
            trio.TooSlowError: it is not within `LIMIT_SECONDS`.
        """
        with trio.fail_after(LIMIT_SECONDS):
            while not is_so():
                await trio.sleep(_LOOK_SECONDS)

    # ------------------------------------------------------------ what they say

    def leader(self) -> tuple[int, int]:
        """The host that came to lead last, and its epoch; 0, 0 before."""
        found = [(epoch, host_id) for host_id, role, epoch in self.roles() if role == "leading"]
        epoch, host_id = max(found, default=(0, 0))
        return host_id, epoch

    def roles(self) -> Iterator[tuple[int, str, int]]:
        """Each change of a role: the host, its role, the epoch."""
        with suppress(FileNotFoundError):
            for line in (self.folder / "roles").read_text().splitlines():
                host_id, role, epoch = line.split()
                yield int(host_id), role, int(epoch)

    async def led(self, *, after: int = 0) -> tuple[int, int]:
        """Waits until a host leads in a later epoch than this one, and messages of its engine come
        to the initiator on each session; the host, and its epoch."""

        def is_so() -> bool:
            host_id, epoch = self.leader()
            return epoch > after and len(self.heard().labels[f"{host_id}.{epoch}"]) == self.sessions

        await self.until(is_so)
        return self.leader()

    async def delivered(self) -> None:
        """Waits until the initiator has all that stores have said to be kept until now."""
        for out in self._outs():
            self._acceptors.read(out)
        await self.until(lambda: not undelivered(self._acceptors, self.heard()))

    def heard(self) -> EngineLines:
        """All that the initiator has said until now."""
        self._said.read(self.folder / "initiator.out")
        return self._said

    def _outs(self) -> list[Path]:
        return sorted(self.folder.glob("engine*.out"))

    def judge(self) -> FixFindings:
        """Compares what was said up to the last `delivered` with the copy of the host that led
        last, once all of it has ended."""
        errors = (self.folder / "engines.err").read_text(errors="replace")
        return judged(self._acceptors, self.heard(), self.at(self.leader()[0]), errors)
