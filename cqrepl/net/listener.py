"""Accepts connections, each of which runs in its own task.

Theory of operation. What the system cannot give, as a descriptor, is asked for again a while later:
the connection waits in its queue. Beyond the greatest number of connections one that has not said
who it is goes for a new one; where all have, the new one is closed at once, and so that this costs
little, the next ones wait a while.
"""

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from cqrepl.net.address import Address
from cqrepl.net.errors import Unreachable
from cqrepl.net.peerlog import PeerLog

OnStream = Callable[[trio.SocketStream], Awaitable[None]]
CONNECTIONS_MAX: Final = 256
LEAVING_MAX: Final = 16  # that were asked to go, and have not gone yet
ACCEPT_PAUSE_SECONDS: Final = 0.1


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


def no_room() -> bool:
    """For connections none of which goes for a newer one."""
    return False


async def serve(
    listener: trio.SocketListener,
    on_stream: OnStream,
    log: PeerLog | None = None,
    make_room: Callable[[], bool] = no_room,
    connections_max: Callable[[], int] | None = None,
) -> None:
    """Accepts for ever; closes the listener when it is cancelled.

    Args:
        on_stream: runs a connection to its end.
        make_room: ends a connection for a newer one; false where none is to go.
        connections_max: so many at a time; None: the usual number.
    """
    live = 0
    log = log or PeerLog()

    async def run(stream: trio.SocketStream) -> None:
        nonlocal live
        try:
            await on_stream(stream)
        finally:
            live -= 1
            await trio.aclose_forcefully(stream)

    async with listener, trio.open_nursery() as nursery:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:  # of this machine, or of a connection that has gone
                log.tell(logging.WARNING, "listening", f"connections wait: {error.strerror}")
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            most = CONNECTIONS_MAX if connections_max is None else connections_max()
            if live < most or (live < most + LEAVING_MAX and make_room()):
                live += 1
                nursery.start_soon(run, stream)
            else:
                log.tell(logging.WARNING, peer_name(stream), f"refused: {live} are connected")
                await trio.aclose_forcefully(stream)
                await trio.sleep(ACCEPT_PAUSE_SECONDS)


def peer_name(stream: trio.SocketStream) -> str:
    """Address of the peer, for log lines."""
    try:
        name = stream.socket.getpeername()
    except OSError:
        return "a peer that is gone"
    return str(Address(name[0], name[1]))


def machine_of(stream: trio.SocketStream) -> str:
    """The peer's address without its port."""
    return peer_name(stream).rpartition(":")[0]
