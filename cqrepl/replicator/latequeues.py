"""Queues of a source that could not be opened at its start, for too few descriptors or the like.

They are opened later, while the others go out.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

import trio

from cqrepl.queue import QueueError
from cqrepl.replicator.descriptors import spare_descriptors
from cqrepl.replicator.pause import PAUSE_SECONDS, PAUSE_SECONDS_MAX
from cqrepl.replicator.sourcequeue import SourceQueue
from cqrepl.replicator.stops import Stop

_logger: Final = logging.getLogger(__name__)


class LateQueues:
    """Those that are still to be opened.

    Args:
        open_queue: opens one of them.
    """

    def __init__(self, open_queue: Callable[[str], SourceQueue]) -> None:
        self._open = open_queue
        self._troubles: dict[str, Stop] = {}
        self._others: set[str] = set()  # names of those that somebody else opens

    @property
    def troubles(self) -> Mapping[str, Stop]:
        """Why each of them is not open, by name."""
        return self._troubles

    def add(self, trouble: Stop) -> None:
        """One that cannot be opened now."""
        _logger.error("queue %r pauses: %s", trouble.name, trouble.message)
        self._troubles[trouble.name] = trouble

    def wait_for(self, trouble: Stop) -> None:
        """One that somebody else opens, and that is not open for now."""
        self._others.add(trouble.name)
        self._troubles[trouble.name] = trouble

    def forget(self, name: str) -> None:
        """It is not to be opened any more."""
        self._others.discard(name)
        self._troubles.pop(name, None)

    async def work(self, take: Callable[[SourceQueue], None]) -> None:
        """Opens all of them, as soon as that can be done; `take` gets each."""
        seconds = PAUSE_SECONDS
        while self._troubles.keys() - self._others:
            await trio.sleep(seconds)
            seconds = min(2 * seconds, PAUSE_SECONDS_MAX)
            for name in sorted(self._troubles.keys() - self._others):
                with spare_descriptors():
                    queue = self._try(name)
                if queue is not None:
                    seconds = PAUSE_SECONDS
                    take(queue)

    def _try(self, name: str) -> SourceQueue | None:
        try:
            queue = self._open(name)
        except (QueueError, OSError) as error:  # damaged, too: it is said again when it is read
            self._troubles[name] = Stop.of(name, error)
            return None
        del self._troubles[name]
        _logger.info("queue %r goes on", name)
        return queue
