"""The demonstration: a real source and a real sink on loopback, one cut, and a comparison.

The sink reaches the source through a relay in this process. When half of the bytes have passed, the
relay cuts the connection; the sink dials again and goes on at its next index. When both processes
have ended, the two queues are read and compared index by index.
"""

import json
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.console.endings import ending_signals, held_back, let_in
from cqrepl.console.loglines import port_told
from cqrepl.console.meter import show_line
from cqrepl.console.output import flush, write_text
from cqrepl.demofolder import demo_folder
from cqrepl.demohosts import raise_interrupt
from cqrepl.net.address import Address
from cqrepl.net.listener import listening_port, open_listener, serve
from cqrepl.protocol import PAYLOAD_MAX
from cqrepl.queue import NotAQueue, QueueError
from cqrepl.queue.inspection.differences import CycleDigests
from cqrepl.queue.inspection.verification import verify
from cqrepl.samplequeue import make_queue

NAME: Final = "demo"
_RELAY_BYTES: Final = 256 * 1024
_FRAME_BYTES: Final = 50  # about what a frame adds to a payload: only decides when to cut


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements and the findings of a demonstration."""

    excerpts: int
    payload_bytes: int
    seconds: float
    difference: str | None


class Relay:
    """Forwards one connection at a time, and cuts the first one when enough has passed."""

    def __init__(self, target_port: int, cut_after: int, total: int) -> None:
        self.passed = 0
        self.was_cut = False
        self.started: float | None = None
        self._target_port = target_port
        self._cut_after = cut_after
        self._total = total

    async def forward(self, near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", self._target_port)
        self.started = self.started or time.monotonic()
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far, False, nursery.cancel_scope)
            nursery.start_soon(self._copy, far, near, True, nursery.cancel_scope)

    async def _copy(
        self,
        receiving: trio.SocketStream,
        sending: trio.SocketStream,
        counted: bool,
        both: trio.CancelScope,
    ) -> None:
        try:
            while data := await receiving.receive_some(_RELAY_BYTES):
                await sending.send_all(data)
                if counted and self._has_reached_cut(len(data)):
                    both.cancel()
            await sending.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            both.cancel()

    def _has_reached_cut(self, size: int) -> bool:
        self.passed += size
        show_line(f"{min(99, 100 * self.passed // self._total)} % replicated")
        if self.was_cut or self.passed < self._cut_after:
            return False
        self.was_cut = True
        _say("connection cut; the sink dials again")
        return True


def run(count: int, size: int, keep: Path | None, *, as_json: bool) -> bool:
    """Runs the demonstration and prints its result; true when the copy is identical.

    Raises:
        NotAQueue: `keep` is there and not empty.
    """
    check_empty(keep)
    with demo_folder(keep) as folder:
        result = _replicate(folder, count, size)
    _print_result(result, as_json=as_json)
    return result.difference is None


def check_empty(keep: Path | None) -> None:
    """Does nothing where a directory is empty, or not there.

    Raises:
        NotAQueue: it is not.
    """
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise NotAQueue("an empty directory, or none, expected", path=keep)


def difference(one: Path, other: Path) -> str | None:
    """The first difference between two queues in indexes or bytes; None when they are identical."""
    found = (outcome for outcome in verify([one, other]) if not outcome.is_same)
    return next((str(each) for each in found if not isinstance(each, CycleDigests)), None)


def _replicate(folder: Path, count: int, size: int) -> Result:
    original, copy = folder / "source", folder / "sink"
    make_queue(original, count, size)
    _say(f"{count:,} excerpts of {size} bytes written")
    with held_back():  # raised within trio's own work they would leave a mess
        seconds = trio.run(_run_processes, original, copy, count, size)
    show_line("comparing")
    found = difference(original, copy)
    show_line("")
    return Result(count, count * size, seconds, found)


async def _run_processes(original: Path, copy: Path, count: int, size: int) -> float:
    """Runs source and sink to their end; the seconds from the first connection to the last ack."""
    total = count * (size + _FRAME_BYTES)
    longest = ("--max-excerpt", str(max(size, PAYLOAD_MAX)))
    streams = f"{NAME}={original}"
    async with AsyncExitStack() as stack:
        # taken as an event: raised in the middle of starting a process it would leave a mess
        signals = stack.enter_context(trio.open_signal_receiver(*ending_signals()))
        stack.enter_context(let_in())
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(raise_interrupt, signals)
        source = await _start(
            nursery, "source", streams, "--listen", "127.0.0.1:0", "--until-caught-up", *longest
        )
        relay = Relay(await _listening_port(source), cut_after=total // 2, total=total)
        listener = await open_listener(Address("127.0.0.1", 0))
        nursery.start_soon(serve, listener, relay.forward)
        address = f"127.0.0.1:{listening_port(listener)}"
        takes = f"{NAME}={copy}"
        sink = await _start(nursery, "sink", takes, "--connect", address, "--once", *longest)
        try:
            await _require_success("source", source)
            ended = time.monotonic()
            await _require_success("sink", sink)
        finally:
            for process in (source, sink):
                if process.returncode is None:
                    process.kill()
        nursery.cancel_scope.cancel()
    assert relay.started is not None
    return ended - relay.started


async def _start(nursery: trio.Nursery, *arguments: str) -> trio.Process:
    command = [sys.executable, "-m", "cqrepl", *arguments]
    process: trio.Process = await nursery.start(
        partial(trio.run_process, command, stderr=subprocess.PIPE, check=False)
    )
    return process


async def _listening_port(source: trio.Process) -> int:
    """The port that the source says it listens on."""
    assert source.stderr is not None
    told = b""
    while (port := port_told(told.decode(errors="replace"))) is None:
        data = await source.stderr.receive_some()
        if not data:
            raise QueueError(f"the source ended: {told.decode(errors='replace').strip()}")
        told += data
    return port


async def _require_success(what: str, process: trio.Process) -> None:
    """Waits for the end of a process while taking what it says.

    Raises:
        QueueError: it failed; what it said has been passed on.
    """
    assert process.stderr is not None
    said = b""
    async for data in process.stderr:
        said = (said + data)[-4096:]
    code = await process.wait()
    if code != 0:
        show_line("")
        sys.stderr.write(said.decode(errors="replace"))
        raise QueueError(f"the {what} ended with exit code {code}")


def _print_result(result: Result, *, as_json: bool) -> None:
    rate = result.excerpts / result.seconds
    byte_rate = result.payload_bytes / result.seconds
    if as_json:
        fields = {
            "v": 1,
            "excerpts": result.excerpts,
            "bytes": result.payload_bytes,
            "seconds": round(result.seconds, 3),
            "excerpts_per_second": round(rate),
            "mb_per_second": round(byte_rate / 1e6, 1),
            "identical": result.difference is None,
            "difference": result.difference,
        }
        write_text(json.dumps(fields) + "\n")
        flush()
        return
    write_text(
        f"{result.excerpts:,} excerpts in {result.seconds:.1f} s: {rate:,.0f} excerpts/s, "
        f"{byte_rate / 1e6:,.1f} MB/s\n"
    )
    same = "identical" if result.difference is None else f"not identical: {result.difference}"
    write_text(f"{same}\n")
    flush()


def _say(line: str) -> None:
    show_line("")
    print(f"cqrepl demo: {line}", file=sys.stderr, flush=True)
