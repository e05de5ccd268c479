"""A recording TCP proxy: what two hosts say, document by document, and faults at exact places.

As a command: `python -m tools.record --help`, from the top of the repository.

    dialler --- proxy --- target

Theory of operation. Each direction of each connection has one task: it reads, cuts the bytes into
documents, asks `on_document` about each, and passes on what may pass. A document is held back until
it is whole, so a fault hits between two documents or inside the one that was chosen, never
elsewhere. Documents are counted for each sender from 1, over all connections, so the same number
never comes twice. Bytes that are no documents are passed on as they are, from there to the end.

What `on_document` answers, for the document that it is shown before anything of it is passed on:

    FORWARD      goes on
    CUT          passed on whole, then both sockets are closed
    CUT_INSIDE   the first half is passed on, then both sockets are closed
    STALL        passed on whole, then nothing is read or passed on in either direction; both
                 sockets stay open, and a side that closes its own closes the other

It may also be an async function: everything before the document is passed on first, and nothing
more until it answers. Later connections are not touched by a fault of an earlier one.

What was said is written down as `tools.transcript` has it.
"""

import argparse
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final

import trio

from tools.transcript import Entry, EntrySink, TranscriptFile
from wire import Splitter, WireError
from wire.header import HEADER_BYTES, LENGTH_MASK, META_DATA

READ_BYTES: Final = 64 * 1024
STALL_LOOK_SECONDS: Final = 0.02
ROLES: Final = ("source", "sink")
EVENT: Final = "event"

Address = tuple[str, int]


class Action(Enum):
    """What happens with a document; see above."""

    FORWARD = auto()
    CUT = auto()
    CUT_INSIDE = auto()
    STALL = auto()


OnDocument = Callable[[int, str, int, bytes], Action | Awaitable[Action]]


def forward_all(_conn: int, _sender: str, _number: int, _raw: bytes) -> Action:
    """Lets everything pass."""
    return Action.FORWARD


class Recorder:
    """The running proxy. `target` may be changed: it counts for connections that come later."""

    def __init__(
        self, target: Address, dialler: str, on_document: OnDocument, on_entry: EntrySink | None
    ) -> None:
        assert dialler in ROLES
        self.target = target
        self.dialler = dialler
        self.listener = ROLES[1 - ROLES.index(dialler)]
        self.port = 0
        self.entries: list[Entry] = []
        self.connections = 0
        self.stalled = trio.Event()
        self._on_document = on_document
        self._on_entry = on_entry or self.entries.append
        self._numbers = dict.fromkeys(ROLES, 0)
        self._started: float | None = None
        self._live: set[_Link] = set()

    def documents_from(self, sender: str) -> list[bytes]:
        """Whole documents of one role that were passed on, over all connections."""
        direction = self._direction(sender)
        return [entry.raw for entry in self.entries if entry.direction == direction]

    def count_from(self, sender: str) -> int:
        """How many documents of one role have come so far."""
        return self._numbers[sender]

    def cut(self) -> None:
        """Closes both sockets of every live connection, wherever they are."""
        for link in list(self._live):
            link.drop("connection dropped by the network")

    async def serve(self, stream: trio.SocketStream) -> None:
        """Handles one connection of the dialler to its end."""
        self.connections += 1
        conn = self.connections
        self.note(conn, f"connected by {self.dialler}")
        try:
            peer = await trio.open_tcp_stream(*self.target)
        except OSError:
            self.note(conn, f"{self.listener} is not there")
            await stream.aclose()
            return
        for each in (stream, peer):
            each.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
        link = _Link(self, conn, {self.dialler: stream, self.listener: peer})
        self._live.add(link)
        try:
            await link.run()
        finally:
            self._live.discard(link)

    def ask(self, conn: int, sender: str, raw: bytes) -> Action | Awaitable[Action]:
        """Counts a document, and what is to be done with it."""
        self._numbers[sender] += 1
        return self._on_document(conn, sender, self._numbers[sender], raw)

    def note(self, conn: int, happened: str) -> None:
        """Adds an entry without a document."""
        self._add(conn, EVENT, happened)

    def note_document(self, conn: int, sender: str, raw: bytes) -> None:
        """Adds a document that is passed on."""
        is_metadata = int.from_bytes(raw[:HEADER_BYTES], "little") & META_DATA
        kind = "meta-data" if is_metadata else "data"
        self._add(conn, self._direction(sender), kind, raw)

    def _add(self, conn: int, direction: str, kind: str, raw: bytes = b"") -> None:
        now = trio.current_time()
        if self._started is None:
            self._started = now
        t_ms = int((now - self._started) * 1000)
        self._on_entry(Entry(conn=conn, t_ms=t_ms, direction=direction, kind=kind, raw=raw))

    def _direction(self, sender: str) -> str:
        return f"{sender}->{ROLES[1 - ROLES.index(sender)]}"


