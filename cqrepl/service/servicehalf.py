"""The two halves of what a service and the other side say to each other, under `/SORT/NAME`.

Words are whatever a service has: they are encoded, may be longer than a document of a program, and
so go in pieces, both ways. The program of the service is told of each (`HalfAsked`).
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import trio

from cqrepl.protocol import LinkView, SubHandler
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.pieces import PieceReader, pieces
from wire import Reader, Writer

UNREAD_MAX: Final = 64 << 20  # bytes of answers to one client that has not taken them; then it ends


class Sayable(Protocol):
    """Words of one side."""

    def encoded(self) -> bytes:
        """Its bytes."""


W = TypeVar("W", bound=Sayable)


class Decoder(NamedTuple, Generic[W]):
    """Reads what the other side says.

    Args:
        decode: may raise WireError.
        bytes_max: of one message.
    """

    decode: Callable[[bytes], W]
    bytes_max: int


class HalfAsked(NamedTuple, Generic[W]):
    """The other side's words, for the program."""

    half: "Half[W]"
    said: W


class Half(Generic[W]):
    """One side of a conversation.

    Args:
        unread_max: so many bytes of answers wait at most for the other side to take them.

    Attributes:
        name: the last part of the csp: that of the service.
        is_over: the other side is gone; `ended` tells so.
        why: it is over; empty where the other side does not say.
        visitor: the name under which the service knows the other side; empty for none.
        unanswered: so many requests of the other side have no answer yet; the service counts.
    """

    deadline = math.inf

    def __init__(
        self,
        csp: str,
        link: LinkView,
        decoder: Decoder[W],
        cid: Cid | None = None,
        unread_max: float = math.inf,
    ) -> None:
        self.csp = csp
        self.name = csp.rpartition("/")[2]
        self.is_over = False
        self.why = ""
        self.visitor = ""
        self.unanswered = 0
        self.cid = cid  # of a client's half: once it is registered
        self.ended = trio.Event()
        self._link = link
        self._waiting: deque[tuple[bytes, int]] = deque()  # with what counts as unread
        self._unread = 0
        self._unread_max = unread_max
        self._decode = decoder.decode
        self._reader = PieceReader(decoder.bytes_max)

    def say(self, said: W, *, counts: bool = True) -> None:
        """Sends this. In the event loop.

        Args:
            counts: it is an answer: the other side may ask for as many as it likes.
        """
        if self.is_over:
            return
        if self._unread > self._unread_max:
            got = f"got one that has left {self._unread} bytes"
            self.end(f"expected a client that takes its answers, {got}")
            return
        for each in pieces(said.encoded()):
            self._waiting.append((each, len(each) if counts else 0))
            self._unread += self._waiting[-1][1]
        assert self.cid is not None
        self._link.wake(self.cid)

    @property
    def has_unsent(self) -> bool:
        """The other side has not taken all yet."""
        return bool(self._waiting)

    def end(self, why: str) -> None:
        """Ends the conversation on both sides."""
        if not self.is_over and self.cid is not None:
            self._link.remove(self.cid, why)

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        message = self._reader.take(name, reader)
        if message is not None:
            self._link.tell(HalfAsked(self, self._decode(message)))
        return True

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        if not self._waiting:
            return b""
        document, unread = self._waiting.popleft()
        self._unread -= unread
        return document

    def closed(self, reason: str) -> None:
        self.is_over = True
        self.why = reason
        self._waiting.clear()
        self.ended.set()


class ConversationKind(Generic[W]):
    """The row of the handler table.

    Args:
        alias: its name on the wire: `!TasksHandler`.
        capability: a host has such services.
        is_asked: this host has any; a client has none.
    """

    def __init__(
        self,
        alias: str,
        capability: str,
        decoder: Decoder[W],
        *,
        is_asked: bool,
        takes_guests: bool = True,
    ) -> None:
        self.alias = alias
        self.needs = frozenset({capability})
        self.takes_guests = takes_guests
        self._decoder = decoder
        self._is_asked = is_asked

    def read_body(self, fields: Mapping[str, Reader]) -> object:
        return None

    def write_body(self, writer: Writer, body: object) -> None:
        """It has none."""

    def accept(
        self, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler | str:
        if not self._is_asked:
            return f"expected a host that has it, got a client asked for {csp!r}"
        return Half(csp, link, self._decoder, cid, UNREAD_MAX)
