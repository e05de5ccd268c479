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
UNREAD_MAX: Final = 64 << 20  # bytes of answers to one client that has not taken them; then it ends


class TaskAsked(NamedTuple):
    """A client's word, for the program."""

    half: "Half"
    said: TaskWords


class Half:
    """One side of the conversation.

    Args:
        unread_max: so many bytes of answers wait at most for the other side to take them.

    Attributes:
        is_over: the other side is gone; `ended` tells so.
        why: it is over; empty where the other side does not say.
        worker: the name of the worker at the other side; empty for none.
    """

    deadline = math.inf

    def __init__(
        self, csp: str, link: LinkView, cid: Cid | None = None, unread_max: float = math.inf
    ) -> None:
        self.csp = csp
        self.board = csp.removeprefix(CSP_PREFIX)
        self.is_over = False
        self.why = ""
        self.worker = ""
        self.unanswered = 0
        self.cid = cid  # of a client's half: once it is registered
        self.ended = trio.Event()
        self._link = link
        self._waiting: deque[tuple[bytes, int]] = deque()  # with what counts as unread
        self._unread = 0
        self._unread_max = unread_max
        self._reader = PieceReader(MESSAGE_MAX)

    def say(self, said: TaskWords) -> None:
        """Sends this. In the event loop."""
        if self.is_over:
            return
        if self._unread > self._unread_max:
            got = f"got one that has left {self._unread} bytes"
            self.end(f"expected a client that takes its answers, {got}")
            return
        is_work = said.name == "work"  # of which a worker has only so much as it has slots
        for each in pieces(said.encoded()):
            self._waiting.append((each, 0 if is_work else len(each)))
            self._unread += self._waiting[-1][1]
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
        if not self._boards:
            return f"expected a host with boards, got a client asked for {csp!r}"
        return Half(csp, link, cid, UNREAD_MAX)