class _Link:
    """One connection: two sockets, and the two tasks between them."""

    def __init__(
        self, recorder: Recorder, conn: int, streams: dict[str, trio.SocketStream]
    ) -> None:
        self._recorder = recorder
        self._conn = conn
        self._streams = streams
        self._life = trio.CancelScope()
        self._flow = trio.CancelScope()
        self._is_closed = False

    async def run(self) -> None:
        try:
            with self._life:
                with self._flow:
                    async with trio.open_nursery() as nursery:
                        for sender, receiver in (ROLES, ROLES[::-1]):
                            nursery.start_soon(self._pass, sender, receiver)
                if self._flow.cancelled_caught:
                    await self._hold()
        finally:
            for stream in self._streams.values():
                stream.socket.close()

    def drop(self, happened: str) -> None:
        """Ends the connection; both sockets are closed on the way out."""
        self._note_close(happened)
        self._life.cancel()

    def _note_close(self, happened: str) -> None:
        if not self._is_closed:  # what follows from a close is not told again
            self._is_closed = True
            self._recorder.note(self._conn, happened)

    async def _pass(self, sender: str, receiver: str) -> None:
        """One direction, until the sender closes or a fault ends it."""
        splitter = Splitter(LENGTH_MASK)
        cuts_documents = True
        while data := await self._read(sender):
            splitter.feed(data)
            cuts_documents = cuts_documents and await self._pass_documents(
                splitter, sender, receiver
            )
            if not cuts_documents:
                await self._pass_rest(splitter, receiver)
        await self._pass_rest(splitter, receiver)  # of a document that will never be whole
        self._note_close(f"closed by {sender}")
        await self._send(receiver, None)

    async def _pass_documents(self, splitter: Splitter, sender: str, receiver: str) -> bool:
        """Passes every whole document; false when the bytes turn out to be none.

        Documents that come together leave together, in one write.
        """
        ready = bytearray()
        while True:
            try:
                document = splitter.next_document()
            except WireError as error:
                self._recorder.note(self._conn, f"no documents any more from {sender}: {error}")
                break
            if document is None:
                break
            raw = document.word.to_bytes(HEADER_BYTES, "little") + bytes(document.body)
            answer = self._recorder.ask(self._conn, sender, raw)
            if not isinstance(answer, Action):
                await self._send(receiver, ready)
                ready.clear()
                answer = await answer
            if answer is Action.CUT_INSIDE:
                ready += raw[: len(raw) // 2]
            else:
                self._recorder.note_document(self._conn, sender, raw)
                ready += raw
            if answer is not Action.FORWARD:
                await self._send(receiver, ready)
                await self._fault(answer)
        await self._send(receiver, ready)
        return document is None

    async def _pass_rest(self, splitter: Splitter, receiver: str) -> None:
        data, at = splitter.gathered()
        splitter.skip_to(len(data))
        await self._send(receiver, bytes(data[at:]))

    async def _fault(self, action: Action) -> None:
        """Does not return."""
        if action is Action.STALL:
            self._recorder.note(self._conn, "network stalls, nothing is forwarded any more")
            self._recorder.stalled.set()
            self._flow.cancel()
        else:
            where = " inside a document" if action is Action.CUT_INSIDE else ""
            self.drop(f"connection dropped by the network{where}")
        await trio.sleep_forever()

    async def _hold(self) -> None:
        """Keeps both sockets open, and reads nothing, until one side closes its own."""
        poll = select.poll()
        senders = {stream.socket.fileno(): role for role, stream in self._streams.items()}
        for fileno in senders:
            poll.register(fileno, select.POLLRDHUP)  # tells a close behind data that is not read
        while not (closed := poll.poll(0)):
            await trio.sleep(STALL_LOOK_SECONDS)
        self._note_close(f"closed by {senders[closed[0][0]]}")

    async def _read(self, sender: str) -> bytes:
        try:
            return bytes(await self._streams[sender].receive_some(READ_BYTES))
        except trio.BrokenResourceError:
            self.drop(f"closed by {sender}")
            return b""

    async def _send(self, receiver: str, data: bytes | bytearray | None) -> None:
        """Sends; None for the end of the stream."""
        try:
            if data is None:
                await self._streams[receiver].send_eof()
            elif data:
                await self._streams[receiver].send_all(data)
        except trio.BrokenResourceError:
            self.drop(f"closed by {receiver}")


@asynccontextmanager
async def proxy(
    target: Address,
    *,
    dialler: str,
    on_document: OnDocument = forward_all,
    listen: Address = ("127.0.0.1", 0),
    on_entry: EntrySink | None = None,
) -> AsyncIterator[Recorder]:
    """A running proxy to `target`, closed with all its connections on the way out.

    Args:
        dialler: the role that dials, `source` or `sink`; the other one listens at `target`.
        on_entry: takes the entries, which are then not kept in `Recorder.entries`.
    """
    recorder = Recorder(target, dialler, on_document, on_entry)
    host, port = listen
    listeners = await trio.open_tcp_listeners(port, host=host)
    recorder.port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, recorder.serve, listeners)
        yield recorder
        nursery.cancel_scope.cancel()


