"""A pass-through between two hosts that shows the documents they exchange.

Theory of operation. Bytes of any kind are passed on as they come: nothing waits for a
document to be whole, and what cannot be decoded passes as well. Each piece that was read is
recorded and decoded before it is passed on. So a message is always shown before its answer, and the
recording shows the same documents again, in the same order.
"""

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Final

import trio

from cqrepl.console.endings import ending_signals
from cqrepl.console.exitcodes import INTERRUPTED, UNREACHABLE, USAGE
from cqrepl.console.output import OutputError
from cqrepl.dump.captures import CapturedConnection
from cqrepl.dump.entries import Entry, Remark
from cqrepl.dump.printer import Printer
from cqrepl.dump.recording import PIECE_MAX, RecordedConnection, Recording
from cqrepl.dump.selection import Selection
from cqrepl.net.address import Address
from cqrepl.net.errors import Unreachable
from cqrepl.net.listener import open_listener, serve

CONNECT_SECONDS: Final = 10.0
Show = Callable[[Entry | Remark], None]


class Proxy:
    """Listens, dials the target for each connection, and shows what passes."""

    def __init__(self, target: Address, recording: Recording, show: Show) -> None:
        self._target = target
        self._recording = recording
        self._show = show
        self._connections = 0

    async def run(
        self, listener: trio.SocketListener, on_listening: Callable[[Address], None]
    ) -> None:
        """Passes on until it is cancelled.

        Args:
            on_listening: is told the address, with the port that the system chose for port 0.
        """
        host, port = listener.socket.getsockname()[:2]
        on_listening(Address(host, port))
        await serve(listener, self._serve)

    async def _serve(self, dialler: trio.SocketStream) -> None:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                target = await trio.open_tcp_stream(self._target.host, self._target.port)
        except (OSError, trio.TooSlowError) as error:
            await trio.aclose_forcefully(dialler)
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            self._show(Remark(text=f"cannot reach {self._target}: {reason}", is_damage=False))
            return
        async with dialler, target:
            await self._link((dialler, target))

    async def _link(self, streams: tuple[trio.SocketStream, trio.SocketStream]) -> None:
        try:
            ends = [_name(stream) for stream in streams]
        except OSError:
            return  # gone already
        recorded = RecordedConnection(self._recording, ends[0], ends[1], time.time_ns())
        self._connections += 1
        shown = CapturedConnection(self._connections, *recorded.ends)
        try:
            async with trio.open_nursery() as nursery:
                for direction in (0, 1):
                    nursery.start_soon(self._pass, streams, direction, recorded, shown)
        finally:
            for remark in shown.end():
                self._show(remark)

    async def _pass(
        self,
        streams: tuple[trio.SocketStream, trio.SocketStream],
        direction: int,
        recorded: RecordedConnection,
        shown: CapturedConnection,
    ) -> None:
        """One direction, until its sender closes; a reset closes the receiver's side as well."""
        sender, receiver = streams[direction], streams[1 - direction]
        try:
            while data := bytes(await sender.receive_some(PIECE_MAX)):
                now_ns = time.time_ns()
                packet = recorded.data(direction, data, now_ns)
                for each in shown.add_bytes(direction, data, now_ns, packet):
                    self._show(each)
                await receiver.send_all(data)
            await receiver.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            for stream in streams:
                stream.socket.close()
        recorded.end(direction, time.time_ns())


def _name(stream: trio.SocketStream) -> tuple[str, int]:
    host, port = stream.socket.getpeername()[:2]
    return str(host).partition("%")[0], int(port)


def run_proxy(
    printer: Printer,
    selection: Selection,
    listen: Address,
    target: Address,
    record: str | None,
) -> None:
    """Passes on, prints and records until it is interrupted.

    Args:
        record: where the recording goes; a file there is replaced.
    """
    name = f"{listen}={target}"
    try:
        with nullcontext() if record is None else open(record, "wb", buffering=0) as file:
            trio.run(_run, printer, selection, listen, target, Recording(file))
    except Unreachable as error:
        printer.complain(name, str(error), UNREACHABLE)
    except OSError as error:
        reason = f"a file to record to was expected: {error.strerror}"
        printer.complain(record or name, reason, USAGE)


async def _run(
    printer: Printer, selection: Selection, listen: Address, target: Address, recording: Recording
) -> None:
    name = f"{listen}={target}"
    errors: list[OutputError] = []

    def show(item: Entry | Remark) -> None:
        try:
            if isinstance(item, Remark):
                printer.remark(name, item)
            elif not selection.is_full and selection.takes(item):
                printer.show(item)
                printer.flush()
        except OutputError as error:  # the reader of the output has gone
            errors.append(error)
            scope.cancel()

    def listening(address: Address) -> None:
        sys.stderr.write(f"wire-dump: listening on {address}\n")
        sys.stderr.flush()

    async def end_on_signal(signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            printer.code = INTERRUPTED
            scope.cancel()

    listener = await open_listener(listen)
    with trio.open_signal_receiver(*ending_signals()) as signals:
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            nursery.start_soon(end_on_signal, signals)
            await Proxy(target, recording, show).run(listener, listening)
    if errors:
        raise errors[0]
