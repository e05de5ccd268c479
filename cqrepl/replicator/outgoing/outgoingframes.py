"""The frames of one connection's queues: which queue is looked at next, and how much of it goes
out."""

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import trio

from cqrepl.net.link import OUT_BYTES
from cqrepl.net.tokenbucket import Rooms
from cqrepl.protocol import Connection
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.limitedframes import frame_limited
from cqrepl.queue import Tailer
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, format_index
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.surroundings import surroundings

_logger: Final = logging.getLogger(__name__)
MANY: Final = 16  # queues of one connection
ALL_SECONDS: Final = 0.05  # while many start, all of them are looked at no more often
# among many, one that has nothing is looked at when its word has changed; and for what no word
# tells, as a file that was replaced, so many of them a second, in all, and each after that time
LOOKS_PER_SECOND: Final = 100
LOOK_SECONDS_MAX: Final = 5.0  # a writer that rests looks itself every 10 s: at all then


class Guarded(Protocol):
    """Ends a queue where `work` cannot read it."""

    def __call__(
        self, each: Outgoing, work: Callable[[], ExcerptBatch | None], /
    ) -> ExcerptBatch | None:
        """The result of `work`; None where the queue cannot be read."""


class OutgoingFrames:
    """The queues in turn, so that a busy queue does not hold up the rest. Those that had more than
    could be sent when they were looked at last come after the others.

    Args:
        outgoing: the queues that are on the connection, as they come and go.
        guarded: does what reads a queue.
        note_sent: is told of what has been framed.

    Attributes:
        looks: how often a queue was read so far.
    """

    def __init__(
        self,
        outgoing: Mapping[Cid, Outgoing],
        connection: Connection,
        guarded: Guarded,
        note_sent: Callable[[Outgoing, ExcerptBatch], None],
    ) -> None:
        self.out_bytes = OUT_BYTES
        self._batch_bytes = surroundings().rarely("batch", OUT_BYTES, 1, 500)
        self.looks = 0
        self._outgoing = outgoing
        self._connection = connection
        self._guarded = guarded
        self._note_sent = note_sent
        self._started: list[Outgoing] = []  # and not looked at to the end of what they have
        self._started_at = self._looked_at = -math.inf
        self._turn = 0
        self._large: Outgoing | None = None  # waits for a buffer as long as its next frame

    def close(self) -> None:
        """Lets go of the session: a circle would keep the buffers of what is over."""
        self._guarded = lambda each, work: None
        self._note_sent = lambda each, sent: None

    def begin(self, each: Outgoing) -> None:
        """Its stream has begun."""
        start = format_index(Index(each.stream_from or NEXT_OF_EMPTY))
        host = each.marks.host_id
        _logger.debug("queue %r, host %d: streamed from %s on", each.queue.name, host, start)
        self._started.append(each)
        self._started_at = trio.current_time()

    def drop(self, each: Outgoing) -> None:
        """It is on the connection no more."""
        self._started = [one for one in self._started if one is not each]
        self._large = None if self._large is each else self._large

    def fill(self, out: bytearray, rooms: Rooms) -> int:
        """Frames of the queues; how many bytes of `out` they take.

        Args:
            rooms: no excerpt is begun behind so many bytes.
        """
        filled, now = 0, trio.current_time()
        for each in self._in_turn(now):
            room = each.room(rooms)
            if each.tailer is not None and filled < room and each.rests(now) is None:
                filled = self._frame_queue(each, each.tailer, out, filled, room)
        self._started = [each for each in self._started if each.batch is not None]
        self._turn += 1
        return filled

    @property
    def is_filling(self) -> bool:
        """True while one of many queues starts after the other. With each of them the writer is
        woken: were all looked at each time, the cost would grow with the square of their number."""
        is_young = trio.current_time() - self._started_at < ALL_SECONDS
        return is_young and len(self._outgoing) >= MANY

    def _in_turn(self, now: float) -> list[Outgoing]:
        if self.is_filling:
            if self._large is None and now - self._looked_at < ALL_SECONDS:
                return self._started
            self._looked_at = now
        live = list(self._outgoing.values())
        large, self._large = self._large, None
        self.out_bytes = OUT_BYTES
        at = live.index(large) if large is not None else self._turn % max(len(live), 1)
        in_turn = live[at:] + live[:at]
        return sorted(in_turn, key=lambda each: each.has_much and each is not large)

    def _look(self, each: Outgoing, tailer: Tailer) -> ExcerptBatch | None:
        """The next batch of a queue; None when there is nothing now, or it cannot be read."""
        self.looks += 1
        payload_max = self._connection.config.settings.payload_max
        batch = each.next_batch(tailer, self._batch_bytes, payload_max)
        many = len(self._outgoing)
        if batch is None and many >= MANY:
            rest_seconds = min(many / LOOKS_PER_SECOND, LOOK_SECONDS_MAX)
            each.rest(tailer, trio.current_time() + rest_seconds)
        return batch

    def _frame_queue(
        self, each: Outgoing, tailer: Tailer, out: bytearray, filled: int, room: int
    ) -> int:
        """Frames of one queue behind `filled`, until the buffer or the room is full or there are no
        more."""
        source = each.source
        assert source is not None  # the stream has begun
        before = filled
        while source.takes_more:
            if filled >= room:
                each.has_much = each.batch is not None
                return filled
            if each.batch is None:
                if len(out) - filled < OUT_BYTES // 4 and filled:
                    break  # what is left is too little to be worth a look
                each.batch = self._guarded(each, partial(self._look, each, tailer))
                each.start = 0
                if each.batch is None:
                    each.has_much = False
                    return filled
            batch, start = each.batch, each.start
            ns = surroundings().monotonic_ns()
            framed, end = frame_limited(
                self._connection, each.cid, batch, start, ns, out, filled, room
            )
            if framed is None:
                size = self._connection.frame_size(each.cid, batch.lengths[start])
                if (
                    size > OUT_BYTES and self._large is None
                ):  # it gets a buffer of its own, and first
                    self._large, self.out_bytes = each, size
                break
            filled = end
            each.start += framed.count
            if each.start == batch.count:
                each.batch = None
            self._note_sent(each, framed)
        each.has_much = each.has_much or filled > before
        return filled
