"""The queues that do not go on for now, on one connection of a source: those that it cannot read,
with when each is tried again, and those that its sink has let go of.

The reason is said once, however often the queue is tried, and once more when it goes on (`pause`).
"""

import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.protocol import StopReason
from cqrepl.protocol.events import said_by_peer
from cqrepl.replicator.queuestate.pause import Pause
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.replicator.queuestate.stops import Stop

# what a sink says of a pause that an operator has asked for: no fault
_MEANT: Final = re.compile(r"paused by operator$|host \d+ is to lead it in epoch \d+$")
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
        self._sinks: dict[str, Pause] = {}  # of those that the sink has let go of
        self._waiting: set[str] = set()  # names that are still to be tried again
        self._has_begun = Signal()

    @property
    def troubles(self) -> Mapping[str, Stop]:
        """The reason of each queue that does not go on, by name: nothing was read of it since."""
        found = ((name, pause.trouble) for name, pause in self._pauses.items())
        return {name: trouble for name, trouble in found if trouble is not None}

    def holds(self, name: str) -> bool:
        """True until the queue is to be tried again."""
        return name in self._waiting

    def begin(self, trouble: Stop) -> bool:
        """A queue cannot be read; true when that is news."""
        pause = self._pauses.setdefault(trouble.name, Pause())
        is_news = pause.trouble is None or pause.trouble.message != trouble.message
        if pause.begin(trouble, is_told=True):
            _logger.error(
                "%s: queue %r pauses: %s", self._pump.label, trouble.name, trouble.message
            )
        self._waiting.add(trouble.name)
        self._has_begun.set()
        self._changed.set()
        return is_news

    def forget(self, name: str) -> None:
        """It could be read."""
        pause = self._pauses.get(name)
        if pause is not None and pause.trouble is not None:
            pause.forget()
            self._waiting.discard(name)
            self._has_begun.set()
            self._changed.set()

    def end(self, name: str) -> None:
        """It has stopped: it pauses no more, and does not go on."""
        if self._pauses.pop(name, None) is not None:
            self._waiting.discard(name)
            self._has_begun.set()

    def hear(self, name: str, message: str) -> None:
        """The sink has let go of a queue, and says why."""
        said = said_by_peer(message)
        trouble = Stop(name=name, reason=StopReason.FAILED, message=said, is_peers=True)
        if self._sinks.setdefault(name, Pause()).begin(trouble, is_told=False):
            why = f"queue {name!r} pauses: {said}"
            level = logging.INFO if _MEANT.search(message) else logging.WARNING
            self._pump.log.tell(level, self._pump.label, why)

    def hear_on(self, name: str) -> None:
        """The sink takes it again."""
        pause = self._sinks.get(name)
        if pause is not None and pause.trouble is not None:
            pause.forget()
            self._has_begun.set()

    def _tell_firm(self) -> float:
        """Says of queues that they go on; when the next one is due."""
        for pauses in (self._pauses, self._sinks):
            for name in [name for name, pause in pauses.items() if pause.takes_firm()]:
                del pauses[name]
                _logger.info("%s: queue %r goes on", self._pump.label, name)
        left = (*self._pauses.values(), *self._sinks.values())
        return min((pause.firm_at for pause in left), default=math.inf)

    async def work(self, try_again: Callable[[str], None]) -> None:
        """Has queues tried again, each when that is due."""
        while True:
            try_again(await self.due())
            self._pump.look()
            self._pump.wake()

    async def due(self) -> str:
        """Waits for a queue that is to be tried again."""
        while True:
            firm_at = self._tell_firm()
            for name in sorted(self._waiting):
                if self._pauses[name].is_over:
                    self._waiting.discard(name)
                    return name
            until = min((self._pauses[name].until for name in self._waiting), default=math.inf)
            with trio.move_on_at(min(until, firm_at)):
                await self._has_begun.wait()
