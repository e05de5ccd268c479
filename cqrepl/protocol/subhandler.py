"""Sub-handlers: what they are, how a program adds kinds of its own, and what each sees of its
connection.

A kind is one row of the closed table of a connection: the name under which the peer registers it,
its body, and what becomes of a registration. The rows of the core (`kinds`) come first; a program
hands its own to its source or sink. A peer names a row; it can never choose a class.
"""

from collections.abc import Mapping, Set
from typing import Protocol

from cqrepl.protocol.cid import Cid
from wire import Reader, Writer


class SubHandler(Protocol):
    """One half of a conversation: gets the data documents behind its cid.

    Driven by messages and by time; answers through its link and never calls back. All methods run
    in the connection's own tasks. An Exception that the connection does not expect ends it.
    """

    @property
    def csp(self) -> str:
        """The text path under which it was registered."""

    @property
    def deadline(self) -> float:
        """The latest time at which `tick` has to be called; infinity for never."""

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        """Takes the data document that starts with `name`; false when it knows no such message.

        Raises:
            WireError: the document cannot be read, which ends the connection.
        """

    def tick(self, now: float) -> None:
        """Does what is due."""

    def produce(self, room: int) -> bytes:
        """Whole data documents of about `room` bytes at most, without cid; empty for nothing.

        Asked while the connection has room to send: after each call of `receive` and `tick`, after
        `LinkView.wake`, and again until it gives nothing.
        """

    def closed(self, reason: str) -> None:
        """It has ended: the peer or our side removed it, or the connection is over. Called once."""


class LinkView(Protocol):
    """A connection as a sub-handler sees it. Not to be used from another thread."""

    @property
    def remote_id(self) -> int:
        """The peer's host id; 0 for a guest."""

    @property
    def capabilities(self) -> Set[str]:
        """The capabilities that the peer has announced; empty for Java, and for peers before the
        announcement."""

    def refusal(self, right: str, queue: str) -> str:
        """The reason that the peer may not do something with a queue; empty where it may.

        Args:
            right: its word, such as `fetch`.
        """

    def register(self, csp: str, kind: "HandlerKind", body: object, handler: SubHandler) -> Cid:
        """Registers a handler at the peer, with `handler` as our half; gives the cid.

        Raises:
            LocalProtocolError: the peer has not announced what the kind needs, the connection is
                not open, or it has all the handlers that it may have.
        """

    def send(self, cid: Cid, *documents: bytes) -> None:
        """Sends whole data documents to the peer's half; for little that cannot wait.

        Raises:
            LocalProtocolError: the cid has no handler, or a document is not whole.
        """

    def wake(self, cid: Cid) -> None:
        """The handler has something to `produce`."""

    def remove(self, cid: Cid, reason: str = "") -> None:
        """Ends a handler on both sides; its csp may be registered again, under another cid.

        Raises:
            LocalProtocolError: the cid has no handler.
        """

    def tell(self, event: object) -> None:
        """Hands an event to the program's own shell."""


class HandlerKind(Protocol):
    """One row of the closed table."""

    @property
    def alias(self) -> str:
        """Its name on the wire, like "!FetchHandler"."""

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that both sides must have announced; a host with this row announces them."""

    @property
    def takes_guests(self) -> bool:
        """True when a guest may register it."""

    def read_body(self, fields: Mapping[str, Reader]) -> object:
        """The body of a registration, from its fields by name.

        Raises:
            WireError: a field is missing, or is something else.
        """

    def write_body(self, writer: Writer, body: object) -> None:
        """Writes the fields of a body into an open block."""

    def accept(
        self, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler | str:
        """Our half for a registration of the peer's; a text says why it is refused."""
