"""The two halves of what a task board and its clients say to each other, under `/tasks/BOARD`.

A client asks: `submit`, `show`, `list`, `workers`; a worker says `join`, `finish`, `fail`, `leave`
and, to be heard of, `beat`. Each has a number (`ask`), which the answer repeats. What is asked may
be longer than a document of a program, so it goes in pieces, both ways. To a worker that has joined
the board sends `work` unasked. A host that does not lead answers `refused`, with who does.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

import trio

from cqrepl.broker.fields import MESSAGE_MAX, TaskWords, decode
from cqrepl.protocol import LinkView, SubHandler
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.pieces import PieceReader, pieces
from wire import Reader, Writer

TASKS_CAPABILITY: Final = "tasks"
CSP_PREFIX: Final = "/tasks/"
ASKS_MAX: Final = 1024  # of one client, that are not answered yet


class TaskAsked(NamedTuple):
    """A client's word, for the program."""

    half: "Half"
    said: TaskWords


class Half:
    """One side of the conversation.

    Attributes:
        is_over: the other side is gone; `ended` tells so.
        worker: the name of the worker at the other side; empty for none.
    """

    deadline = math.inf

    def __init__(self, csp: str, link: LinkView, cid: Cid | None = None) -> None:
        self.csp = csp
        self.board = csp.removeprefix(CSP_PREFIX)
        self.is_over = False
        self.worker = ""
        self.unanswered = 0
        self.cid = cid  # of a client's half: once it is registered
        self.ended = trio.Event()
        self._link = link
        self._waiting: deque[bytes] = deque()
        self._reader = PieceReader(MESSAGE_MAX)

    def say(self, said: TaskWords) -> None:
        """Sends this. In the event loop."""
        if not self.is_over:
            self._waiting.extend(pieces(said.encoded()))
            assert self.cid is not None
            self._link.wake(self.cid)

    def end(self, why: str) -> None:
        """Ends the conversation on both sides."""
        if not self.is_over and self.cid is not None:
            self._link.remove(self.cid, why)

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        message = self._reader.take(name, reader)
        if message is not None:
            self._link.tell(TaskAsked(self, decode(message)))
        return True

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        return self._waiting.popleft() if self._waiting else b""

    def closed(self, reason: str) -> None:
        self.is_over = True
        self._waiting.clear()
        self.ended.set()


class TaskKind:
    """The row of the handler table.

    Args:
        boards: the names of those that this host has; empty for a client.
    """

    alias = "!TasksHandler"
    needs = frozenset({TASKS_CAPABILITY})
    takes_guests = True

    def __init__(self, boards: frozenset[str] = frozenset()) -> None:
        self._boards = boards

    def read_body(self, fields: Mapping[str, Reader]) -> object:
        return None

    def write_body(self, writer: Writer, body: object) -> None:
        """It has none."""

    def accept(
        self, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler | str:
        name = csp.removeprefix(CSP_PREFIX)
        if name not in self._boards:
            known = ", ".join(sorted(self._boards)) or "none"
            return f"expected one of the boards {known}, got {name!r}"
        return Half(csp, link, cid)
