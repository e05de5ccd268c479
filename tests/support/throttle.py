"""The throttle: a TCP pass-through that reads from its target no faster than it is told.

    dialler --- throttle --- target

What the dialler says passes at once. Its buffer towards the target is small, so the target's socket
is full nearly all the time: that is a peer which takes what it is sent, but slowly.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

PIECES_PER_S: Final = 50
BUFFER_BYTES: Final = 64 << 10


class Throttle:
    """Passes on one connection to a port on loopback.

    Args:
        bytes_per_s: may be changed at any time; 0 for as many as come.

    Attributes:
        passed: bytes of the target's that have been passed on.
    """

    def __init__(self, target: int, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        self.passed = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        """The port that the dialler connects to."""
        port: int = self._listener.getsockname()[1]
        return port

    @contextmanager
    def running(self) -> Iterator["Throttle"]:
        """Passes on for the length of a block."""
        self._start(self._accept)
        try:
            yield self
        finally:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits there
            self._listener.close()
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:
                thread.join()
            for each in self._sockets:
                each.close()

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # over
            near, _ = self._listener.accept()
            far = socket.socket()
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            far.connect(("127.0.0.1", self._target))
            self._sockets += [near, far]
            self._start(self._pass_slowly, far, near)
            self._pass_on(near, far)

    def _pass_on(self, source: socket.socket, to: socket.socket) -> None:
        while data := source.recv(BUFFER_BYTES):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)

    def _pass_slowly(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):  # over
            while data := source.recv(self._piece_bytes()):
                to.sendall(data)
                self.passed += len(data)
                if self.bytes_per_s:
                    time.sleep(len(data) / self.bytes_per_s)
            to.shutdown(socket.SHUT_WR)

    def _piece_bytes(self) -> int:
        pieces = self.bytes_per_s // PIECES_PER_S
        return max(1, min(BUFFER_BYTES, pieces)) if self.bytes_per_s else BUFFER_BYTES
