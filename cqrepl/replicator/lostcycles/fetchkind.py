"""Gives closed cycles of a host's queues to guests that ask: what `cqrepl repair --from` takes.

A guest registers a FetchHandler under `/fetch/NAME` with the number of a cycle, and gets all of its
excerpts, or why not. A cycle that is still written to is never given: it may end anywhere.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.fetches import (
    COUNT_MAX,
    DATA_MAX,
    write_fetched,
    write_refused,
    write_stretch,
)
from cqrepl.protocol.subhandler import LinkView, SubHandler
from cqrepl.queue import Queue, QueueError, Tailer
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, index_of, sequence_of
from cqrepl.queue.read.count import count_in
from wire import Reader, Writer

FETCH_CAPABILITY: Final = "fetch"
CSP_PREFIX: Final = "/fetch/"
_CYCLE: Final = "cycle"


@dataclass(frozen=True, slots=True)
class FetchKind:
    """The row of the handler table.

    Args:
        paths: the directories of the queues that are given, by name; none on the side that asks.
        gives: is told of each store file that is asked for (1), and of its end (-1).
    """

    paths: Mapping[str, Path]
    gives: Callable[[int], None] = lambda change: None
    alias: str = "!FetchHandler"
    needs: frozenset[str] = frozenset({FETCH_CAPABILITY})
    takes_guests: bool = True

    def read_body(self, fields: Mapping[str, Reader]) -> int:
        return fields[_CYCLE].read_int() if _CYCLE in fields else -1

    def write_body(self, writer: Writer, body: object) -> None:
        assert isinstance(body, int)
        writer.name(_CYCLE)
        writer.integer(body)

    def accept(
        self, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler | str:
        assert isinstance(body, int)
        path = self.paths.get(csp.removeprefix(CSP_PREFIX))
        if path is None or not csp.startswith(CSP_PREFIX):
            return _Giver(csp, None, "there is no queue of this name here", Cycle(body), self.gives)
        if why := link.refusal("fetch", csp.removeprefix(CSP_PREFIX)):
            return _Giver(csp, None, why, Cycle(body), self.gives)
        return _Giver(csp, path, "", Cycle(body), self.gives)


class _Giver:
    """Our half: reads a cycle as fast as it is taken."""

    deadline = math.inf

    def __init__(
        self,
        csp: str,
        path: Path | None,
        why_not: str,
        cycle: Cycle,
        gives: Callable[[int], None],
    ) -> None:
        self.csp = csp
        self._gives = gives
        self._is_over = path is None
        if path is not None:
            gives(1)
        self._path = path
        self._cycle = cycle
        self._waiting: deque[bytes] = deque()
        self._queue: Queue | None = None
        self._tailer: Tailer | None = None
        self._count = self._given = 0
        self._has_begun = path is None
        if path is None:
            self._waiting.append(write_refused(why_not))

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        return False  # the guest says nothing more

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        if not self._waiting:
            try:
                if not self._has_begun:
                    self._begin()
                self._read()
            except (QueueError, OSError) as error:
                self._refuse(str(error))
        return self._waiting.popleft() if self._waiting else b""

    def closed(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._gives(-1)
        if self._tailer is not None:
            self._tailer.close()
            self._tailer = None
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _begin(self) -> None:
        assert self._path is not None
        self._has_begun = True
        self._queue = queue = Queue.open(self._path)
        cycles = queue.cycles
        if self._cycle < 0 or not cycles.has(self._cycle):
            self._refuse("it has no store file of this cycle")
            return
        if not cycles.has_ended(self._cycle):
            self._refuse("its store file is still written to")
            return
        self._count = count_in(cycles, self._cycle)
        cycles.check_closed(self._cycle, self._count, is_closed=True)
        self._tailer = queue.tailer(index_of(self._cycle, SEQUENCE_FIRST, cycles.shift))

    def _read(self) -> None:
        if self._tailer is None or self._queue is None:
            return
        left = self._count - self._given
        if not left:
            self._waiting.append(write_fetched(self._count))
            self.closed("all was given")
            return
        batch = self._tailer.next_batch(
            count_max=min(left, COUNT_MAX), bytes_max=DATA_MAX, payload_max=NO_LIMIT
        )
        wanted = index_of(self._cycle, SEQUENCE_FIRST, self._queue.cycles.shift) + self._given
        if batch is None or batch.index_first != wanted:
            self._refuse("its store file ends before its index says so")
            return
        data = b"".join(bytes(payload) for _, payload in batch)
        first = sequence_of(batch.index_first, self._queue.cycles.shift)
        self._waiting.extend(write_stretch(first, batch.lengths, data))
        self._given += len(batch)

    def _refuse(self, why: str) -> None:
        self._waiting.append(write_refused(why))
        self.closed(why)
