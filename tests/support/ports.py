"""Ports of this machine that a test may listen at, or leave closed, as often as it wants to."""

import atexit
import socket

_reserved: list[socket.socket] = []


def reserved_port() -> int:
    """A TCP port on loopback that the system gives to no other process until this process ends.

    A socket stays bound to it and does not listen: a listener with SO_REUSEADDR, which trio and
    Java set, may take the port beside it, while the system passes it over for every socket that
    asks for any port. Until something listens there, connections are refused.
    """
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    _reserved.append(place)
    port: int = place.getsockname()[1]
    return port


@atexit.register
def _give_back() -> None:
    for place in _reserved:
        place.close()
