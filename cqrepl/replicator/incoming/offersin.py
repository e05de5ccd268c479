"""The queues that are offered on one connection of a sink: answers several at a time, and knows the
cid of each."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.sink import SinkHandler
from cqrepl.replicator.queuestate.queueturns import few_at_a_time

OFFERS_MAX: Final = 1024  # that wait for their turn


class OffersIn:
    """The offers of one connection.

    Args:
        pump: is told that an answer may have brought something to act on.
    """

    def __init__(self, pump: Pump, connection: Connection) -> None:
        self._pump = pump
        self._connection = connection
        self._cids: dict[str, Cid] = {}  # of the queues that are offered here, by name
        self._came, self._due = trio.open_memory_channel[ev.QueueOffered](OFFERS_MAX)

    def cid_of(self, name: str) -> Cid | None:
        """The cid of a queue that is offered here; also of one that has stopped."""
        return self._cids.get(name)

    def handler_of(self, name: str) -> SinkHandler | None:
        """The handler of a queue that is offered here, and has not stopped."""
        cid = self._cids.get(name)
        is_on = cid is not None and not self._connection.has_stopped(cid)
        return self._connection.sink(cid) if is_on and cid is not None else None

    def have_stopped(self, name: str) -> bool:
        """True where a queue was offered here, and goes no further on this connection: its source
        offers it on the next one."""
        cid = self._cids.get(name)
        return cid is not None and self._connection.has_stopped(cid)

    async def take(self, event: ev.QueueOffered) -> None:
        """A queue is offered: its answer has its turn later."""
        self._cids[event.name] = event.cid
        await self._came.send(event)

    def forget(self, cid: Cid, name: str) -> None:
        """A queue is on the connection no more, at least not behind this cid."""
        if self._cids.get(name) == cid:
            del self._cids[name]

    async def work(self, answer: Callable[[ev.QueueOffered], Awaitable[None]]) -> None:
        """Answers, for as long as the connection is there.

        Args:
            answer: answers one. It is not kept: a circle would keep the buffers of what is over.
        """
        await few_at_a_time(self._due, partial(self._answer, answer))

    async def _answer(
        self, answer: Callable[[ev.QueueOffered], Awaitable[None]], event: ev.QueueOffered
    ) -> None:
        await answer(event)
        self._pump.look()
