"""Accepts connections, each of which runs in its own task."""

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from cqrepl.net.address import Address
from cqrepl.net.errors import Unreachable

OnStream = Callable[[trio.SocketStream], Awaitable[None]]
CONNECTIONS_MAX: Final = 256
_logger = logging.getLogger(__name__)


async def open_listener(address: Address) -> trio.SocketListener:
    """A listening socket.

    Raises:
        Unreachable: the port is in use or the address cannot be listened on.
    """
    try:
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unreachable(f"cannot listen on {address}: the port is in use") from error
        raise Unreachable(f"cannot listen on {address}: {error.strerror or error}") from error
    for other in listeners[1:]:  # a name may stand for several addresses: the first one is used
        await other.aclose()
    return listeners[0]


def listening_port(listener: trio.SocketListener) -> int:
    """The port in use, which tells what the system chose for port 0."""
    return int(listener.socket.getsockname()[1])


async def serve(listener: trio.SocketListener, on_stream: OnStream) -> None:
    """Accepts for ever. Connections beyond a fixed number are closed at once."""
    live = 0

    async def run(stream: trio.SocketStream) -> None:
        nonlocal live
        if live >= CONNECTIONS_MAX:
            _logger.warning("connection refused: %d are open", live)
            await trio.aclose_forcefully(stream)
            return
        live += 1
        try:
            await on_stream(stream)
        finally:
            live -= 1

    await trio.serve_listeners(run, [listener])


def peer_name(stream: trio.SocketStream) -> str:
    """Address of the peer, for log lines."""
    try:
        name = stream.socket.getpeername()
    except OSError:
        return "a peer that is gone"
    return str(Address(name[0], name[1]))
