"""The program by which a host has task boards: its boards, and what clients ask of them."""

from collections.abc import Iterable
from typing import Final

from cqrepl.broker.fields import NO_BOARD, TEXT_MAX, TaskWords, Value
from cqrepl.broker.service import BoardService
from cqrepl.broker.taskkind import task_kind
from cqrepl.protocol import LinkView
from cqrepl.service.ledservice import ServiceDesk
from cqrepl.service.servicehalf import HalfAsked

# what a peer has to have for a request; all others only look
_RIGHTS: Final = {"submit": "submit"} | dict.fromkeys(("join", "finish", "fail", "leave"), "work")


class TaskDesk:
    """All boards of one host.

    Attributes:
        running: see `ServiceDesk.running`.

    Raises:
        ValueError: two boards have one name, or one group.
    """

    def __init__(self, boards: Iterable[BoardService]) -> None:
        desk: Final = ServiceDesk(boards)
        self.boards = desk.services
        self.running = desk.running
        self.kinds = (task_kind(is_asked=bool(self.boards)),)

    async def connected(self, link: LinkView) -> None:
        """A peer is there: it asks, if it wants to."""

    async def told(self, link: LinkView, event: object) -> None:
        """A client asks."""
        if not isinstance(event, HalfAsked):
            return
        half, said = event
        board = self.boards.get(half.name)
        right = _RIGHTS.get(said.name, "observe")
        if board is not None and (lacks := link.refusal(right, board.settings.group)):
            # no other host would do it
            told = {"ask": said.number("ask"), "outcome": "refused", "task": 0, "why": lacks}
            half.say(TaskWords("answer", told))
            return
        if board is not None:
            board.asked(half, said)
            return
        known = ", ".join(sorted(self.boards))
        why = f"expected one of the boards {known}, got {half.name[:TEXT_MAX]!r}"
        words: dict[str, Value] = {"ask": said.number("ask"), "outcome": NO_BOARD, "why": why}
        half.say(TaskWords("refused", words))
