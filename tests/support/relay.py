"""The relay: a TCP pass-through that a test controls, which can cut, stall, and record.

    dialler --- relay --- target

    async with Relay(source.port).running() as relay:      bytes, in small pieces
        ..connect=at(relay.port)..
        relay.close_gate()                                  nothing passes until `open_gate`
        relay.reset()                                       every connection is reset

    relay = Relay(target, on_document=at(3, "source", Action.CUT))      documents

Theory of operation. Each direction of each connection has one task that reads and passes on. While
the gate is closed nothing passes, and as little is read ahead as can be, so that the sender soon
meets a full socket. Without `on_document` bytes pass as they come. With it they are cut into
documents: each is held back until it is whole and `on_document` has answered, so that a fault hits
between two documents or inside the one that was chosen, never elsewhere. Documents are counted for
each sender from 1, over all connections, so that the same number never comes twice. Bytes that are
no documents pass as they are, from there to the end.

What `on_document` answers, for the document that it is shown before anything of it is passed on:

    FORWARD      goes on
    CUT          passed on whole, then both sockets are closed
    CUT_INSIDE   the first half is passed on, then both sockets are closed
    STALL        passed on whole, then nothing is read or passed on in either direction; both
                 sockets stay open, and a side that closes its own closes the other

It may also be an async function: everything before the document is passed on first, and nothing
more until it answers. Later connections are not touched by a fault of an earlier one. What was said
is kept in `entries`, or goes where `on_entry` puts it.
"""

import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from typing import Final, Self

import trio

from tests.support.transcript import Entry, EntrySink
from wire import Splitter, WireError
from wire.header import HEADER_BYTES, LENGTH_MASK, META_DATA

READ_BYTES: Final = 16 * 1024
STALL_LOOK_SECONDS: Final = 0.02
ROLES: Final = ("source", "sink")
EVENT: Final = "event"
NOBODY: Final = ("127.0.0.1", 0)  # a target that does not answer
_LINGER: Final = (1).to_bytes(4, "little") + bytes(4)  # close with a reset

Address = tuple[str, int]


class Action(Enum):
    """The actions of the relay on a document; see above."""

    FORWARD = auto()
    CUT = auto()
    CUT_INSIDE = auto()
    STALL = auto()


OnDocument = Callable[[int, str, int, bytes], Action | Awaitable[Action]]


def forward_all(_conn: int, _sender: str, _number: int, _raw: bytes) -> Action:
    """Lets every document pass."""
    return Action.FORWARD


def at(number: int, sender: str, action: Action) -> OnDocument:
    """Lets everything pass but document `number` of `sender`, with which `action` is done."""

    def on_document(_conn: int, from_whom: str, count: int, _raw: bytes) -> Action:
        return action if (from_whom, count) == (sender, number) else Action.FORWARD

    return on_document


def drop_entry(_entry: Entry) -> None:
    """For a relay whose entries are not read."""


class Relay:
    """Passes on connections to a target, which may be changed for those that come later.

    Args:
        target: where the listener is: an address, or a port on loopback.
        dialler: the role that dials, `source` or `sink`; the other one listens.
        on_document: what is to be done with each document; None passes bytes, not documents.
        on_entry: takes the entries, which are then not kept in `entries`.
        cut_after: reset the first connection after exactly so many bytes towards the dialler.
    """

    def __init__(
        self,
        target: Address | int | None,
        *,
        dialler: str = "sink",
        on_document: OnDocument | None = None,
        on_entry: EntrySink | None = None,
        cut_after: int | None = None,
    ) -> None:
        assert target is not None
        assert dialler in ROLES
        assert on_document is None or cut_after is None, "bytes are not counted in documents"
        self.target = ("127.0.0.1", target) if isinstance(target, int) else target
        self.dialler = dialler
        self.listener = ROLES[1 - ROLES.index(dialler)]
        self.port = 0
        self.connections = 0
        self.entries: list[Entry] = []
        self.stalled = trio.Event()
        self.gate = trio.Event()
        self.gate.set()
        self.on_document = on_document
        self.cut_after = cut_after
        self._on_entry = on_entry or self.entries.append
        self._numbers = dict.fromkeys(ROLES, 0)
        self._started: float | None = None
        self._live: set[_Link] = set()

    @asynccontextmanager
    async def running(self, listen: Address = ("127.0.0.1", 0)) -> AsyncIterator[Self]:
        """Listens for the length of a block; closed with all its connections on the way out."""
        host, port = listen
        listeners = await trio.open_tcp_listeners(port, host=host)
        self.port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._serve, listeners)
            yield self
            nursery.cancel_scope.cancel()

    def close_gate(self) -> None:
        """From now on nothing passes, in either direction, until the gate is opened."""
        self.gate = trio.Event()

    def open_gate(self) -> None:
        """Passes on the documents that wait, and all that come after them."""
        self.gate.set()

    def cut(self) -> None:
        """Closes both sockets of every live connection."""
        for link in list(self._live):
            link.drop("connection dropped by the network")

    def reset(self) -> None:
        """The same, with a reset in both directions: nothing that is under way arrives."""
        for link in list(self._live):
            link.drop("connection dropped by the network", is_reset=True)

    def documents_from(self, sender: str) -> list[bytes]:
        """Whole documents of one role that were passed on, over all connections."""
        direction = _direction(sender)
        return [entry.raw for entry in self.entries if entry.direction == direction]

    def count_from(self, sender: str) -> int:
        """The number of documents that have come so far from one role."""
        return self._numbers[sender]

    def ask(self, conn: int, sender: str, raw: bytes) -> Action | Awaitable[Action]:
        """Counts a document, and what is to be done with it."""
        assert self.on_document is not None
        self._numbers[sender] += 1
        return self.on_document(conn, sender, self._numbers[sender], raw)

    def note(self, conn: int, happened: str) -> None:
        """Adds an entry without a document."""
        self._add(conn, EVENT, happened)

    def note_document(self, conn: int, sender: str, raw: bytes) -> None:
        """Adds a document that is passed on."""
        is_metadata = int.from_bytes(raw[:HEADER_BYTES], "little") & META_DATA
        self._add(conn, _direction(sender), "meta-data" if is_metadata else "data", raw)

    def _add(self, conn: int, direction: str, kind: str, raw: bytes = b"") -> None:
        now = trio.current_time()
        if self._started is None:
            self._started = now
        t_ms = int((now - self._started) * 1000)
        self._on_entry(Entry(conn=conn, t_ms=t_ms, direction=direction, kind=kind, raw=raw))

    async def _serve(self, near: trio.SocketStream) -> None:
        """Handles one connection of the dialler to its end."""
        self.connections += 1
        conn = self.connections
        self.note(conn, f"connected by {self.dialler}")
        try:
            far = await trio.open_tcp_stream(*self.target)
        except OSError:
            self.note(conn, f"{self.listener} is not there")
            await near.aclose()
            return
        link = _Link(self, conn, {self.dialler: near, self.listener: far})
        self._live.add(link)
        try:
            await link.run()
        finally:
            self._live.discard(link)


