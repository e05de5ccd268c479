"""The network of the laboratory: real sockets, and weather."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cqrepl.surroundings import within
from cqrepl.testing.labmachine import Machine, Process
from cqrepl.testing.network import Network, address_of
from cqrepl.testing.story import Story

PORT = 7000


class Ends:
    """Both ends of one connection, from host 2 to host 1."""

    def __init__(
        self, network: Network, near: trio.SocketStream, far: trio.SocketStream, listener: Process
    ) -> None:
        self.network, self.near, self.far, self.listener = network, near, far, listener


@asynccontextmanager
async def connected(tmp_path: Path) -> AsyncIterator[Ends]:
    async with trio.open_nursery() as nursery:
        story = Story()
        network = Network(nursery, random.Random(1), story)
        trio.socket.set_custom_socket_factory(network)
        hosts = [Machine(h, tmp_path / str(h), random.Random(h), story) for h in (1, 2)]
        process = hosts[0].start("listener")
        with within(process):
            [listener] = await trio.open_tcp_listeners(PORT, host=address_of(1))
        with within(hosts[1].start("dialler")):
            near = await trio.open_tcp_stream(address_of(1), PORT)
        far = await listener.accept()
        try:
            yield Ends(network, near, far, process)
        finally:
            network.close()
            await listener.aclose()
        nursery.cancel_scope.cancel()


async def test_bytes_come_late_and_in_order(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with connected(tmp_path) as ends:
        ends.network.weather(2, 1).delay_s = (0.5, 0.5)
        started = trio.current_time()
        await ends.near.send_all(b"abc")
        assert await ends.far.receive_some() == b"abc"
        assert trio.current_time() - started == pytest.approx(0.5)
        await ends.near.send_eof()
        assert await ends.far.receive_some() == b""
        await ends.far.send_all(b"back")
        assert await ends.near.receive_some() == b"back"


async def test_names_of_the_ends(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with connected(tmp_path) as ends:
        assert ends.near.socket.getpeername() == (address_of(1), PORT)
        assert ends.far.socket.getpeername() == ends.near.socket.getsockname()


async def test_stalled_bytes_come_afterwards(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with connected(tmp_path) as ends:
        ends.network.weather(2, 1).stall()
        await ends.near.send_all(b"abc")
        with trio.move_on_after(60) as waited:
            await ends.far.receive_some()
        assert waited.cancelled_caught
        await ends.far.send_all(b"the other way is free")
        assert await ends.near.receive_some() == b"the other way is free"
        ends.network.weather(2, 1).clear()
        assert await ends.far.receive_some() == b"abc"


async def test_swallowed_bytes_never_come_nor_those_behind(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with connected(tmp_path) as ends:
        ends.network.weather(2, 1).is_swallowing = True
        await ends.near.send_all(b"lost")
        await trio.sleep(1)
        ends.network.weather(2, 1).clear()
        await ends.near.send_all(b"behind")
        with trio.move_on_after(60) as waited:
            await ends.far.receive_some()
        assert waited.cancelled_caught


async def test_split_bytes_are_the_same_bytes(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with connected(tmp_path) as ends:
        ends.network.weather(2, 1).is_splitting = True
        sent = bytes(range(256)) * 20
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.near.send_all, sent)
            pieces: list[bytes] = []
            while sum(len(piece) for piece in pieces) < len(sent):
                pieces.append(bytes(await ends.far.receive_some()))
        assert b"".join(pieces) == sent


async def test_a_cut_breaks_both_ends(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with connected(tmp_path) as ends:
        assert ends.network.cut(lambda link: link.hosts == (2, 1)) == 1
        for end in (ends.near, ends.far):
            with pytest.raises(trio.BrokenResourceError):
                await end.receive_some()


async def test_no_connection_to_a_host_that_does_not_listen(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with connected(tmp_path) as ends:
        ends.network.process_died(ends.listener)
        dialler = Machine(3, tmp_path / "3", random.Random(3), Story()).start("dialler")
        with within(dialler), pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream(address_of(1), PORT)
