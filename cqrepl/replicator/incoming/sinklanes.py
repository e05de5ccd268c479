"""The queues of a sink's session that a live pump has, and what is said of any queue's levels.

While a live pump runs, its lane says which levels were reached, behind the acknowledgements that it
holds back; otherwise the core does.

A lane is made once for a queue on a connection, and one live pump after the other goes on with it.
It has the pen, and with it the store file, only while a pump does: what closes the files of a queue
waits for no lane.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.net.lanemoves import SINK_LANES
from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.protocol import Connection
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.levels import LEVEL_OF
from cqrepl.protocol.sink import SinkHandler
from cqrepl.queue import QueueError
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.replicator.incoming.copylevels import await_stored, levels_of
from cqrepl.replicator.incoming.sinkqueue import SinkQueue

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane

# queues that are looked at with each one that grows: of a thousand that would take a millisecond
OTHERS_MAX: Final = 16


class SinkLanes:
    """Those of one connection.

    Args:
        ended: is told the name of a queue that a thread has no more.

    Attributes:
        each: of the live pump that runs.
    """

    def __init__(self, connection: Connection, pump: Pump, ended: Callable[[str], None]) -> None:
        self.each: list[tuple[SinkHandler, SinkQueue, SinkLane]] = []
        self._kept: dict[Cid, tuple[SinkHandler, SinkLane]] = {}  # for the next live pump
        self._connection = connection
        self._pump = pump
        self._ended = ended
        self._reserved: list[SinkQueue] = []  # in a thread that makes room in them
        # those that have grown, or were looked at for it: the one that was so first is next
        self._growing: dict[Cid, SinkQueue] = {}
        # what waits until neither has a queue
        self._waiting: list[tuple[SinkQueue, Callable[[], None]]] = []

    def of(self, only: str | None) -> "list[tuple[SinkHandler, SinkQueue, SinkLane]]":
        """Those of the live pump that runs; of one queue, where that is named."""
        return [lent for lent in self.each if only is None or lent[1].name == only]

    def lend(self, handler: SinkHandler, queue: SinkQueue) -> None:
        """A live pump takes a queue in from now on, where it can."""
        pen = queue.appender.pen
        if pen is None:
            return
        kept, lane = self._kept.get(handler.cid, (None, None))
        if lane is None or kept is not handler:
            lane = live.SinkLane(
                pen,
                handler.cid_document,
                self._connection.config.settings.payload_max,
                handler.offer.acknowledgement,
                queue.append_log.is_wanted,
                handler.acknowledged,
                handler.framing.has_runs,
            )
            self._kept[handler.cid] = handler, lane
        else:
            lane.go_on(pen, queue.append_log.is_wanted, handler.acknowledged)
        if queue.disk.is_at_once:
            await_stored(queue, lane)
        self.each.append((handler, queue, lane))

    def left(self, owner: object) -> None:
        """The live pump has come back: what its lanes have not said is said now.

        Args:
            owner: the session that takes queues in.
        """
        lanes, self.each = self.each, []
        for handler, queue, lane in lanes:
            lane.let_go()
            acknowledged, *told = lane.told
            handler.told_live(acknowledged, dict(zip(LEVEL_OF.values(), told, strict=True)))
            if queue.owner is owner and queue.life.stop is None:
                self.tell_all(handler, queue)
        self._act_on_waiting()
        SINK_LANES.check(lane for _, _, lane in lanes)

    def has(self, name: str) -> bool:
        """True while the live pump, or a thread that makes room, writes to the files of a queue."""
        lent = [queue for _, queue, _ in self.each]
        return any(queue.name == name for queue in (*self._reserved, *lent))

    def once_back(self, queue: SinkQueue, act: Callable[[], None]) -> None:
        """Does what closes the files of a queue, once neither writes to them: a pump writes long
        batches by the number of a descriptor, which would then be that of another file."""
        self._waiting.append((queue, act))
        if self.has(queue.name):
            self._pump.call_back()
        self._act_on_waiting()

    def _act_on_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for queue, act in waiting:
            if self.has(queue.name):
                self._waiting.append((queue, act))
            else:
                act()

    async def append(self, cid: Cid, queue: SinkQueue, batch: ExcerptBatch) -> None:
        """Makes room for a batch, in a thread, and appends it.

        Raises:
            QueueError, OSError: as `Appender.append_at`.
        """
        others = self._next_to_grow(cid)
        self._growing[cid] = queue
        self._reserved = [queue, *others]
        try:
            await in_thread(partial(reserve, queue, batch, others))
            queue.appender.append_refused(batch)
        finally:
            self._reserved = []
            self._act_on_waiting()
            for each in others:
                self._ended(each.name)

    def forget(self, cid: Cid) -> None:
        """The peer may use this cid for another queue from now on."""
        self._growing.pop(cid, None)
        self._kept.pop(cid, None)

    def _next_to_grow(self, but: Cid) -> list[SinkQueue]:
        """Others that may grow soon, and that take excerpts in here."""
        self._growing.pop(but, None)
        others = []
        for cid in list(islice(self._growing, OTHERS_MAX)):
            other = self._growing.pop(cid)
            if not self._connection.has_stopped(cid):
                self._growing[cid] = other
                if other.life.takes_on and not other.is_comparing:
                    others.append(other)
        return others

    def say(self, name: str, level: AckLevel, index: int) -> bool:
        """Has the live pump tell the source that a level is true of a queue up to an index; false
        where none has the queue. In any thread."""
        for handler, queue, lane in self.each:
            if queue.name == name:
                if handler.tells_levels:
                    lane.say_level(level, index)
                    self._pump.nudge()
                return True
        return False

    def keep_back(self, handler: SinkHandler, why: Mapping[AckLevel, str]) -> None:
        """Tells the source of a queue why levels are true of no more, "" for no reason."""
        told = [handler.keep_back(level, text) for level, text in why.items()]
        if any(told):
            self._pump.wake()

    def tell_all(self, handler: SinkHandler, queue: SinkQueue) -> None:
        """Tells what is true of a queue now: the source may have heard of none of it."""
        with suppress(QueueError, OSError):  # it is met again when the queue is looked at
            for level, index in levels_of(queue).items():
                handler.tell_level(level, index)

    def sync_at_once(self, queue: SinkQueue, level: AckLevel) -> None:
        """The source waits for a level; what a program has taken is told at once anyway."""
        if level is AckLevel.APPLIED:
            queue.beyond.is_applied_wanted = True
        if level is AckLevel.SYNCED:
            queue.disk.sync_at_once()
            for _, other, lane in self.each:
                if other is queue:
                    await_stored(queue, lane)


def reserve(queue: SinkQueue, batch: ExcerptBatch, others: Iterable[SinkQueue]) -> None:
    """Makes room for a batch, and for what comes next in queues that grow like this one."""
    queue.appender.reserve(batch)
    for other in others:
        if other is not queue and other.life.stop is None:
            with suppress(QueueError, OSError):  # it is met again with something to append
                other.appender.reserve_ahead()
