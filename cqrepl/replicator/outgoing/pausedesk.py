"""The queues that do not go on for now, on one connection of a source: those that it cannot read,
with when each is tried again, and those that its sink has let go of.

The reason is said once, however often the queue is tried, and once more when it goes on (`pause`).
"""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, Generic

import trio

from cqrepl.net.pump import Pump
from cqrepl.protocol.events import said_by_peer
from cqrepl.protocol.queuelife import (
    READ_MOVES,
    READ_REASONS,
    TAKE_MOVES,
    TAKE_REASONS,
    Move,
    QueueLife,
    ReadMove,
    ReadState,
    Reason,
    ReasonKind,
    State,
    TakeMove,
    TakeState,
    Why,
)
from cqrepl.protocol.source import UNANSWERED
from cqrepl.replicator.queuestate.pause import Pause
from cqrepl.replicator.queuestate.queues import MEANT, Signal, kind_of_said
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


class _Halt(Generic[State, Move, Why]):
    """A queue that does not go on, when it is tried again, and what of that is logged."""

    def __init__(self, life: QueueLife[State, Move, Why]) -> None:
        self.life = life
        self.pause = Pause()


_Reading = _Halt[ReadState, ReadMove, Stop]
_Taking = _Halt[TakeState, TakeMove, Reason]


def _reading() -> _Reading:
    """A queue that could not be read."""
    return _Halt(QueueLife(READ_MOVES, READ_REASONS, ReadState.READ))


def _taking() -> _Taking:
    """A queue that the sink has let go of."""
    return _Halt(QueueLife(TAKE_MOVES, TAKE_REASONS, TakeState.TAKEN))


class PauseDesk:
    """The pauses of one connection.

    Args:
        pump: knows how log lines name the peer.
        changed: is set when a queue pauses, or goes on.
    """

    def __init__(self, pump: Pump, changed: Signal) -> None:
        self._pump = pump
        self._changed = changed
        self._read: dict[str, _Reading] = {}  # of queues that could not be read, by name
        self._taken: dict[str, _Taking] = {}  # of queues that the sink has let go of, by name
        self._has_begun = Signal()

    @property
    def troubles(self) -> Mapping[str, Stop]:
        """The reason of each queue that does not go on, by name: nothing was read of it since."""
        found = ((name, each.life.reason) for name, each in self._read.items())
        return {name: trouble for name, trouble in found if trouble is not None}

    @property
    def withdrawn(self) -> Mapping[str, str]:
        """The reason, as the sink says it, of each queue that it has let go of, or not answered, by
        name: nothing got through since."""
        found = ((name, each.life.reason) for name, each in self._taken.items())
        return {name: reason.message for name, reason in found if reason is not None}

    def is_withdrawn(self, name: str) -> bool:
        """True for one of those."""
        each = self._taken.get(name)
        return each is not None and each.life.reason is not None

    def is_ahead(self, name: str) -> bool:
        """True while the sink takes nothing of a queue as it is of times to come by its clock."""
        each = self._taken.get(name)
        reason = None if each is None else each.life.reason
        return reason is not None and reason.kind is ReasonKind.CLOCK

    def word(self, name: str) -> str:
        """The word that people see of a queue that the sink has let go of; empty for another."""
        said = self.withdrawn.get(name)
        return "" if said is None else f"paused: {said_by_peer(said)}"

    def holds(self, name: str) -> bool:
        """True until the queue is to be tried again."""
        each = self._read.get(name)
        return each is not None and each.life.state is ReadState.PAUSED

    def begin(self, trouble: Stop) -> bool:
        """A queue cannot be read; true when that is news."""
        each = self._read.setdefault(trouble.name, _reading())
        known = each.life.reason
        each.life.move(ReadMove.PAUSE, trouble)
        if each.pause.begin(trouble.message, is_told=True):
            _logger.error(
                "%s: queue %r pauses: %s", self._pump.label, trouble.name, trouble.message
            )
        self._has_begun.set()
        self._changed.set()
        return known is None or known.message != trouble.message

    def forget(self, name: str) -> None:
        """It could be read."""
        each = self._read.get(name)
        if each is not None and each.life.reason is not None:
            each.life.move(ReadMove.GO_ON)
            each.pause.forget()
            self._has_begun.set()
            self._changed.set()

    def end(self, name: str) -> None:
        """It has stopped: it pauses no more, and does not go on. Nor is the sink waited for."""
        self._read.pop(name, None)
        self._taken.pop(name, None)
        self._has_begun.set()

    def drop(self, name: str) -> None:
        """It is streamed no more: neither pauses nor goes on."""
        self._taken.pop(name, None)
        self.end(name)

    def hear(self, name: str, message: str) -> None:
        """The sink has let go of a queue, and says why."""
        said, kind = said_by_peer(message), kind_of_said(message)
        each = self._taken.setdefault(name, _taking())
        each.life.move(TakeMove.LET_GO, Reason(kind=kind, message=message))
        if each.pause.begin(said, is_told=False):
            level = logging.INFO if kind in MEANT else logging.WARNING
            self._pump.log.tell(level, self._pump.label, f"queue {name!r} pauses: {said}")

    def miss(self, name: str) -> None:
        """The sink owes the answer to the offer of a queue."""
        each = self._taken.get(name)
        if each is None or not each.pause.is_on:  # it is not to be said any more that it goes on
            each = self._taken[name] = _taking()
        each.life.move(TakeMove.LET_GO, Reason(kind=ReasonKind.ANSWER, message=UNANSWERED))

    def hear_on(self, name: str) -> None:
        """The sink takes it again."""
        each = self._taken.get(name)
        if each is not None and each.life.reason is not None:
            each.life.move(TakeMove.GO_ON)
            if each.pause.is_on:
                each.pause.forget()
                self._has_begun.set()

    def _tell_firm(self, found: dict[str, _Halt[State, Move, Why]]) -> float:
        """Says of queues that they go on; when the next one is due."""
        for name in [name for name, each in found.items() if each.pause.takes_firm()]:
            del found[name]
            _logger.info("%s: queue %r goes on", self._pump.label, name)
        return min((each.pause.firm_at for each in found.values()), default=math.inf)

    async def work(self, try_again: Callable[[str], None]) -> None:
        """Has queues tried again, each when that is due."""
        while True:
            try_again(await self.due())
            self._pump.look()
            self._pump.wake()

    async def due(self) -> str:
        """Waits for a queue that is to be tried again."""
        while True:
            until = min(self._tell_firm(self._read), self._tell_firm(self._taken))
            for name, each in sorted(self._read.items()):
                if each.life.state is not ReadState.PAUSED:
                    continue
                if each.pause.is_over:
                    each.life.move(ReadMove.RETRY)
                    return name
                until = min(until, each.pause.until)
            with trio.move_on_at(until):
                await self._has_begun.wait()
