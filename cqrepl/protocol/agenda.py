"""The deadlines of many handlers. Handlers that are idle add nothing to the cost.

A handler's deadline is an attribute, which the handler moves as it likes. The caller of a handler
notes the handler here afterwards (`note`). That is needed only where the deadline may have come
nearer. A deadline that has moved further away is found when its old time comes up, and put back.
"""

import heapq
import math
from collections.abc import Mapping
from typing import Final

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.subhandler import SubHandler

_SPARE: Final = 64  # times of handlers that are gone, before the heap is made anew


class Agenda:
    """Deadlines of the handlers of one connection, by cid."""

    def __init__(self, handlers: Mapping[Cid, SubHandler]) -> None:
        self._handlers = handlers
        self._heap: list[tuple[float, Cid]] = []
        self._planned: dict[Cid, float] = {}  # the nearest time in the heap, for each cid

    def note(self, cid: Cid) -> None:
        """The handler of this cid was called: its deadline may have come nearer."""
        deadline = self._handlers[cid].deadline
        if deadline < self._planned.get(cid, math.inf):
            self._plan(cid, deadline)

    def forget(self, cid: Cid) -> None:
        """The handler of this cid is gone."""
        self._planned.pop(cid, None)
        if len(self._heap) > _SPARE + 2 * len(self._planned):
            self._heap = [(time, cid) for cid, time in self._planned.items()]
            heapq.heapify(self._heap)

    @property
    def next_deadline(self) -> float:
        """The nearest deadline; infinity for none."""
        while self._heap:
            time, cid = self._heap[0]
            if self._planned.get(cid) == time:
                handler = self._handlers.get(cid)
                deadline = math.inf if handler is None else handler.deadline
                if deadline <= time:
                    return time
                del self._planned[cid]
                if deadline < math.inf:
                    self._plan(cid, deadline)
                    continue  # its old time is still in front
            if self._heap[0] == (time, cid):
                heapq.heappop(self._heap)
        return math.inf

    def due(self, now: float) -> list[Cid]:
        """The cids whose time has come; each is to be noted again once it was called."""
        cids = []
        while self.next_deadline <= now:
            _, cid = heapq.heappop(self._heap)
            del self._planned[cid]
            cids.append(cid)
        return cids

    def _plan(self, cid: Cid, deadline: float) -> None:
        self._planned[cid] = deadline
        heapq.heappush(self._heap, (deadline, cid))
