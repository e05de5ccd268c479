"""Accepting connections."""

import socket
from contextlib import suppress

import pytest
import trio

from cqrepl.net import listener
from cqrepl.net.address import Address
from cqrepl.net.errors import Unreachable
from tests.support.replicas import at


async def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(Unreachable) as caught:
            await listener.open_listener(address)
    assert str(caught.value) == f"cannot listen on {address}: the port is in use"


async def test_an_address_of_another_host() -> None:
    with pytest.raises(Unreachable, match=r"cannot listen on 192\.0\.2\.1:1: \w"):
        await listener.open_listener(Address("192.0.2.1", 1))


async def test_a_name_for_several_addresses() -> None:
    """One socket listens, and what it says it listens on can be dialled."""
    heard = trio.Event()

    async def on_stream(stream: trio.SocketStream) -> None:
        heard.set()

    found = await listener.open_listener(Address("localhost", 0))
    async with found, trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, found, on_stream)
        host = found.socket.getsockname()[0]
        async with await trio.open_tcp_stream(host, listener.listening_port(found)):
            with trio.fail_after(60):
                await heard.wait()
        nursery.cancel_scope.cancel()


async def test_connections_beyond_the_limit_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 2)
    live: list[str] = []
    leave = trio.Event()

    async def on_stream(stream: trio.SocketStream) -> None:
        live.append(listener.peer_name(stream))
        await stream.send_all(b"hello")
        await leave.wait()
        await stream.aclose()

    async def dial(port: int) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    found = await listener.open_listener(Address("127.0.0.1", 0))
    port = listener.listening_port(found)
    async with found, trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, found, on_stream)
        with trio.fail_after(60):
            served = [await dial(port), await dial(port)]
            for stream in served:
                assert await stream.receive_some(5) == b"hello"
            async with await dial(port) as refused:
                name = at(refused.socket.getsockname()[1])
                with suppress(trio.BrokenResourceError):  # a reset is as good
                    assert await refused.receive_some(5) == b""
            assert [r.getMessage() for r in caplog.records] == [f"{name}: refused: 2 are connected"]
            leave.set()
            for stream in served:
                assert await stream.receive_some(5) == b""
                await stream.aclose()
            async with await dial(port) as again:  # there is room again
                assert await again.receive_some(5) == b"hello"
        nursery.cancel_scope.cancel()
    assert all(name.startswith("127.0.0.1:") for name in live)


async def test_name_of_a_peer_that_is_gone() -> None:
    unconnected = trio.socket.socket()
    with unconnected:
        assert listener.peer_name(trio.SocketStream(unconnected)) == "a peer that is gone"
