"""What a sink says, on one connection, of what its queues hold: with its answers, and when its
source searches for where the two copies begin to differ."""

from dataclasses import replace
from functools import partial
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue import Diverged, IndexGap, QueueError
from cqrepl.queue.format.index import Index
from cqrepl.replicator.lineage import held
from cqrepl.replicator.sinkqueue import SinkQueue

PENDING_SECONDS: Final = 1.0  # between two words that an answer takes its time


class ProofDesk:
    """Of one connection."""

    def __init__(self, connection: Connection, pump: Pump) -> None:
        self._connection = connection
        self._pump = pump

    async def held(self, event: ev.QueueOffered, queue: SinkQueue, next_index: Index) -> Lineage:
        """What this queue holds, up to the shorter of the two ends; the source hears meanwhile that
        it takes its time.

        Raises:
            OtherQueue: it is a copy of another queue.
            QueueError, OSError: it cannot be read.
        """
        offer = event.offer
        assert offer.lineage is not None
        identity = queue.check_identity(offer.lineage.identity)
        index = min(next_index, offer.next_index)
        shift = queue.queue.layout.roll_cycle.shift
        failed: QueueError | OSError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_pending, event)
            try:
                own = await in_thread(partial(held, queue.chains, index, offer.lineage, shift))
            except (QueueError, OSError) as error:
                failed = error  # not through the nursery, which would make a group of it
            nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return replace(own, identity=identity) if self._connection.tells_identities else own

    async def prove(self, event: ev.ProofAsked, queue: SinkQueue) -> None:
        """Tells the source what this queue holds before the index that it asks for.

        Raises:
            QueueError, OSError: it cannot be read.
        """
        offer = self._connection.offer_of(event.cid)
        shift = queue.queue.layout.roll_cycle.shift
        try:
            assert offer.lineage is not None
            await in_thread(queue.chains.check_believed)
            own = await in_thread(partial(held, queue.chains, event.index, offer.lineage, shift))
        except (Diverged, IndexGap):
            own = Lineage(first_cycle=-1)
        if not self._connection.has_stopped(event.cid):
            self._connection.give_proof(event.cid, event.index, own)

    async def _tell_pending(self, event: ev.QueueOffered) -> None:
        while True:
            await trio.sleep(PENDING_SECONDS)
            if self._connection.awaits_answer(event):
                self._connection.sink(event.cid).tell_pending()
                self._pump.wake()
