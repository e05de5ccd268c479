"""The program by which a host has task boards: its boards, and what clients ask of them."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from cqrepl.broker.fields import TEXT_MAX, TaskWords
from cqrepl.broker.service import BoardService
from cqrepl.broker.taskkind import TaskAsked, TaskKind
from cqrepl.host import Host
from cqrepl.protocol import LinkView
from cqrepl.replicator.followfeed import Checkpoints


class TaskDesk:
    """All boards of one host.

    Raises:
        ValueError: two boards have one name, or one group.
    """

    def __init__(self, boards: Iterable[BoardService]) -> None:
        self.boards: dict[str, BoardService] = {}
        groups: dict[str, str] = {}
        for each in boards:
            if each.name in self.boards:
                raise ValueError(f"expected one board of a name, got two of {each.name!r}")
            other = groups.setdefault(each.settings.group, each.name)
            if other != each.name:
                raise ValueError(
                    f"expected a group for each board, got group {each.settings.group!r} for"
                    f" {other!r} and {each.name!r}"
                )
            self.boards[each.name] = each
        self.kinds = (TaskKind(frozenset(self.boards)),)

    async def connected(self, link: LinkView) -> None:
        """A peer is there: it asks, if it wants to."""

    async def told(self, link: LinkView, event: object) -> None:
        """A client asks."""
        if not isinstance(event, TaskAsked):
            return
        board = self.boards.get(event.half.board)
        if board is not None:
            board.asked(event.half, event.said)
            return
        known = ", ".join(sorted(self.boards))
        why = f"expected one of the boards {known}, got {event.half.board[:TEXT_MAX]!r}"
        ask = event.said.number("ask")
        event.half.say(TaskWords("refused", {"ask": ask, "why": why}))

    @asynccontextmanager
    async def running(
        self, host: Host, checkpoints: Callable[[BoardService], Checkpoints | None]
    ) -> AsyncIterator[None]:
        """For the length of a block in that of the host all boards run.

        Args:
            checkpoints: those of a board on this host.
        """
        async with AsyncExitStack() as stack:
            for each in self.boards.values():
                await stack.enter_async_context(each.running(host, checkpoints(each)))
            yield
