"""A program's own handlers, as small as they can be: one side asks, the other answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from cqrepl.protocol import LinkView
from cqrepl.protocol.cid import Cid
from wire import Reader, Writer

CAPABILITY = "echo"
NO_CID = Cid(0)


def text_document(name: str, text: str) -> bytes:
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(name)
        writer.text(text)
    return bytes(writer.data)


@dataclass(eq=False)
class Echo:
    """Either half: `say` goes to the peer's half, which says it back in capitals.

    Attributes:
        calls: how often it was asked or told anything, by method.
    """

    csp: str
    link: LinkView
    answers: bool
    cid: Cid = NO_CID
    deadline: float = math.inf
    waiting: list[bytes] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    closed_for: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        self._count("receive")
        if name != "say":
            return False
        text = reader.read_text() or ""
        self.heard.append(text)
        if self.answers:
            self.waiting.append(text_document("say", text.upper()))
        else:
            self.link.tell((self.csp, text))
        return True

    def tick(self, now: float) -> None:
        self._count("tick")
        self.deadline = math.inf

    def produce(self, room: int) -> bytes:
        self._count("produce")
        data = b"".join(self.waiting)
        self.waiting.clear()
        return data

    def closed(self, reason: str) -> None:
        self.closed_for.append(reason)

    def say(self, text: str) -> None:
        self.waiting.append(text_document("say", text))
        self.link.wake(self.cid)

    def _count(self, what: str) -> None:
        self.calls[what] = self.calls.get(what, 0) + 1


@dataclass(eq=False)
class EchoKind:
    """The row; keeps the halves that came of it."""

    alias: str = "!EchoHandler"
    needs: frozenset[str] = frozenset({CAPABILITY})
    takes_guests: bool = False
    made: list[Echo] = field(default_factory=list)

    def read_body(self, fields: Mapping[str, Reader]) -> str:
        text = fields["greeting"].read_text() if "greeting" in fields else None
        return text or ""

    def write_body(self, writer: Writer, body: object) -> None:
        writer.name("greeting")
        writer.text(str(body))

    def accept(self, csp: str, cid: Cid, body: object, link: LinkView, now: float) -> Echo | str:
        if body == "refuse me":
            return "as it asked for"
        self.made.append(Echo(csp, link, answers=True, cid=cid))
        return self.made[-1]


def register(link: LinkView, kind: EchoKind, csp: str, greeting: str = "hello") -> Echo:
    """Registers an echo at the peer; our half."""
    echo = Echo(csp, link, answers=False)
    echo.cid = link.register(csp, kind, greeting, echo)
    return echo
