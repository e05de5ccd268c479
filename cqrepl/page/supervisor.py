"""Tells the service manager that has started this process that it runs, and goes on running.

The messages are those of sd_notify(3): a datagram to the Unix socket that NOTIFY_SOCKET names. With
WATCHDOG_USEC the manager starts a process again that has not said in time that it turns.
"""

import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import trio

_logger: Final = logging.getLogger(__name__)
_US: Final = 1_000_000


class Supervisor:
    """The service manager of this process, where there is one.

    Args:
        environ: the variables of the process.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        place = environ.get("NOTIFY_SOCKET", "")
        self._place = "\0" + place[1:] if place.startswith("@") else place
        usec = environ.get("WATCHDOG_USEC", "")
        owner = environ.get("WATCHDOG_PID", "")
        is_ours = not owner or owner == str(os.getpid())
        self.watchdog_seconds = int(usec) / _US if usec.isdecimal() and is_ours else 0.0

    @asynccontextmanager
    async def told(self, is_turning: Callable[[], bool]) -> AsyncIterator[None]:
        """For the length of a block it is told that the process runs.

        Args:
            is_turning: false once the process is to be started again.
        """
        if not self._place:
            yield
            return
        self.say("READY=1")
        async with trio.open_nursery() as nursery:
            if self.watchdog_seconds:
                nursery.start_soon(self._turn, is_turning)
            yield
            nursery.cancel_scope.cancel()
        self.say("STOPPING=1")

    def say(self, message: str) -> None:
        """Sends a message; what cannot be sent is logged, and changes nothing."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as place:
                place.setblocking(False)
                place.connect(self._place)
                place.send(message.encode())
        except OSError as error:
            _logger.warning("service manager: %s not told: %s", message, error)

    async def _turn(self, is_turning: Callable[[], bool]) -> None:
        while True:
            if is_turning():
                self.say("WATCHDOG=1")
            await trio.sleep(self.watchdog_seconds / 3)
