"""Tells a source, on one connection, of queues that it can offer to the sink again.

These are queues whose pauses are over, and queues that another source gives back. A queue pauses
over what this machine, or its source, cannot do for now (`pause`). The reason is logged once, and
once more that it goes on.
"""

import logging
import math
from collections.abc import Mapping
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.queuelife import CopyMove
from cqrepl.replicator.incoming.masters import QueuesFromHere
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.queues import Signal, is_meant
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


class SinkPauses:
    """The pauses of a sink's queues, as the peer of one connection is told of them.

    Args:
        from_here: says which queues are taken from that peer.
        changed: is set when a queue pauses, or goes on.
    """

    def __init__(
        self,
        queues: Mapping[str, SinkQueue],
        connection: Connection,
        pump: Pump,
        from_here: QueuesFromHere,
        changed: Signal,
    ) -> None:
        self._queues = queues
        self._connection = connection
        self._pump = pump
        self._from_here = from_here
        self._changed = changed
        # queues that this peer is told of again when their pauses are over
        self._waiting = {queue for queue in queues.values() if not queue.pause.is_over}
        self._has_news = Signal()

    def hear(self, queue: SinkQueue, message: str) -> None:
        """The source cannot read a queue for now, and says why; it offers it again."""
        life = queue.life
        if life.stop is not None or (life.trouble is not None and not life.trouble.is_peers):
            return
        self.begin(queue, Stop.met_by_peer(queue.name, message), is_told=False)
        self._changed.set()

    def begin(self, queue: SinkQueue, trouble: Stop, *, is_told: bool) -> None:
        """A queue pauses.

        Args:
            is_told: as of `Pause.begin`.
        """
        queue.life.try_move(CopyMove.PAUSE, trouble)  # or what it has ended for is graver
        if queue.pause.begin(trouble.message, is_told=is_told):
            level = logging.INFO if is_meant(trouble.message) else logging.ERROR
            told = "%s: queue %r pauses: %s"
            _logger.log(level, told, self._pump.label, queue.name, trouble.message)

    def leave(self, queue: SinkQueue, left: Stop, *, is_elsewhere: bool = False) -> None:
        """The source goes no further with a queue: nothing comes any more on this connection.

        Args:
            is_elsewhere: another connection has the queue, so that this changes nothing for it.
        """
        if not is_elsewhere:
            queue.life.try_move(CopyMove.LEAVE, left)  # or what it has stopped for is graver
        self._pump.log.tell(logging.ERROR, self._pump.label, left.line)
        self._changed.set()

    def end(self, queue: SinkQueue) -> None:
        """Something of a queue has got through, or nothing is to come that might fail again."""
        if queue.pause.is_on:
            queue.life.try_move(CopyMove.GO_ON)
            queue.pause.forget()
            self._has_news.set()
            self._changed.set()

    async def work(self) -> None:
        """Tells this peer of queues whose pauses are over, and people of those that go on."""
        while True:
            for queue in self._queues.values():
                if queue.pause.takes_firm() and queue.life.stop is None:
                    _logger.info("%s: queue %r goes on", self._pump.label, queue.name)
            for queue in sorted(self._waiting, key=lambda queue: queue.name):
                if self._queues.get(queue.name) is not queue:  # it was removed
                    self._waiting.discard(queue)
                elif queue.pause.is_over:
                    self._waiting.discard(queue)
                    self.tell_free(queue)
                    self._pump.wake()
            until = min((queue.pause.until for queue in self._waiting), default=math.inf)
            firms = (queue.pause.firm_at for queue in self._queues.values())
            with trio.move_on_at(min((until, *firms))):
                await self._has_news.wait()

    def tell_free(self, queue: SinkQueue) -> None:
        """Tells this peer whether a queue can be offered now, if it is taken from there."""
        if self._from_here.refusal(queue) is not None:
            return
        if not queue.pause.is_over:
            self._waiting.add(queue)
            self._has_news.set()
        names, nothing = QueueNames(sinks=frozenset({queue.name})), QueueNames()
        if queue.is_free:
            self._connection.change_queues(added=names, removed=nothing)
        else:
            self._connection.change_queues(added=nothing, removed=names)
