"""Begins the streams of one connection: at once, or later for a sink that asks again and again."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import trio

from cqrepl.net.pump import Pump
from cqrepl.protocol.cid import Cid
from cqrepl.replicator.marks.resends import is_resend
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.queuestate.queues import Signal

Start = Callable[[Outgoing, int], None]  # from an index on


class _Later(NamedTuple):
    """A stream that begins at a time, by trio's clock."""

    due_at: float
    each: Outgoing
    next_index: int


class ResendDesk:
    """The streams that are to begin.

    Args:
        outgoing: the queues that are on the connection, as they come and go.
    """

    def __init__(self, outgoing: Mapping[Cid, Outgoing], pump: Pump) -> None:
        self._outgoing = outgoing
        self._pump = pump
        self._later: list[_Later] = []
        self._has_later = Signal()

    def begin(self, each: Outgoing, next_index: int, start: Start) -> None:
        """The sink wants everything from this index on."""
        now = trio.current_time()
        is_again = is_resend(next_index, each.marks.had, each.shift)
        due_at = each.marks.resends.next(now) if is_again else now
        if due_at <= now:
            start(each, next_index)
            return
        why = f"queue {each.queue.name!r}: asked for once more, begins in {due_at - now:.0f} s"
        self._pump.log.tell(logging.WARNING, self._pump.label, why)
        self._later.append(_Later(due_at, each, next_index))
        self._has_later.set()

    async def run(self, start: Start) -> None:
        """Begins what is due, for as long as the connection is there.

        Args:
            start: begins the stream of one queue. It is not kept: the session would keep itself,
                and all its buffers, after its end.
        """
        while True:
            with trio.move_on_at(min((later.due_at for later in self._later), default=math.inf)):
                await self._has_later.wait()
            due = [later for later in self._later if later.due_at <= trio.current_time()]
            for later in due:
                self._later.remove(later)
                # the sink, or a stop, may have ended it meanwhile
                each = self._outgoing.get(later.each.cid)
                if each is later.each and each.is_going_on:
                    start(each, later.next_index)
                    self._pump.look()
