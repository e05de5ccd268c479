"""Connections without a network, for tests on a mock clock.

The pump wants a `SocketStream`: here it gets the same methods on trio's streams in memory. Where a
pump could tell the difference, `test_pump.py` runs the same test on loopback as well.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

import trio
from trio.testing import lockstep_stream_pair, memory_stream_pair

from cqrepl.net.pump import Pump
from cqrepl.net.tokenbucket import Rooms
from cqrepl.protocol import Connection, ConnectionConfig
from cqrepl.protocol.events import Event
from cqrepl.protocol.messages.queuenames import QueueNames
from tests.support import peer
from tests.support.peer import connection_config

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane
    from cqrepl.kernel.memory import WatchedWord

OURS, THEIRS = 1, 2
CONFIG: Final = connection_config(host_id=OURS)
NO_LIMIT: Final = [0]


class NoSocket:
    """Takes options and forgets them; receives from a stream."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream

    def setsockopt(self, *option: object) -> None:
        pass

    async def recv_into(self, room: memoryview) -> int:
        try:
            data = await self._stream.receive_some(len(room))
        except trio.BrokenResourceError as error:
            raise ConnectionResetError(*error.args) from error
        room[: len(data)] = data
        return len(data)


class InMemory:
    """One end of a stream in memory, dressed as a socket stream."""

    def __init__(self, half: trio.abc.HalfCloseableStream) -> None:
        self._half = half
        self.socket = NoSocket(half)
        self.is_closed = False

    async def send_all(self, data: bytes | memoryview) -> None:
        await self._half.send_all(data)

    async def receive_some(self, size: int | None = None) -> bytes:
        return bytes(await self._half.receive_some(size))

    async def send_eof(self) -> None:
        await self._half.send_eof()

    async def aclose(self) -> None:
        self.is_closed = True
        await self._half.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def memory_streams() -> tuple[InMemory, InMemory]:
    """Two ends; what is sent waits in between, however much it is."""
    near, far = memory_stream_pair()
    return InMemory(near), InMemory(far)


def lockstep_streams() -> tuple[InMemory, InMemory]:
    """Two ends; sending at one waits until the far end receives."""
    near, far = lockstep_stream_pair()
    return InMemory(near), InMemory(far)


@asynccontextmanager
async def loopback_streams() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Two ends of a TCP connection."""
    send, receive = trio.open_memory_channel[trio.SocketStream](1)
    async with trio.open_nursery() as nursery:

        async def accepted(stream: trio.SocketStream) -> None:
            await send.send(stream)
            await trio.sleep_forever()

        listeners = await nursery.start(
            lambda *, task_status: trio.serve_tcp(
                accepted, 0, host="127.0.0.1", task_status=task_status
            )
        )
        port = listeners[0].socket.getsockname()[1]
        far = await trio.open_tcp_stream("127.0.0.1", port)
        near = await receive.receive()
        async with near, far:
            yield near, far
            nursery.cancel_scope.cancel()


class Recorder:
    """A session that offers bytes and notes what it was asked. The least a pump needs."""

    def __init__(self, *, to_send: int = 0, piece: int = 1000) -> None:
        self.acted: list[Event] = []
        self.out_bytes = piece
        self.waited = None
        self.sent_live = self.stored_live = 0
        self.is_settled = True
        self.has_progressed = False
        self.is_closed = 0
        self.is_draining = False
        self.framed = self.looks = 0
        self.has_much = False
        self.sizes: list[int] = []
        self._left = to_send
        self.queue_names = QueueNames()

    async def work(self) -> None:
        """Nothing runs beside."""

    async def act(self, event: Event) -> None:
        self.acted.append(event)

    async def settle(self) -> None:
        """Nothing is left for later."""

    def frame(self, out: bytearray, rooms: Rooms) -> int:
        assert len(out) == self.out_bytes
        self.looks += 1
        if self.is_draining or not self.acted:
            return 0
        size = min(self._left, len(out), rooms.much if self.has_much else rooms.live)
        self._left -= size
        self.framed += size
        if size:
            self.sizes.append(size)
        return size

    def polls(self, rooms: Rooms) -> bool:
        return self.has_much and rooms.much > 0

    def watched(self, rooms: Rooms) -> "list[WatchedWord] | None":
        return None

    def lanes_out(self) -> "list[SourceLane]":
        return []

    def lanes_in(self) -> "list[SinkLane]":
        return []

    def catch_up(self) -> None:
        pass

    async def catch_up_in_turns(self) -> None:
        pass

    def leave_lanes(self) -> None:
        pass

    def drain(self) -> None:
        self.is_draining = True

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.is_closed += 1


async def admit_all(host_id: int, pump: Pump) -> None:
    """Lets every host in."""
    await trio.lowlevel.checkpoint()


def make_pump(
    stream: InMemory | trio.SocketStream,
    config: ConnectionConfig = CONFIG,
    limit: list[int] = NO_LIMIT,
) -> Pump:
    """A pump that admits every host, and sends it so many bytes a second; 0 for any number."""
    connection = Connection(config, trio.current_time())
    return Pump(
        cast(trio.SocketStream, stream), connection, "test", admit_all, limit_of=lambda _: limit[0]
    )


def greeting(timeout_ms: int = 40_000, interval_ms: int = 20_000) -> bytes:
    """The first bytes of a dialling peer: its UberHandler and its heartbeats."""
    return peer.uber(THEIRS, OURS) + peer.heartbeats(timeout_ms, interval_ms)


async def said(stream: InMemory | trio.SocketStream, least: int = 1) -> list[peer.Message]:
    """At least so many whole documents of what our side says."""
    data = b""
    with trio.fail_after(1000):
        while True:
            data += await stream.receive_some(65536)
            try:
                messages = peer.decoded(data)
            except AssertionError:
                continue  # something is still under way
            if len(messages) >= least:
                return messages
