"""One queue of a source, and what the connections of a source have in common."""

import logging
from pathlib import Path

from cqrepl.net.acklog import AckLog
from cqrepl.net.shapes import shape_of
from cqrepl.net.stops import Stop
from cqrepl.net.waiting import Signal
from cqrepl.protocol import QueueShape
from cqrepl.protocol import events as ev
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.backcopylock import release_dead_back_copy

_logger = logging.getLogger(__name__)


class SourceQueue:
    """One queue of a source, over all connections."""

    def __init__(self, name: str, path: Path, ack_log: Path | None) -> None:
        self.name = name
        self.path = path
        self.queue = Queue.open(path)
        self._release_dead_back_copy()
        self.target = self.queue.last_index()  # what was there at the start
        self.acknowledged = -1
        self.sent_excerpts = self.sent_bytes = 0
        self.ack_log = None if ack_log is None else AckLog(ack_log)

    @property
    def shape(self) -> QueueShape:
        return shape_of(self.queue.layout)

    def _release_dead_back_copy(self) -> None:
        try:
            if release_dead_back_copy(self.path):
                _logger.info(
                    "queue %r: gave back the locks of a source that died in a back copy", self.name
                )
        except (QueueError, OSError) as error:
            _logger.warning("queue %r: locks of a dead source stay: %s", self.name, error)

    def note_acknowledged(self, index: int) -> None:
        """Some sink has everything up to `index`."""
        self.acknowledged = max(self.acknowledged, index)
        self.queue.raise_acknowledged(index)

    def log(self, event: ev.Acknowledged) -> None:
        """Notes an acknowledgement where that is wanted. Replication does not end over its log."""
        if self.ack_log is None:
            return
        try:
            self.ack_log.note(event)
        except (QueueError, OSError) as error:
            _logger.error("queue %r: acknowledgements are logged no more: %s", self.name, error)
            self.ack_log.close()
            self.ack_log = None

    def close(self) -> None:
        self.queue.close()
        if self.ack_log is not None:
            self.ack_log.close()


class SourceShared:
    """What the connections of one source have in common, apart from the queues."""

    def __init__(self, *, asks_ack: bool) -> None:
        self.asks_ack = asks_ack
        self.changed = Signal()
        self.stops: list[Stop] = []

    def note_stop(self, stop: Stop) -> None:
        """A queue goes no further on some connection."""
        if stop not in self.stops:  # the same one comes again with every new connection
            self.stops.append(stop)
            _logger.error("%s", stop)
        self.changed.set()
