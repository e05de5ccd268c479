"""A tailer for trio: `async for excerpt in follow(tailer)`; `cqrepl.aio.follow` is its twin.

Reading mapped memory never waits, so all there is to do here is to pause while there is nothing new
and to let other tasks run in between. It is no generator, so a caller that leaves the loop has
nothing to close.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Self

import trio

from cqrepl.net.eventloop import check_in_trio
from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.read.namedtailer import NamedTailer
from cqrepl.queue.read.pauser import Pauser
from cqrepl.queue.read.tailer import Tailer

_RUN: Final = 256  # excerpts between two checkpoints


class Following:
    """The excerpts of a tailer, for ever: the result of `follow`.

    Args:
        sleep: of the event loop; with 0 s it lets other tasks run.
        check: raises RuntimeError outside of that loop.
    """

    def __init__(
        self,
        tailer: Tailer | NamedTailer,
        pauser: Pauser | None,
        sleep: Callable[[float], Awaitable[None]],
        check: Callable[[], None],
    ) -> None:
        self._tailer = tailer
        self._pauser = Pauser(spins=0) if pauser is None else pauser
        self._sleep = sleep
        self._check = check
        self._given = 0

    def __aiter__(self) -> Self:
        self._check()
        return self

    async def __anext__(self) -> Excerpt:
        self._given += 1
        if self._given % _RUN == 0:
            await self._sleep(0)
        while (excerpt := self._tailer.next_excerpt()) is None:
            await self._sleep(self._pauser.next_delay() or 0)
        self._pauser.reset()
        return excerpt


def follow(tailer: Tailer | NamedTailer, pauser: Pauser | None = None) -> Following:
    """The excerpts that are there, then those to come, for ever; cancel it to end it.

    An excerpt's data is valid until the next one is asked for.
    """
    return Following(tailer, pauser, trio.sleep, _check_loop)


def _check_loop() -> None:
    check_in_trio("cqrepl.follow", in_asyncio="cqrepl.aio.follow")
