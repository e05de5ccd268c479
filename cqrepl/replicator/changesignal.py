"""Waiting until something is true that other tasks bring about."""

from collections.abc import Awaitable, Callable

import trio


async def until(predicate: Callable[[], bool], changed: "Signal") -> None:
    """Waits until something is true, looking whenever `changed` says so."""
    while not predicate():
        await changed.wait()


class Signal:
    """Wakes everybody who waits, each time."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()
        self._event = trio.Event()

    def wait(self) -> Awaitable[None]:
        return self._event.wait()
