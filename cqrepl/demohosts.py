"""The hosts of a demonstration: processes on loopback that are started, killed, and listened to.

Each says lines of JSON on its standard output. One that ends, and was not killed, ends the
demonstration.
"""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from cqrepl.console.endings import ending_signals, let_in

LEASE: Final = "1s"


class DemoHosts:
    """The hosts of one demonstration.

    Args:
        module: is run with the file and the id of a host.
        folder: for the file, and for what the hosts log.
        heard: is called with the id of a host and what it has said.

    Attributes:
        file: of the cluster.
        killed: the hosts that were, in order.
    """

    def __init__(
        self, module: str, folder: Path, heard: Callable[[int, dict[str, object]], None]
    ) -> None:
        self.file = folder / "cluster.yaml"
        self.killed: list[int] = []
        self._module = module
        self._folder = folder
        self._heard = heard
        self._processes: dict[int, trio.Process] = {}
        self._all: list[trio.Process] = []  # also those that were killed
        self._may_end: set[trio.Process] = set()
        self._began: float | None = None

    @asynccontextmanager
    async def running(self, host_ids: Iterable[int]) -> AsyncIterator[trio.Nursery]:
        """While these hosts run; the first signal to end raises KeyboardInterrupt."""
        async with AsyncExitStack() as stack:
            # taken as an event: raised in the middle of starting a process it would leave a mess
            signals = stack.enter_context(trio.open_signal_receiver(*ending_signals()))
            stack.enter_context(let_in())
            stack.push_async_callback(self._end_all)
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(raise_interrupt, signals)
            for host_id in host_ids:
                await self.start(nursery, host_id)
            yield nursery
            nursery.cancel_scope.cancel()

    async def start(self, nursery: trio.Nursery, host_id: int) -> None:
        """Starts a host, for the first time or once more."""
        command = [sys.executable, "-m", self._module, str(self.file), str(host_id)]
        with self._log(host_id).open("ab") as log:
            process = await trio.lowlevel.open_process(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.PIPE
            )
        self._processes[host_id] = process
        self._all.append(process)
        nursery.start_soon(self._listen, host_id, process)

    async def _listen(self, host_id: int, process: trio.Process) -> None:
        assert process.stdout is not None
        said = b""
        async for data in process.stdout:
            *lines, said = (said + data).split(b"\n")
            for line in lines:
                self._heard(host_id, json.loads(line))
        if process not in self._may_end:
            raise OSError(f"host {host_id} has ended, see {self._log(host_id)}")

    async def kill(self, host_id: int) -> None:
        """Ends a host as `kill -9` does."""
        self.killed.append(host_id)
        self._may_end.add(self._processes[host_id])
        self.send(host_id, signal.SIGKILL)
        await self._processes[host_id].wait()

    def send(self, host_id: int, number: int) -> None:
        """Sends a signal to a host."""
        self._processes[host_id].send_signal(number)

    def let_end(self) -> None:
        """No host that ends is a fault from now on."""
        self._may_end |= set(self._all)

    async def end(self, seconds: float) -> None:
        """Has each host end that ends with its standard input, and waits for it so long."""
        self.let_end()
        for process in self._processes.values():
            assert process.stdin is not None
            await process.stdin.aclose()
            with trio.move_on_after(seconds):
                await process.wait()

    async def _end_all(self) -> None:
        with trio.CancelScope(shield=True):
            for process in self._all:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def begin(self) -> float:
        """Times are told from now on; what the clock shows."""
        self._began = trio.current_time()
        return self._began

    def say(self, line: str) -> None:
        """Tells the user, with the time."""
        at = 0.0 if self._began is None else trio.current_time() - self._began
        print(f"cqrepl demo: {at:5.1f} s: {line}", file=sys.stderr, flush=True)

    def _log(self, host_id: int) -> Path:
        return self._folder / f"host{host_id}.log"


async def raise_interrupt(signals: AsyncIterator[int]) -> None:
    """Ends a demonstration at the first of these signals."""
    async for _ in signals:
        raise KeyboardInterrupt


def cluster_file(folder: Path, hosts: Sequence[int], groups: str) -> str:
    """A file of a cluster on loopback, whose hosts are elected.

    Args:
        groups: the line of `cqrepl`, or of `cluster` below it, that has them.
    """
    base = json.dumps(f"{folder}/$hostId")
    lines = ["cluster:", f"  context: {{basePath: {base}}}"]
    for host_id, port in zip(hosts, free_ports(len(hosts)), strict=True):
        lines.append(f'  host{host_id}: {{hostId: {host_id}, connectUri: "127.0.0.1:{port}"}}')
    return "\n".join([*lines, "cqrepl:", "  cluster:", f"    leaseTimeout: {LEASE}", groups, ""])


def free_ports(count: int) -> list[int]:
    """Ports that no process listens at now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
