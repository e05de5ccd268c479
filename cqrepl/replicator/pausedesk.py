"""The queues that a source cannot read for now, on one connection: when each is tried again.

The reason is said once, however often the queue is tried, and once more when it goes on.
"""

import logging
import math
from collections.abc import Mapping
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.replicator.pause import Pause
from cqrepl.replicator.queues import Signal
from cqrepl.replicator.stops import Stop

_logger: Final = logging.getLogger(__name__)


class PauseDesk:
    """The pauses of one connection.

    Args:
        pump: knows how log lines name the peer.
        changed: is set when a queue pauses, or goes on.
    """

    def __init__(self, pump: Pump, changed: Signal) -> None:
        self._pump = pump
        self._changed = changed
        self._pauses: dict[str, Pause] = {}
        self._waiting: set[str] = set()  # names that are still to be tried again
        self._has_begun = Signal()

    @property
    def troubles(self) -> Mapping[str, Stop]:
        """Why each of the queues that nothing has been read of since does not go on."""
        found = ((name, pause.trouble) for name, pause in self._pauses.items())
        return {name: trouble for name, trouble in found if trouble is not None}

    def holds(self, name: str) -> bool:
        """True until the queue is to be tried again."""
        return name in self._waiting

    def begin(self, trouble: Stop) -> bool:
        """A queue cannot be read; true when that is news."""
        pause = self._pauses.setdefault(trouble.name, Pause())
        is_news = pause.trouble is None or pause.trouble.message != trouble.message
        if is_news:
            _logger.error(
                "%s: queue %r pauses: %s", self._pump.label, trouble.name, trouble.message
            )
        pause.begin(trouble, is_told=True)
        self._waiting.add(trouble.name)
        self._has_begun.set()
        self._changed.set()
        return is_news

    def forget(self, name: str) -> None:
        """It could be read."""
        if self._pauses.pop(name, None) is not None:
            self._waiting.discard(name)
            _logger.info("%s: queue %r goes on", self._pump.label, name)
            self._changed.set()

    async def due(self) -> str:
        """Waits for a queue that is to be tried again."""
        while True:
            for name in sorted(self._waiting):
                if self._pauses[name].is_over:
                    self._waiting.discard(name)
                    return name
            until = min((self._pauses[name].until for name in self._waiting), default=math.inf)
            with trio.move_on_at(until):
                await self._has_begun.wait()
