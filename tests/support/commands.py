"""`cqrepl source` and `cqrepl sink` as processes of their own, started as a user starts them.

    async with commands() as start:
        source = await start("source", queue, "--listen", "127.0.0.1:0")
        sink = await start("sink", copy, "--connect", f"127.0.0.1:{await source.port()}")

A process that is still running at the end of the block is killed. When the block fails, what the
processes have said is added to the error.
"""

import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import trio

from cqrepl.console.loglines import port_told

POLL_SECONDS: Final = 0.005
KILLED: Final = -signal.SIGKILL


class Command:
    """One running command; `said` is what it has printed on stderr so far."""

    def __init__(self, process: trio.Process, title: str) -> None:
        self.title = title
        self.said = ""
        self.ended = trio.Event()
        self._process = process
        self._heard = trio.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def port(self) -> int:
        """The port that it listens on, as soon as it says so."""
        while (port := port_told(self.said)) is None:
            await self._more("a port")
        return port

    async def says(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """The first place in what it says that matches; an error if it ends without."""
        while (found := pattern.search(self.said)) is None:
            await self._more(pattern.pattern)
        return found

    async def _more(self, wanted: str) -> None:
        assert not self.ended.is_set(), f"{self.title} ended and never said {wanted}"
        await self._heard.wait()

    async def exit_code(self) -> int:
        """Waits for its end; a negative number is the signal that ended it."""
        await self.ended.wait()
        code = self._process.returncode
        assert code is not None
        return code

    async def succeeds(self) -> None:
        """Waits for its end, which must be in order."""
        code = await self.exit_code()
        assert code == 0, f"{self.title} ended with {code}: {self.said}"
        assert "Traceback" not in self.said, self.said

    def send(self, number: int) -> None:
        """Sends it a signal; nothing where it has ended."""
        self._process.send_signal(number)

    async def kill(self) -> None:
        """Ends it as `kill -9` does, and waits until it is gone."""
        assert not self.ended.is_set(), f"{self.title} has ended: {self.said}"
        self._process.kill()
        assert await self.exit_code() == KILLED

    async def terminate(self) -> None:
        """Ends it with SIGTERM, which it takes as a wish to end in order."""
        assert not self.ended.is_set(), f"{self.title} has ended: {self.said}"
        self._process.terminate()
        await self.succeeds()

    async def end(self) -> int:
        """Ends it with SIGTERM unless it has ended, whatever came of its queues; its exit code."""
        if not self.ended.is_set():
            self._process.terminate()
        code = await self.exit_code()
        assert "Traceback" not in self.said, self.said
        return code

    async def collect(self) -> None:
        """Takes what it says until it has ended; kills it when the block has ended."""
        assert self._process.stderr is not None
        try:
            async for data in self._process.stderr:
                self.said += bytes(data).decode(errors="replace")
                self._news()
            await self._process.wait()
        finally:
            with trio.CancelScope(shield=True):
                if self._process.poll() is None:
                    self._process.kill()
                    await self._process.wait()
                await self._process.stderr.aclose()
            self.ended.set()
            self._news()

    def _news(self) -> None:
        self._heard.set()
        self._heard = trio.Event()


class Start(Protocol):
    def __call__(
        self, role: str, *arguments: object, cwd: Path | None = None
    ) -> Awaitable[Command]: ...


@asynccontextmanager
async def commands(seconds: float = 300, *, before: str = "pass") -> AsyncIterator[Start]:
    """A function that starts commands. They end with the block, and the block ends with an error
    after `seconds`.

    Args:
        before: a line of Python that each process runs first, as to set a limit of time that no
            busy machine comes near.
    """
    started: list[Command] = []

    async def start(role: str, *arguments: object, cwd: Path | None = None) -> Command:
        program = f"{before}\nfrom cqrepl.__main__ import main; main()"
        words = [sys.executable, "-P", "-c", program, role, *map(str, arguments)]
        process = await trio.lowlevel.open_process(words, stderr=subprocess.PIPE, cwd=cwd)
        started.append(Command(process, f"{role} {len(started) + 1}"))
        nursery.start_soon(started[-1].collect)
        return started[-1]

    try:
        with trio.fail_after(seconds):
            async with trio.open_nursery() as nursery:
                yield start
                nursery.cancel_scope.cancel()
    except BaseException as error:
        for command in started:
            error.add_note(f"--- {command.title} (process {command.pid}):\n{command.said}")
        raise


async def until(is_so: Callable[[], bool]) -> None:
    """Waits until something outside of this process has come true."""
    while not is_so():
        await trio.sleep(POLL_SECONDS)
