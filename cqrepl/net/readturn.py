"""Whose turn it is to receive: the reader task's, or that of a live pump that the writer task runs.

There is one receiver of a socket at any time. The reader gives way between two receptions, when all
that came has been acted on.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

_PATIENCE_SECONDS: Final = 0.05  # the writer task has other things to do too


class ReadTurn:
    """One connection's; one task reads, one other takes the turn now and then."""

    def __init__(self) -> None:
        self._is_taken = False
        self._given = trio.Event()
        self._back = trio.Event()
        self._reading = trio.CancelScope()

    async def read(self, receive: Callable[[], Awaitable[int]]) -> int | None:
        """What `receive` gives; None when it was interrupted, or the turn was taken and is back."""
        if not self._is_taken:
            with trio.CancelScope() as self._reading:
                return await receive()
            if not self._is_taken:
                return None  # interrupted
        self._given.set()
        await self._back.wait()
        return None

    def interrupt(self) -> None:
        """Has the reader look at what there is to do."""
        self._reading.cancel()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[bool]:
        """For the length of a block no task reads; it begins when the reader has given way.

        A reader that has too much to do keeps its turn: the block begins all the same, with false.
        """
        self._given, self._back = trio.Event(), trio.Event()
        self._is_taken = True
        self._reading.cancel()
        try:
            with trio.move_on_after(_PATIENCE_SECONDS):
                await self._given.wait()
            self._is_taken = self._given.is_set()
            yield self._is_taken
        finally:
            self._is_taken = False
            self._back.set()
