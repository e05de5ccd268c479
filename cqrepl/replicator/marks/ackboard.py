"""The progress of each sink host with a queue of a source, and waits for it in threads and tasks.

Theory of operation. The marks of a board are of this run of the source, and of what its sinks have
said: a host that comes again counts once it has said what it holds. They are raised where an
acknowledgement is taken, mostly in a native pump (`kernel.board`), and rise no further than what
the host was sent. Where a copy is found to differ, the host's mark is taken back, and its native
lane raises it no more.

A thread sleeps at the board, without the interpreter. A task waits for `changed`, and has the board
ring the bell; one task of the source hears it, counts what the native lanes hold, and sets
`changed`. All boards of a source have the same bell, those of queues that are opened late too.

A board that is armed rings as well, once, when what is wanted has come: that tells the source that
more of a queue is safe (`outgoing.commitwatch`). It happens all the time while excerpts flow, so
where no task waits nothing else is counted then.

What was told is not taken back: a wait that returns says that the hosts had the excerpt then. One
that ends otherwise says that this is not known. All waits end with the source. They also end where
its own queue can be read no further and all that was sent is acknowledged, until a stream of it
begins all the same. No sink ends a wait: what one sink refuses or holds otherwise another may take.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from itertools import islice
from typing import Final

import trio

from cqrepl.kernel.board import AckLevel, MarkBoard, MarkRow, Waited, new_bell
from cqrepl.net.eventloop import check_in_trio, is_in_loop
from cqrepl.queue.files.markslots import HOSTS
from cqrepl.queue.files.tablestore import TableValue
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.queuestate.queues import Signal

_GUESTS: Final = 0  # the row of all peers whose id is no host's
_LEVEL: Final = AckLevel.APPENDED

# an index, a number of hosts, a level, and the ids of the hosts that count
Wanted = tuple[int, int, AckLevel, tuple[int, ...] | None]


class WaitEnded(Exception):
    """A wait has ended, and whether the hosts have the excerpt is not known.

    Attributes:
        queue: name of the queue.
        index: what was waited for.
        why: what ended it.
    """

    def __init__(self, queue: str, index: int, why: str) -> None:
        super().__init__(queue, index, why)
        self.queue = queue
        self.index = index
        self.why = why

    def __str__(self) -> str:
        return f"queue {self.queue!r}: no wait for {format_index(self.index)}: {self.why}"


class AckBell:
    """The bell that wakes the event loop of a source, for all its boards.

    Attributes:
        changed: set when the bell has rung, and for all else that tasks of the source wait for.
        risen: the boards that were armed, and have what was wanted then, in the order in which the
            event loop has heard so.
        has_risen: set when there are more of them.
        task_waits: the number of waits of tasks for what a board does not have yet.

    Raises:
        OSError: no descriptor can be had.
    """

    def __init__(self) -> None:
        self.changed = Signal()
        self.risen: dict[AckBoard, None] = {}
        self.has_risen = Signal()
        self.task_waits = 0
        self._armed: dict[AckBoard, Wanted] = {}
        self._bell = new_bell()
        self._wanted: deque[str] = deque()  # queues of which a level is wanted that was not before

    def board(self, queue: str) -> "AckBoard":
        """The board of a queue of this name."""
        return AckBoard(queue, self._bell.board(), self)

    def take_wanted(self) -> list[str]:
        """The queues of which a level is waited for since the last call that was not before."""
        return [self._wanted.popleft() for _ in range(len(self._wanted))]

    def want(self, queue: str) -> None:
        """A level of a queue is waited for that was not before. Any thread calls this."""
        self._wanted.append(queue)
        self._bell.ring()

    def arm(self, board: "AckBoard", wanted: Wanted) -> None:
        """A board will ring when it has this."""
        self._armed[board] = wanted

    def disarm(self, board: "AckBoard") -> None:
        """It may ring, and nothing is to be made of it."""
        self._armed.pop(board, None)
        self.risen.pop(board, None)

    def is_armed(self, board: "AckBoard") -> bool:
        """True while a board has not what it was armed for, or nothing was made of it yet."""
        return board in self._armed or board in self.risen

    def look_again(self, board: "AckBoard") -> None:
        """Has a board looked at once more, behind all others that have risen."""
        self.risen[board] = None
        self.has_risen.set()

    def take_risen(self, most: int) -> "list[AckBoard]":
        """The first of `risen`, so many at most."""
        taken = list(islice(self.risen, most))
        for board in taken:
            del self.risen[board]
        return taken

    async def hear(self, count: Callable[[], None]) -> None:
        """Wakes the tasks that wait, each time that it rings.

        Args:
            count: has counted what native lanes hold.
        """
        while True:
            await trio.lowlevel.wait_readable(self._bell.fileno())
            self._bell.clear()
            if self._note_risen() and not (self._wanted or self.task_waits):
                continue
            count()
            self.changed.set()

    def _note_risen(self) -> bool:
        """Looks which of the armed boards have rung; false where none has."""
        rung = [board for board, wanted in self._armed.items() if board.has(wanted)]
        for board in rung:
            board.risen_to = self._armed.pop(board)[0]
            self.risen[board] = None
        if rung:
            self.has_risen.set()
        return bool(rung)


class AckBoard:
    """The marks of one queue; made by a source (`Source.board`).

    Any thread may ask and wait. What waits for names of hosts, or for their number:

    Args:
        index: everything up to this is waited for.
        n: so many hosts are to have it.
        hosts: ids from 1 to 127: only these count. One that is not known yet, or not connected, is
            waited for. None: all count, and peers whose id is no host's together as one.
        level: what is to be true of it there; a sink that does not tell levels, as Java's, only
            ever counts at `appended`.

    Attributes:
        queue: name of the queue.
        risen_to: the index that it was armed for when it rang last.
        told_to: the index up to which the queue was safe when its sinks were told last.
    """

    def __init__(self, queue: str, board: MarkBoard, bell: AckBell) -> None:
        self.queue = queue
        self.risen_to = -1
        self.told_to = -1
        self._board = board
        self._bell = bell
        self._why = ""  # why nothing more comes
        self._is_closed = False
        self._safe: tuple[memoryview, int, int, AckLevel, tuple[int, ...] | None] | None = None
        self.wanted = frozenset({_LEVEL})  # levels that anything has waited for

    def want(self, level: AckLevel) -> None:
        """Sinks are to tell this level at once, from now on."""
        if level not in self.wanted:
            self.wanted |= {level}
            self._bell.want(self.queue)

    @property
    def marks(self) -> Mapping[int, int]:
        """The index up to which each host has acknowledged in this run, by host id. Hosts that have
        acknowledged nothing are not in it. Id 0 stands for all peers whose id is no host's."""
        return dict(self._board.marks(_LEVEL))

    def marks_at(self, level: AckLevel) -> Mapping[int, int]:
        """The same at any level: up to where it is true of each host."""
        return dict(self._board.marks(level))

    def wait(
        self,
        index: int,
        n: int = 1,
        timeout: float | None = None,
        *,
        hosts: Iterable[int] | None = None,
        level: AckLevel = _LEVEL,
    ) -> None:
        """Returns when `n` hosts have acknowledged everything up to `index`. For threads: it holds
        up its own, and lets all others run.

        Args:
            timeout: in seconds; None for no limit.

        Raises:
            TimeoutError: it is not known whether they have it: the acknowledgement may be on its
                way.
            WaitEnded: the queue goes no further, the source has closed, or it asks for no
                acknowledgements.
            RuntimeError: called in a task, which has to leave the event loop running: there it is
                `wait_acked`.
            ValueError: arguments for which nothing could ever come.
        """
        wanted = _wanted(index, n, hosts, level)
        if is_in_loop():
            raise RuntimeError("a task of the event loop waits with wait_acked")
        self.wait_for(wanted, timeout)

    def wait_for(self, wanted: Wanted, timeout: float | None) -> None:
        """The same where all of that is known to be as it should be.

        Raises:
            TimeoutError, WaitEnded: as `wait`.
        """
        index, n, level, _ = wanted
        self.want(level)
        waited = self._board.wait(*wanted, timeout)
        if waited == Waited.REACHED:
            return
        if waited == Waited.UNKNOWN:
            raise TimeoutError(
                f"queue {self.queue!r}: {n} acknowledgements of {format_index(index)} expected"
                f" within {timeout} s"
            )
        raise WaitEnded(self.queue, index, self._why)

    async def wait_acked(
        self,
        index: int,
        n: int = 1,
        *,
        hosts: Iterable[int] | None = None,
        level: AckLevel = _LEVEL,
    ) -> None:
        """The same in a task; a time limit is a cancel scope.

        Raises:
            WaitEnded, ValueError: as `wait`.
            RuntimeError: not in a task of trio.
        """
        wanted = _wanted(index, n, hosts, level)
        check_in_trio("AckBoard.wait_acked")
        await self.wait_for_in_task(wanted)

    async def wait_for_in_task(self, wanted: Wanted) -> None:
        """The same where all of that is known to be as it should be.

        Raises:
            WaitEnded: as `wait`.
        """
        index, _, level, _ = wanted
        self.want(level)
        while not self._board.has(*wanted):
            if self.has_ended:
                raise WaitEnded(self.queue, index, self._why)
            with self._watched(wanted):
                await self._bell.changed.wait()

    def has(self, wanted: Wanted) -> bool:
        """True where that is so now."""
        return self._board.has(*wanted)

    def arm(self, wanted: Wanted) -> None:
        """Has the bell tell once that this board has what is wanted (`AckBell.risen`), unless
        nothing more comes."""
        if not self.has_ended:
            self._bell.arm(self, wanted)
            self._board.watch(*wanted)

    def keep_safe(
        self,
        word: TableValue,
        hosts_min: int,
        level: AckLevel,
        hosts: tuple[int, ...] | None,
    ) -> None:
        """Has a word of a table store rise to the index that so many of these hosts have at a
        level, the moment that it is known in any thread, while the board has not ended. The table
        store stays mapped until `close`.

        Args:
            hosts: their ids; None: all count, and guests.
        """
        if not self._is_closed:
            self._safe = (word.memory, word.position, hosts_min, level, hosts)
        if self._safe is not None and not self.has_ended:
            self._board.keep_safe(*self._safe)

    @property
    def is_armed(self) -> bool:
        """True from `arm` on until what comes of it is taken, or the board ends."""
        return self._bell.is_armed(self)

    def row(self, host_id: int) -> MarkRow:
        """The marks of a peer, to be raised."""
        return self._board.row(host_id if host_id in HOSTS else _GUESTS)

    def end(self, why: str) -> None:
        """Nothing more comes: all waits end."""
        if not self._is_closed:
            self._why = why
            self._bell.disarm(self)
            self._board.keep_none_safe()
            self._board.end()
            self._bell.changed.set()

    @property
    def has_ended(self) -> bool:
        """True while nothing more comes."""
        return bool(self._why)

    def go_on(self) -> None:
        """A stream has begun: there is something to wait for again."""
        if not self._is_closed:
            self._why = ""
            self._board.go_on()
            if self._safe is not None:
                self._board.keep_safe(*self._safe)

    def close(self, why: str) -> None:
        """Nothing comes any more."""
        self.end(why)
        self._is_closed = True
        self._safe = None

    def watched(
        self,
        index: int,
        n: int = 1,
        *,
        hosts: Iterable[int] | None = None,
        level: AckLevel = _LEVEL,
    ) -> AbstractContextManager[None]:
        """For the length of a block `changed` of the source is set when that is so.

        Raises:
            ValueError: as `wait`.
        """
        return self._watched(_wanted(index, n, hosts, level))

    @contextmanager
    def _watched(self, wanted: Wanted) -> Iterator[None]:
        self._bell.task_waits += 1
        watch = self._board.watch(*wanted)
        try:
            yield
        finally:
            self._bell.task_waits -= 1
            self._board.unwatch(watch)


def _wanted(index: int, n: int, hosts: Iterable[int] | None, level: AckLevel) -> Wanted:
    named = None
    if hosts is not None:
        named = named_hosts(hosts if isinstance(hosts, range | frozenset) else frozenset(hosts))
    if index < 0:
        raise ValueError(f"an index expected, {index} came")
    most = len(HOSTS) if named is None else len(named)
    if not 1 <= n <= most:
        raise ValueError(f"a number of hosts from 1 to {most} expected, {n} came")
    return index, n, level, named


@lru_cache(maxsize=256)
def named_hosts(hosts: range | frozenset[int]) -> tuple[int, ...]:
    """The ids in order. Kept: to look at each of 127 takes ten times as long as the rest of a wait
    for what is there.

    Raises:
        ValueError: an id that no host can have.
    """
    named = tuple(sorted(set(hosts)))
    if not all(host in HOSTS for host in named):
        raise ValueError(f"ids of hosts from 1 to 127 expected, {list(named)} came")
    return named
