"""A reception that can be broken off: the reader task waits for its peer, and for what else there
is to do.
"""

from collections.abc import Awaitable, Callable

import trio


class Reception:
    """One connection's; one task reads."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()

    async def read(self, receive: Callable[[], Awaitable[int]]) -> int | None:
        """The result of `receive`; None when it was interrupted."""
        with trio.CancelScope() as self._scope:
            return await receive()
        return None

    def interrupt(self) -> None:
        """Has the reader look at what there is to do; nothing when it does not wait."""
        self._scope.cancel()
