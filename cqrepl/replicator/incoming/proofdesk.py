"""Tells a source, on one connection, what the queues of a sink hold.

That goes with each answer, and again when the source searches for where the two copies begin to
differ.
"""

import logging
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Final

import trio

from cqrepl.kernel.chain import has_chains
from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages import ReplicationHandler
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue import Diverged, IndexGap, QueueError
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.replicator.agreement.lineage import NO_CYCLE, held
from cqrepl.replicator.incoming.sinkqueue import SinkQueue

PENDING_SECONDS: Final = 1.0  # between two words that an answer takes its time


class ProofDesk:
    """The proofs that a sink gives on one connection."""

    def __init__(self, connection: Connection, pump: Pump) -> None:
        self._connection = connection
        self._pump = pump

    def tell_uncompared(self, queue: SinkQueue, start: Index, offered: int) -> None:
        """Tells people what of a queue is not compared, whose source cannot prove what it holds.

        Args:
            start: as of `SinkQueue.uncompared`, like `offered`.
        """
        why = queue.uncompared(start, offered)
        if why is not None:
            self._pump.log.tell(logging.WARNING, self._pump.label, f"queue {queue.name!r}: {why}")

    async def held(self, event: ev.QueueOffered, queue: SinkQueue) -> tuple[Index, Lineage]:
        """Opens or makes an offered queue, all in one way into a thread. Once it is open, the
        source hears that it takes its time; for one that does not open it is not to wait for ever.

        Returns:
            From which index on the source is to send, and what this queue holds up to the shorter
            of the two ends.

        Raises:
            OtherQueue: it is a copy of another queue.
            QueueError, OSError: it cannot be opened, or read: `SinkQueue.prepare`.
        """
        failed: QueueError | OSError | None = None
        is_open = Event()
        work = partial(_held, event.offer, queue, is_open)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_pending, event, is_open)
            try:
                next_index, own, identity = await in_thread(work)
            except (QueueError, OSError) as error:
                failed = error  # not through the nursery, which would make a group of it
            nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed
        if self._connection.tells_identities:
            own = replace(own, identity=identity)
        return next_index, own

    async def prove(self, event: ev.ProofAsked, queue: SinkQueue) -> None:
        """Tells the source what this queue holds before the index that it asks for.

        Raises:
            QueueError, OSError: it cannot be read. A live pump has come back by then.
        """
        offer = self._connection.offer_of(event.cid)
        shift = queue.queue.layout.roll_cycle.shift
        try:
            assert offer.lineage is not None
            await in_thread(queue.chains.check_believed)
            own = await in_thread(partial(held, queue.chains, event.index, offer.lineage, shift))
        except (Diverged, IndexGap):
            own = Lineage(first_cycle=-1)
        except (QueueError, OSError):
            await self._pump.have_back()  # which took more of the queue in the meantime
            raise
        if not self._connection.has_stopped(event.cid):
            self._connection.give_proof(event.cid, event.index, own)

    async def _tell_pending(self, event: ev.QueueOffered, is_open: Event) -> None:
        while True:
            await trio.sleep(PENDING_SECONDS)
            if is_open.is_set() and self._connection.awaits_answer(event):
                self._connection.sink(event.cid).tell_pending()
                self._pump.wake()


def prepared(offer: ReplicationHandler, queue: SinkQueue, *, is_compared: bool) -> Index:
    """Opens or makes an offered queue; from which index on the source is to send.

    Args:
        is_compared: the source compares what both hold.

    Raises:
        QueueError, OSError: `SinkQueue.prepare`.
    """
    queue.prepare(
        offer.shape,
        offer.source_id,
        is_compared=is_compared,
        history=offer.epochs,
        offered=offer.next_index,
    )
    if not is_compared and queue.way.passed_by:  # else it is noted once that is done
        queue.queue.note_copy_of(queue.way.passed_by[0])
    return queue.answer_from(offer.next_index, is_compared=is_compared)


def _held(
    offer: ReplicationHandler, queue: SinkQueue, is_open: Event
) -> tuple[Index, Lineage, Identity | None]:
    next_index = prepared(offer, queue, is_compared=True)
    is_open.set()
    assert offer.lineage is not None
    identity = queue.check_identity(offer.lineage.identity)
    index, shift = min(next_index, offer.next_index), queue.queue.layout.roll_cycle.shift
    own = held(queue.chains, index, offer.lineage, shift)
    if own.first_cycle != NO_CYCLE and has_chains():
        closed = queue.queue.cycles.closed
        own = replace(own, holds_from=closed.holds_from(Cycle(own.first_cycle)))
    return next_index, own, identity
