"""The frames of what a sink gives back to its source over one connection."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cqrepl.net.link import OUT_BYTES
from cqrepl.protocol import Connection
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import ReturnTaken
from cqrepl.protocol.limitedframes import frame_limited
from cqrepl.queue import QueueError, Tailer
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.replicator.incoming.sinkqueue import SinkQueue

UNCOMPARED: Final = "what a power cut may have torn here is asked for once more"


class _BackCopy(NamedTuple):
    """A queue whose source lacks what the tailer gives."""

    name: str
    tailer: Tailer


class ReturnFrames:
    """One queue after the next.

    Args:
        stop: is told of a queue that cannot be read.
    """

    def __init__(
        self,
        queues: Mapping[str, SinkQueue],
        connection: Connection,
        stop: Callable[[Cid, str, QueueError | OSError], None],
    ) -> None:
        self.out_bytes = OUT_BYTES
        self._queues = queues
        self._connection = connection
        self._stop = stop
        self._copies: dict[Cid, _BackCopy] = {}
        self._batch: ExcerptBatch | None = None  # of the first of them
        self._start = 0

    def __len__(self) -> int:
        return len(self._copies)

    def begin(self, cid: Cid, name: str, index_first: int) -> None:
        """The source lacks what is from this index on."""
        try:
            tailer = self._queues[name].queue.tailer(index_first)
        except (QueueError, OSError) as error:
            self._stop(cid, name, error)
        else:
            self._copies[cid] = _BackCopy(name, tailer)

    def drop(self, cid: Cid) -> None:
        """The queue is on the connection no more."""
        is_framed = next(iter(self._copies), None) == cid  # the batch is of the first
        copy = self._copies.pop(cid, None)
        if copy is not None:
            copy.tailer.close()
            if is_framed:
                self._batch = None

    def close(self) -> None:
        self._stop = lambda cid, name, error: None  # a circle would keep the buffers
        for copy in self._copies.values():
            copy.tailer.close()

    def fill(self, out: bytearray, room: int, *, is_draining: bool) -> int:
        """Frames of a queue; how many bytes of `out` they take.

        Args:
            room: no excerpt is begun behind so many bytes.
        """
        if not room:
            return 0
        for cid, copy in list(self._copies.items()):
            if self._connection.has_stopped(cid):
                self.drop(cid)
                continue
            filled = 0 if is_draining else self._frame_guarded(cid, copy, out, room)
            if filled or self._batch is not None:
                return filled
        return 0

    def _frame_guarded(self, cid: Cid, copy: _BackCopy, out: bytearray, room: int) -> int:
        try:
            return self._frame_queue(cid, copy, out, room)
        except (QueueError, OSError) as error:
            del self._copies[cid]
            copy.tailer.close()
            self._stop(cid, copy.name, error)
            return 0

    def _frame_queue(self, cid: Cid, copy: _BackCopy, out: bytearray, room: int) -> int:
        name, tailer = copy
        if self._batch is None:
            self._start = 0
            batch = tailer.next_batch(payload_max=self._connection.config.settings.payload_max)
            if batch is not None:
                count = self._queues[name].certain_count(batch)
                if count < len(batch):
                    tailer.give_back(batch, count)
                    batch = batch.part(0, count)
            self._batch = batch
        if self._batch is None:
            del self._copies[cid]
            tailer.close()
            self._connection.end_back_copy(cid)
            return 0
        # the nano time is the writer's, and only the sink's own acknowledgements echo it
        framed, filled = frame_limited(
            self._connection, cid, self._batch, self._start, 0, out, 0, room
        )
        if framed is None:
            self.out_bytes = self._connection.frame_size(cid, self._batch.lengths[self._start])
            return 0
        self.out_bytes = OUT_BYTES
        self._start += len(framed)
        if self._start == len(self._batch):
            self._batch = None
        return filled


def note_taken(queue: SinkQueue, connection: Connection, event: ReturnTaken) -> bool:
    """The source holds what a queue gave back. False for a source that cannot compare what is
    before that: it is to be asked once more, from where a power cut may have torn the queue."""
    if not queue.is_open or queue.disk.unproved_from is None:
        return True
    if connection.sink(event.cid).has_lineage:
        queue.disk.prove(event.index)
        return True
    return False