def _direction(sender: str) -> str:
    return f"{sender}->{ROLES[1 - ROLES.index(sender)]}"


class _Link:
    """One connection: two sockets, and the two tasks between them."""

    def __init__(self, relay: Relay, conn: int, streams: dict[str, trio.SocketStream]) -> None:
        self._relay = relay
        self._conn = conn
        self._streams = streams
        self._life = trio.CancelScope()
        self._flow = trio.CancelScope()
        self._is_closed = False
        for stream in streams.values():
            stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
            if relay.on_document is None:  # little is read ahead of a gate that is closed
                for option in (trio.socket.SO_RCVBUF, trio.socket.SO_SNDBUF):
                    stream.setsockopt(trio.socket.SOL_SOCKET, option, 4 * READ_BYTES)

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
            self._close()

    def drop(self, happened: str, *, is_reset: bool = False) -> None:
        """Ends the connection, at once."""
        self._note_close(happened)
        if is_reset:
            for stream in self._streams.values():
                with suppress(OSError):  # one that is closed already
                    stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, _LINGER)
        self._life.cancel()
        self._close()

    def _close(self) -> None:
        for stream in self._streams.values():
            stream.socket.close()

    def _note_close(self, happened: str) -> None:
        if not self._is_closed:  # what follows from a close is not told again
            self._is_closed = True
            self._relay.note(self._conn, happened)

    async def _pass(self, sender: str, receiver: str) -> None:
        """One direction, until the sender closes or a fault ends it."""
        splitter = Splitter(LENGTH_MASK)
        cuts_documents = self._relay.on_document is not None
        while data := await self._read(sender):
            await self._relay.gate.wait()
            if not cuts_documents:
                await self._pass_bytes(receiver, data)
                continue
            splitter.feed(data)
            cuts_documents = await self._pass_documents(splitter, sender, receiver)
            if not cuts_documents:
                await self._pass_rest(splitter, receiver)
        await self._pass_rest(splitter, receiver)  # of a document that will never be whole
        self._note_close(f"closed by {sender}")
        await self._send(receiver, None)

    async def _pass_bytes(self, receiver: str, data: bytes) -> None:
        left = self._relay.cut_after
        if left is None or receiver != self._relay.dialler:
            await self._send(receiver, data)
            return
        await self._send(receiver, data[:left])
        self._relay.cut_after = left - len(data)
        if len(data) >= left:
            self._relay.cut_after = None
            self._relay.reset()

    async def _pass_documents(self, splitter: Splitter, sender: str, receiver: str) -> bool:
        """Passes every whole document; false when the bytes turn out to be none.

        Documents that come together leave together, in one write.
        """
        ready = bytearray()
        while True:
            try:
                document = splitter.next_document()
            except WireError as error:
                self._relay.note(self._conn, f"no documents any more from {sender}: {error}")
                break
            if document is None:
                break
            raw = document.word.to_bytes(HEADER_BYTES, "little") + bytes(document.body)
            answer = self._relay.ask(self._conn, sender, raw)
            if not isinstance(answer, Action):
                await self._send(receiver, ready)
                ready.clear()
                answer = await answer
            if answer is Action.CUT_INSIDE:
                ready += raw[: len(raw) // 2]
            else:
                self._relay.note_document(self._conn, sender, raw)
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
        if action is Action.STALL:
            self._relay.note(self._conn, "network stalls, nothing is forwarded any more")
            self._relay.stalled.set()
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
        except trio.ClosedResourceError:  # dropped meanwhile
            await trio.sleep_forever()
        return b""

    async def _send(self, receiver: str, data: bytes | bytearray | None) -> None:
        try:
            if data is None:
                await self._streams[receiver].send_eof()
            elif data:
                await self._streams[receiver].send_all(data)
        except trio.BrokenResourceError:
            self.drop(f"closed by {receiver}")
        except trio.ClosedResourceError:  # dropped meanwhile
            await trio.sleep_forever()
