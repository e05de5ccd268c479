"""`wire-dump --proxy` between two hosts on loopback, and its recording."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from click.testing import CliRunner

from cqrepl.cli.wiredump import main
from cqrepl.console.loglines import port_told
from tests.support.networks import FIRST_INDEX, exchange, set_up
from tests.support.ports import reserved_port

COMMAND = [sys.executable, "-c", "from cqrepl.cli.wiredump import main; main()"]
SECONDS = 60


class Running:
    """A proxy that runs; `shown` and `said` are what it has printed so far."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.shown = self.said = ""
        self._news = trio.Event()

    async def collect(self, stream: trio.abc.ReceiveStream, name: str) -> None:
        """Takes what it prints, so that it never waits for its reader."""
        async for data in stream:
            setattr(self, name, getattr(self, name) + bytes(data).decode())
            self._news.set()
            self._news = trio.Event()

    async def port(self) -> int:
        while (port := port_told(self.said)) is None:
            await self._news.wait()
        return port

    async def shows(self, text: str, times: int = 1) -> None:
        while self.shown.count(text) < times:
            await self._news.wait()

    async def says(self, text: str) -> None:
        while text not in self.said:
            await self._news.wait()

    async def interrupt(self) -> int:
        """Ends it as Ctrl-C does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return await self.process.wait()


@asynccontextmanager
async def proxy(target: int, *arguments: str) -> AsyncIterator[Running]:
    command = [*COMMAND, "--proxy", f"127.0.0.1:0=127.0.0.1:{target}", *arguments]
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running = Running(process)
    try:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                assert process.stdout is not None
                assert process.stderr is not None
                nursery.start_soon(running.collect, process.stdout, "shown")
                nursery.start_soon(running.collect, process.stderr, "said")
                yield running
                process.terminate()  # then both streams end, and with them the block
    finally:
        with trio.CancelScope(shield=True):
            if process.poll() is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[trio.SocketListener, int]]:
    (found,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with found:
        yield found, found.socket.getsockname()[1]


async def converse(
    streams: tuple[trio.SocketStream, trio.SocketStream], said: list[tuple[int, bytes]]
) -> None:
    """Both ends say their part in turn; the other end gets the same bytes."""
    for direction, data in said:
        await streams[direction].send_all(data)
        got = b""
        while len(got) < len(data):
            got += await streams[1 - direction].receive_some()
        assert got == data


async def test_recording_shows_what_the_proxy_showed(tmp_path: Path) -> None:
    record = tmp_path / "recording"
    async with listener() as (target, port), proxy(port, "--record", str(record)) as running:
        for _ in range(2):
            dialler = await trio.open_tcp_stream("127.0.0.1", await running.port())
            async with dialler, await target.accept() as accepted:
                await converse((dialler, accepted), [*set_up(), *exchange(30)])
                await dialler.aclose()
                assert await accepted.receive_some() == b""
        await running.shows(f"idx 0x{FIRST_INDEX + 29:x}, round trip ", times=2)
        assert await running.interrupt() == 130
    assert running.said.count("\n") == 1
    assert running.shown.count("--- !!") == 2 * (6 + 30 * 4 + 3 * 2)
    again = CliRunner().invoke(main, [str(record)])
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout == running.shown


async def test_json_of_recording_and_proxy_are_the_same(tmp_path: Path) -> None:
    record = tmp_path / "recording"
    async with listener() as (target, port):
        async with proxy(port, "--json", "--record", str(record)) as running:
            dialler = await trio.open_tcp_stream("127.0.0.1", await running.port())
            async with dialler, await target.accept() as accepted:
                await converse((dialler, accepted), [*set_up(), *exchange(5)])
                await running.shows(f'"index":"0x{FIRST_INDEX + 4:x}","ns":')
                await running.interrupt()
    assert CliRunner().invoke(main, ["--json", str(record)]).stdout == running.shown


async def test_reset_reaches_the_other_side() -> None:
    async with listener() as (target, port), proxy(port) as running:
        dialler = await trio.open_tcp_stream("127.0.0.1", await running.port())
        async with dialler:
            accepted = await target.accept()
            accepted.setsockopt(
                trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0" + bytes(4)
            )
            await accepted.aclose()
            with suppress(trio.BrokenResourceError):  # a reset does as well
                assert await dialler.receive_some() == b""


async def test_target_that_is_not_there_is_told() -> None:
    port = reserved_port()
    async with proxy(port) as running:
        dialler = await trio.open_tcp_stream("127.0.0.1", await running.port())
        async with dialler:
            assert await dialler.receive_some() == b""
        await running.says(f"cannot reach 127.0.0.1:{port}: ")
        assert await running.interrupt() == 130
