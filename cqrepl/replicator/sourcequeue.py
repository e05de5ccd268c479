"""One queue of a source, and what the connections of a source have in common."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.net.link import Session
from cqrepl.protocol import QueueShape
from cqrepl.queue import Queue, QueueError
from cqrepl.replicator.backcopy import release_dead_back_copy
from cqrepl.replicator.counters import SourceCounters
from cqrepl.replicator.hostmarks import HostMarks, QueueMarks
from cqrepl.replicator.logs import EntryLog
from cqrepl.replicator.queues import Signal, shape_of
from cqrepl.replicator.stops import Stop

_logger = logging.getLogger(__name__)


class SourceQueue:
    """One queue of a source, over all connections."""

    def __init__(self, name: str, path: Path, ack_log: Path | None) -> None:
        self.name = name
        self.path = path
        self.queue = Queue.open(path)
        self._release_dead_back_copy()
        self.target = self.queue.last_index()  # the last excerpt at the start
        self.sessions: list[Session] = []  # of the connections that it goes out on
        self.counters = SourceCounters(self.queue, self._drain)
        self._marks = QueueMarks(name, self.queue.host_marks)
        self.ack_log = EntryLog(ack_log, name, "acknowledgements")
        self._awaited: list[int] = []

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

    @property
    def acknowledged(self) -> int:
        """Some sink has everything up to this index; -1 for nothing."""
        return self.counters.drained().index_acknowledged

    @property
    def marks(self) -> Mapping[int, HostMarks]:
        """The marks of each sink host that has any, by host id; of earlier runs too."""
        self._drain()
        return self._marks.known()

    def marks_of(self, host_id: int) -> HostMarks:
        """The marks of a host that has connected."""
        return self._marks.of(host_id)

    @property
    def sent_excerpts(self) -> int:
        """Number of excerpts sent, to all sinks together."""
        return self.counters.drained().sent.excerpts

    @property
    def sent_bytes(self) -> int:
        """Bytes of payload sent, to all sinks together."""
        return self.counters.drained().sent.payload_bytes

    @property
    def awaited(self) -> int:
        """The next index for whose acknowledgement a caller of `wait_acked` waits."""
        acknowledged = self.counters.index_acknowledged
        return min((index for index in self._awaited if index > acknowledged), default=NO_LIMIT)

    @contextmanager
    def awaiting(self, index: int) -> Iterator[None]:
        """For the length of a block its caller waits for this acknowledgement."""
        self._awaited.append(index)
        try:
            yield
        finally:
            self._awaited.remove(index)

    def close(self) -> None:
        self.queue.close()
        self.ack_log.close()

    def _drain(self) -> None:
        for session in self.sessions:
            session.catch_up()


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
