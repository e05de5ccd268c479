"""The turns at the socket of a connection, and at its queues that go out.

The moves are those of `protocol.states`: what is done out of turn is an error here, and not bytes
that come before others on the wire.
"""

import trio

from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.states import (
    OUTGOING_MOVES,
    SOCKET_MOVES,
    OutgoingMove,
    OutgoingState,
    SocketMove,
    SocketState,
    moved,
)


class SocketTurn:
    """The turn at the socket of one connection."""

    def __init__(self) -> None:
        self.state = SocketState.TASKS
        self._is_back = trio.Event()  # of the pump that the socket is lent to
        self._is_back.set()

    @property
    def is_back(self) -> bool:
        """True when no live pump has the socket, and what one has left is taken."""
        return self._is_back.is_set()

    @property
    def is_working(self) -> bool:
        """True while the live pump runs."""
        return self.state is SocketState.WORKING

    def move(self, move: SocketMove) -> None:
        """Passes the turn on.

        Raises:
            LocalProtocolError: the move is not allowed in this state.
        """
        self.state = moved(SOCKET_MOVES, self.state, move, LocalProtocolError, "the socket")
        if self.state in (SocketState.TASKS, SocketState.OVER):
            self._is_back.set()
        elif self.state is SocketState.LENT:
            self._is_back = trio.Event()

    async def back(self) -> None:
        """Ends when `is_back`."""
        await self._is_back.wait()


class OutgoingTurn:
    """The turn at the queues that go out on one connection."""

    def __init__(self) -> None:
        self.state = OutgoingState.WRITER
        self.is_lent = False  # a live pump sends of them
        self.is_writers = True  # the writer looks at them

    def move(self, move: OutgoingMove) -> None:
        """Another one's turn.

        Raises:
            LocalProtocolError: it is not.
        """
        where = "the queues that go out"
        self.state = moved(OUTGOING_MOVES, self.state, move, LocalProtocolError, where)
        self.is_lent = self.state is OutgoingState.LENT
        self.is_writers = self.state is OutgoingState.WRITER
