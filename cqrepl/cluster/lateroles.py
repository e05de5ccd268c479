"""Queues whose epochs could not be read when the host started: it finds out later who leads them.

By the file of the cluster such a queue is taken in. Where this host leads it by its epochs, no
other host offers it. So it is looked at again and again, and streamed as soon as that is known.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from cqrepl.cluster.fencedesk import FenceDesk
from cqrepl.net.threads import in_thread
from cqrepl.queue import QueueError
from cqrepl.replicator.hostparts import HostParts
from cqrepl.replicator.queuestate.pause import PAUSE_SECONDS, PAUSE_SECONDS_MAX, is_passing
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


class LateRoles:
    """Such queues of one host of a cluster."""

    def __init__(self, host: HostParts, desk: FenceDesk) -> None:
        self._host = host
        self._desk = desk
        self._own = host.settings.protocol.host_id

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks at them for the length of a block."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work)
            yield
            nursery.cancel_scope.cancel()

    async def _work(self) -> None:
        """Until all are known: those that come while a host runs are known once they are open."""
        queues = self._host.sink.queues
        waiting = sorted(name for name, queue in queues.items() if not queue.epochs.are_known)
        seconds = PAUSE_SECONDS
        while waiting:
            await trio.sleep(seconds)
            seconds = min(2 * seconds, PAUSE_SECONDS_MAX)
            for name in list(waiting):
                async with self._host.direction.turn(name):
                    if await self._is_done(name):
                        waiting.remove(name)

    async def _is_done(self, name: str) -> bool:
        queue = self._host.sink.queues.get(name)
        if queue is None:  # it was removed meanwhile
            return True
        if queue.life.stop is not None:  # until it is resumed
            return False
        try:
            await in_thread(queue.know_epochs)
        except (QueueError, OSError) as error:
            if is_passing(error):
                return False
            queue.end(Stop.of(name, error, queue.path))  # it can be read, and is damaged
            self._host.sink.changed.set()
            return False
        now = queue.epochs.now
        leads = now.promised and now.may_lead(self._own)
        if leads and not self._host.settings.awaits_leader:
            _logger.info("queue %r: this host leads it, in epoch %d", name, now.promised)
            await self._host.direction.stream_led(queue)
            self._desk.announce(name)
        else:
            await self._host.sink.follow(name, queue.master_id)
        return True
