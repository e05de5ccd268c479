"""A scripted peer on a real socket: says just what a test wants, and reads the answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.support import peer
from tests.support.samples import Excerpts
from wire import Splitter

SHAPE = {"cqrepl": peer.SHAPE_FIELDS}


class Scripted:
    """One connection to a listening source or sink of ours; dials and greets."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.said: list[peer.Message] = []
        self.has_ended = False
        self._splitter = Splitter(1 << 30)

    @property
    def address(self) -> str:
        """The address by which the listening side names it."""
        machine, port = self.stream.socket.getsockname()
        return f"{machine}:{port}"

    async def send(self, *documents: bytes) -> None:
        await self.stream.send_all(b"".join(documents))

    async def greet(
        self, own: int, other: int, timeout_ms: int = 60_000, interval_ms: int = 30_000
    ) -> None:
        """Both UberHandlers and heartbeats; with numbers that let a test take its time."""
        await self.send(peer.uber(own, other), peer.heartbeats(timeout_ms, interval_ms))
        await self.hear("handler", 2)

    async def offer(self, name: str, cid: int, next_index: int = 0, **more: Any) -> peer.Message:
        """Registers a queue as a source does; the sink's answer."""
        fields = {key: value for key, value in (SHAPE | more).items() if value}
        handler = peer.sink_handler(next_index, name=name, **fields)
        before = len(self.all("handler"))
        await self.send(peer.register(f"/replication/{name}/2", cid, handler))
        answer: peer.Message = (await self.hear("handler", before + 1))[-1]["handler"][1]
        return answer

    async def offer_held(self, name: str, cid: int, held: Excerpts) -> None:
        """Registers a queue that ends as the sink's does, and sends again what the sink asks for;
        returns when all that is acknowledged."""
        wanted = (await self.offer(name, cid, held[-1][0] + 1))["nextIndexRequired"]
        before = len(self.all("idx"))
        again = [peer.excerpt(index, data, cid=cid) for index, data in held if index >= wanted]
        assert again
        await self.send(*again)
        await self.hear_stored(held[-1][0], before)

    async def answer(self, next_index: int, *documents: bytes, name: str = "q") -> tuple[str, int]:
        (offer,) = [m for m in await self.hear("csp", 2) if m["csp"] != "/"]
        csp, cid = offer["csp"], offer["cid"]
        handler = peer.source_handler(next_index, name=name)
        await self.send(peer.register(csp, cid, handler), *documents)
        return csp, cid

    async def hear(self, name: str, count: int = 1, seconds: float = 60) -> list[peer.Message]:
        """Waits for at least so many messages that have this field."""
        with trio.fail_after(seconds):
            while len(self.all(name)) < count:
                assert not self.has_ended, f"ended; heard {self.said}"
                await self._receive()
        return self.all(name)

    async def hear_stored(self, index: int, before: int = 0) -> None:
        """Waits until a sink has acknowledged all up to this index.

        Args:
            before: so many acknowledgements came before, and do not count.
        """
        while (await self.hear("idx", before + 1))[-1]["idx"] < index:
            before = len(self.all("idx"))

    async def hear_end(self, seconds: float = 60) -> None:
        """Waits until our side closes."""
        with trio.fail_after(seconds):
            while not self.has_ended:
                await self._receive()

    def all(self, name: str) -> list[peer.Message]:
        return [message for message in self.said if name in message]

    async def _receive(self) -> None:
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            self.has_ended = True
            return
        self._splitter.feed(data)
        whole = b""
        while (each := self._splitter.next_document()) is not None:
            whole += each.word.to_bytes(4, "little") + bytes(each.body)
        self.said += peer.decoded(whole)


@asynccontextmanager
async def scripted(
    port: int | None, own: int | None = None, other: int | None = None, machine: str = "127.0.0.1"
) -> AsyncIterator[Scripted]:
    """A connection for the length of a block; greets when it is given host ids.

    Args:
        machine: the address of this machine's that it comes from.
    """
    assert port is not None
    async with await trio.open_tcp_stream("127.0.0.1", port, local_address=machine) as stream:
        dialled = Scripted(stream)
        if own is not None and other is not None:
            await dialled.greet(own, other)
        yield dialled