def at(number: int, sender: str, action: Action) -> OnDocument:
    """Lets everything pass but document `number` of `sender`, with which `action` is done."""

    def on_document(_conn: int, from_whom: str, count: int, _raw: bytes) -> Action:
        return action if (from_whom, count) == (sender, number) else Action.FORWARD

    return on_document


# the command


def parse_address(text: str) -> Address:
    """HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"HOST:PORT expected, got {text!r}")
    return host.strip("[]"), int(port)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="record",
        description="Passes on connections, records their documents, and can fail at one of them.",
        epilog="The port is printed on stdout, alone on one line, as soon as it is listened on.",
    )
    parser.add_argument("--listen", type=parse_address, default=("127.0.0.1", 0))
    parser.add_argument("--to", type=parse_address, required=True, help="who is listened to")
    parser.add_argument("--dialler", choices=ROLES, required=True, help="the role that dials")
    parser.add_argument("--out", type=Path, help="where the transcript goes")
    parser.add_argument("--run-seconds", type=float, help="end after this time")
    parser.add_argument("--after", type=int, metavar="N", help="fail at this document ...")
    parser.add_argument("--of", choices=ROLES, help="... counted from this role, from 1")
    fault = parser.add_mutually_exclusive_group()
    fault.add_argument("--cut", action="store_true", help="close both sockets after it")
    fault.add_argument("--cut-inside", action="store_true", help="pass on half of it, then cut")
    fault.add_argument("--stall", action="store_true", help="pass on nothing after it")
    fault.add_argument("--kill", type=int, metavar="PID", help="SIGKILL this process after it")
    parsed = parser.parse_args(arguments)
    wants_fault = parsed.cut or parsed.cut_inside or parsed.stall or parsed.kill is not None
    if wants_fault != (parsed.after is not None) or wants_fault != (parsed.of is not None):
        parser.error("--after and --of go with one of --cut, --cut-inside, --stall, --kill")
    if parsed.after is not None and parsed.after < 1:
        parser.error("--after: documents are counted from 1")
    return parsed


async def run(arguments: argparse.Namespace) -> None:
    """The command, until a signal or the end of its time."""
    on_document: OnDocument = forward_all
    if arguments.after is not None:
        action = Action.STALL  # --kill too: not a byte passes while the process is killed
        if arguments.cut or arguments.cut_inside:
            action = Action.CUT if arguments.cut else Action.CUT_INSIDE
        on_document = at(arguments.after, arguments.of, action)
    file = TranscriptFile(arguments.out) if arguments.out else None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with proxy(
            arguments.to,
            dialler=arguments.dialler,
            on_document=on_document,
            listen=arguments.listen,
            on_entry=file or drop_entry,
        ) as recorder:
            print(recorder.port, flush=True)
            async with trio.open_nursery() as nursery:
                if arguments.kill is not None:
                    nursery.start_soon(kill_when_stalled, recorder, arguments.kill)
                with trio.move_on_after(arguments.run_seconds or float("inf")):
                    async for _ in signals:
                        break
                nursery.cancel_scope.cancel()


async def kill_when_stalled(recorder: Recorder, pid: int) -> None:
    """Kills the process while nothing passes, then lets its peer see the end."""
    await recorder.stalled.wait()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    recorder.cut()


def drop_entry(_entry: Entry) -> None:
    """For a run without a transcript."""


def main() -> None:
    trio.run(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    main()
