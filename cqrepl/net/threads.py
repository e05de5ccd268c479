"""Work that would hold up the event loop, in a thread where there are threads.

The way into a thread and back is two wake-ups: where many tasks have a little to do at the same
moment, that is most of what they cost. Such tasks go that way together.
"""

import errno
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

import trio

from cqrepl.surroundings import NO_THREAD, is_no_thread, surroundings

T = TypeVar("T")
TURN_SECONDS: Final = 0.000_1  # that other threads have between two pieces


class NoThread(OSError):
    """There is no thread to be had now, as where a limit of processes is reached. The work was not
    begun."""


class InThread(Protocol):
    """Does some work that the event loop does not wait for."""

    async def __call__(self, work: Callable[[], T], /) -> T:
        """The result of `work`; raises what `work` raises."""


class _Begun(Generic[T]):
    """Work for a thread, which tells whether one has begun it; `func` as of `functools.partial`."""

    def __init__(self, func: Callable[[], T]) -> None:
        self.func = func
        self.has_begun = False

    def __call__(self) -> T:
        self.has_begun = True
        return self.func()


async def in_thread(
    work: Callable[[], T],
    *,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """The result of `work`, for which the event loop does not wait.

    Args:
        abandon_on_cancel: a task that is cancelled does not wait for it either.

    Raises:
        NoThread: there is none now; that passes.
    """
    here = surroundings()
    if here.has_threads:
        begun = _Begun(work)
        try:
            return await trio.to_thread.run_sync(
                begun, limiter=limiter, abandon_on_cancel=abandon_on_cancel
            )
        except RuntimeError as error:
            if begun.has_begun or not is_no_thread(error):
                raise
            raise NoThread(errno.EAGAIN, NO_THREAD) from error
    await trio.sleep(here.thread_seconds())
    here.give_time()
    return work()


class _Piece:
    """The work of one task."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.told = trio.Event()  # it is done, or its task is to take the next ones along
        self.is_done = False
        self._work = work
        self._error: BaseException | None = None

    def do(self) -> None:
        """In the thread."""
        with _Failing([self], Exception):
            self._work()
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        """It is raised in the task that the work is of."""
        self._error, self.is_done = error, True

    def check(self) -> None:
        if self._error is not None:
            raise self._error


class _Failing:
    """Within a block: an error of this kind is that of those pieces that are not done."""

    def __init__(self, pieces: list[_Piece], kind: type[BaseException]) -> None:
        self._pieces = pieces
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, self._kind):
            return False
        for each in self._pieces:
            if not each.is_done:
                each.fail(error)
        return True


class Together:
    """Work of several tasks that goes into one thread together, and is done there one after the
    other. What comes meanwhile goes with the next one.

    Args:
        pieces_max: so much goes together at most: no task has its result before all of it is done.

    Attributes:
        ways: how often the way was gone so far.
    """

    def __init__(self, pieces_max: int) -> None:
        self.ways = 0
        self._pieces_max = pieces_max
        self._waiting: list[_Piece] = []
        self._is_under_way = False

    async def do(self, work: Callable[[], T], /) -> T:
        """The result of `work`. As in a thread, the work goes on though its task is cancelled.

        Raises:
            Exception: what `work` raises; no other task hears of it.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        given: list[T] = []
        piece = _Piece(lambda: given.append(work()))
        self._waiting.append(piece)
        with trio.CancelScope(shield=True):
            if self._is_under_way:
                await piece.told.wait()
            if not piece.is_done:
                await self._go()
        piece.check()
        return given[0]

    async def _go(self) -> None:
        """Takes all along that waits. The first one that is left goes next."""
        self._is_under_way = True
        await trio.lowlevel.checkpoint()  # for others that have something to do at this very moment
        taken = self._waiting[: self._pieces_max]
        self._waiting = self._waiting[self._pieces_max :]
        self.ways += 1
        with _Failing(taken, BaseException):  # as where there is no thread: the rest is not done
            await in_thread(partial(_do_all, taken))
        for each in taken:
            each.told.set()
        self._is_under_way = bool(self._waiting)
        if self._waiting:
            self._waiting[0].told.set()


def _do_all(pieces: list[_Piece]) -> None:
    """A thread of the program that has just been woken gets the interpreter between two pieces:
    one that works on, with short calls of the system, would keep it for 5 ms."""
    pauses = surroundings().has_threads
    for nth, each in enumerate(pieces):
        if nth and pauses:
            time.sleep(TURN_SECONDS)
        each.do()
