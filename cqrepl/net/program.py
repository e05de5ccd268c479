"""The work of a program on the connections of a source or sink, beside the queues."""

from typing import Protocol

from cqrepl.protocol.subhandler import HandlerKind, LinkView


class Program(Protocol):
    """Handed to a source or sink; its methods run in the tasks of each connection.

    While one of them waits, nothing more is read from that peer. That a connection is over, its
    handlers hear (`SubHandler.closed`). An Exception ends the connection, and is logged.
    """

    @property
    def kinds(self) -> tuple[HandlerKind, ...]:
        """The rows that it adds to the handler table; the same for the whole run."""

    async def connected(self, link: LinkView) -> None:
        """A peer is there: it may be given handlers."""

    async def told(self, link: LinkView, event: object) -> None:
        """One of its handlers has told this (`LinkView.tell`)."""
