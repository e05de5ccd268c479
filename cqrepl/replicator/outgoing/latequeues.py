"""Queues of a source that cannot be opened for now, for too few descriptors or the like.

They are opened later, while the others go out.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

import trio

from cqrepl.queue import QueueError
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.descriptors import spare_descriptors
from cqrepl.replicator.queuestate.pause import PAUSE_SECONDS, PAUSE_SECONDS_MAX
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)
OpenLate = Callable[[], SourceQueue]
Told = Callable[[str], None]  # the name of a queue that is open


class LateQueues:
    """Those that are still to be opened."""

    def __init__(self) -> None:
        self._troubles: dict[str, Stop] = {}
        self._to_open: dict[str, OpenLate] = {}  # of the others somebody else opens
        self._has_more = Signal()

    @property
    def troubles(self) -> Mapping[str, Stop]:
        """Why each of them is not open, by name."""
        return self._troubles

    def add(self, trouble: Stop, open_late: OpenLate) -> None:
        """One that cannot be opened now.

        Args:
            open_late: opens it, or raises `QueueError` or `OSError`.
        """
        _logger.error("queue %r pauses: %s", trouble.name, trouble.message)
        self._troubles[trouble.name] = trouble
        self._to_open[trouble.name] = open_late
        self._has_more.set()

    def wait_for(self, trouble: Stop) -> None:
        """One that somebody else opens, and that is not open for now."""
        self._to_open.pop(trouble.name, None)
        self._troubles[trouble.name] = trouble

    def forget(self, name: str) -> None:
        """It is not to be opened any more."""
        self._to_open.pop(name, None)
        self._troubles.pop(name, None)

    async def work(self, take: Callable[[SourceQueue], None], told: Told | None = None) -> None:
        """Opens each of them as soon as that can be done; `take` gets it, then `told` its name."""
        seconds = PAUSE_SECONDS
        while True:
            if not self._to_open:
                seconds = PAUSE_SECONDS
                await self._has_more.wait()
            await trio.sleep(seconds)
            seconds = min(2 * seconds, PAUSE_SECONDS_MAX)
            for name in sorted(self._to_open):
                with spare_descriptors():
                    queue = self._try(name)
                if queue is not None:
                    seconds = PAUSE_SECONDS
                    take(queue)
                    if told is not None:
                        told(name)

    def _try(self, name: str) -> SourceQueue | None:
        try:
            queue = self._to_open[name]()
        except (QueueError, OSError) as error:  # damaged, too: it is said again when it is read
            self._troubles[name] = Stop.of(name, error)
            return None
        self.forget(name)
        _logger.info("queue %r goes on", name)
        return queue
