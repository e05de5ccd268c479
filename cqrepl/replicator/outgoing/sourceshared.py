"""The state that the connections of one source have in common, apart from its queues."""

import logging
from collections.abc import Mapping
from typing import Final

from cqrepl.protocol import StopReason
from cqrepl.protocol.queuelife import StreamedMove, StreamedState
from cqrepl.replicator.agreement.consent import ReturnSettings
from cqrepl.replicator.outgoing.sinkprogress import SinkProgress
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.settings import SourceSettings

_logger: Final = logging.getLogger(__name__)


class SourceShared:
    """The state that the connections of one source have in common, apart from the queues."""

    def __init__(
        self,
        settings: SourceSettings,
        queues: Mapping[str, SourceQueue],
        late: Mapping[str, Stop],
        changed: Signal,
    ) -> None:
        self._queues = queues
        self.late = late  # queues that are not open yet, and why
        self.settings = settings
        self.changed = changed
        self.stop_noted = Signal()
        self.stops: list[Stop] = []
        self.has_left = False  # a sink that was there
        self.left: SinkProgress | None = None  # of the last one, where it left in order

    @property
    def returns(self) -> ReturnSettings:
        """The hosts whose back copy is taken, and the limits of one."""
        return self.settings.returns

    def asks_ack(self, name: str) -> bool:
        """True when the sinks of a queue are to acknowledge."""
        return self.settings.asks_ack(name)

    def note_stop(self, stop: Stop, *, is_logged: bool = True) -> None:
        """A queue goes no further on some connection; or on any, as it cannot be opened."""
        if stop not in self.stops:  # the same one comes again with every new connection
            self.stops.append(stop)
            self._settle(stop.name)
            if is_logged:
                _logger.error("%s", stop)
        self.stop_noted.set()
        self.changed.set()

    def _settle(self, name: str) -> None:
        """The life of a queue is as the last of its stops says which no other sink would help."""
        queue = self._queues.get(name)
        stops = [stop for stop in self.stops if stop.name == name and stop.host_id is None]
        if queue is None:
            return
        if stops:
            queue.life.move(StreamedMove.STOP, stops[-1])
        elif queue.life.state is StreamedState.STOPPED:
            queue.life.move(StreamedMove.BEGIN_ANEW)

    def note_left(self, progress: SinkProgress | None) -> None:
        """A sink has gone.

        Args:
            progress: of one that left in order, and so may not come again.
        """
        self.has_left, self.left = True, progress

    def forget_damage(self, name: str) -> None:
        """The store files of a queue are all there again."""
        gone = (name, StopReason.DAMAGED)
        self.stops = [stop for stop in self.stops if (stop.name, stop.reason) != gone]
        self._settle(name)
        self.changed.set()

    def forget_stops(self, name: str) -> None:
        """A queue goes on, whatever it was stopped for."""
        self.stops = [stop for stop in self.stops if stop.name != name]
        self._settle(name)
        self.changed.set()

    def forget_stop(self, name: str, host_id: int) -> None:
        """The copy on this host goes on: what it was stopped for has been put right meanwhile."""
        gone = (name, host_id)
        kept = [stop for stop in self.stops if (stop.name, stop.host_id) != gone]
        if len(kept) < len(self.stops):
            _logger.info("queue %r goes on, with host %s", name, host_id)
        self.stops = kept
