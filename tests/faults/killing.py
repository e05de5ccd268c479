"""A source and a sink with the relay between them, killed at chosen documents.

    dialler --- relay --- listener

The relay passes on excerpts up to a chosen one. In place of that one it kills a process, passes on
half of the document, and closes both sockets. The killed side is started again, and its peer
finds it through the relay.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from cqrepl.queue import NotAQueue, Queue
from tests.support.commands import Command, Start, commands, until
from tests.support.relay import NOBODY, Action, Relay, drop_entry

UNTIL_DONE: Final = {"source": ("--until-caught-up", "--accept-returns", "2"), "sink": ("--once",)}
_NO_INDEX: Final = 1 << 63
_EXCERPT: Final = b"\xc2re\x82"
_INDEX: Final = slice(13, 21)
_RUN: Final = b"\xc3run"
_RUN_INDEX: Final = slice(14, 22)
_RUN_COUNT: Final = slice(23, 27)
FRAMES: Final = ("--frames",)
RUNS: Final = ("--runs",)


def excerpt_index(raw: bytes) -> int | None:
    """The index in a replication event, the last one in a run; None for every other document."""
    if raw[4:8] == _RUN:
        count = int.from_bytes(raw[_RUN_COUNT], "little")
        return int.from_bytes(raw[_RUN_INDEX], "little") + count - 1
    return int.from_bytes(raw[_INDEX], "little") if raw[4:8] == _EXCERPT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Two queue directories, and what is between them.

    Args:
        indexes: of all excerpts of both, rising.
        sender: the role that sends excerpts; the sink only in a back copy.
        options: of both sides.
    """

    source: Path
    sink: Path
    indexes: Sequence[int]
    dialler: str = "sink"
    sender: str = "source"
    options: tuple[str, ...] = ()

    @property
    def has_frames(self) -> bool:
        """True when each excerpt is a document of its own."""
        return self.options == FRAMES

    def copied(self) -> int:
        """The number of excerpts that the side that takes them holds."""
        try:
            with Queue.open(self.sink if self.sender == "source" else self.source) as queue:
                last = queue.last_index()
        except NotAQueue:  # not made yet
            return 0
        return 0 if last is None else bisect_right(self.indexes, last)


class Pair:
    """The two processes and the relay; made by `pair`."""

    def __init__(self, case: Case, start: Start) -> None:
        self.case = case
        self.relay = Relay(
            NOBODY, dialler=case.dialler, on_document=self.on_document, on_entry=drop_entry
        )
        self._start = start
        self._running: dict[str, Command] = {}
        self._stop_at = _NO_INDEX
        self._reached, self._killed = trio.Event(), trio.Event()

    async def kill(self, role: str, passed: int, least: int, *, in_flight: bool) -> int:
        """Kills one side once at least `least` excerpts are stored; `passed` are passed on at most.

        Starts what does not run before. Fewer than `least` must be stored then.

        Args:
            in_flight: kills as soon as that is so; otherwise when all `passed` were passed on.
                Where runs are sent, also when one was met that holds more: then fewer are stored.

        Returns:
            How many are stored when it is dead.
        """
        self._stop_at = self.case.indexes[passed]
        self._reached, self._killed = trio.Event(), trio.Event()
        await self._launch()
        if not in_flight:
            await self._reached.wait()
        await until(
            lambda: (
                self.case.copied() >= least or (self._reached.is_set() and not self.case.has_frames)
            )
        )
        if role != self.case.dialler:  # another process may listen at its port before long
            self.relay.target = NOBODY
        await self._running[role].kill()
        self._killed.set()
        return self.case.copied()

    async def finish(self) -> None:
        """Lets everything pass, until both have ended in order."""
        self._stop_at = _NO_INDEX
        await self._launch()
        for command in self._running.values():
            await command.succeeds()

    def on_document(
        self, _conn: int, sender: str, _number: int, raw: bytes
    ) -> Action | Awaitable[Action]:
        """The relay's question about a document: what to do with it."""
        index = excerpt_index(raw) if sender == self.case.sender else None
        if index is None or index < self._stop_at:
            return Action.FORWARD
        # what a dead source left on the way is not to pass the stop either
        return Action.CUT_INSIDE if self._killed.is_set() else self._hold()

    async def _hold(self) -> Action:
        """The process dies while the document waits; what is left gets half of it at most."""
        self._reached.set()
        await self._killed.wait()
        return Action.CUT_INSIDE

    async def _launch(self) -> None:
        """Starts the sides that do not run, the one that listens first."""
        queues = {"source": self.case.source, "sink": self.case.sink}
        for role in sorted(queues, key=lambda role: role == self.case.dialler):
            if role in self._running and not self._running[role].ended.is_set():
                continue
            address = ("--listen", "127.0.0.1:0")
            if role == self.case.dialler:
                address = ("--connect", f"127.0.0.1:{self.relay.port}")
            options = *UNTIL_DONE[role], *self.case.options
            command = await self._start(role, f"q={queues[role]}", *address, *options)
            self._running[role] = command
            if role != self.case.dialler:
                self.relay.target = ("127.0.0.1", await command.port())


@asynccontextmanager
async def pair(case: Case, seconds: float = 300) -> AsyncIterator[Pair]:
    """A pair that is not started yet, and the relay; both are gone after the block."""
    async with commands(seconds) as start:
        made = Pair(case, start)
        async with made.relay.running():
            yield made
