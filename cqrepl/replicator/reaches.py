"""The progress of the copies of queues that are being written now, at this host and at others.

Of a queue that is taken in, all that is known of the source's end is what the source had when its
stream began.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cqrepl.console.units import plural
from cqrepl.queue import QueueError
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The progress of one copy.

    Args:
        peer: the host on the other side; None if it is not known.
        held: the copy has all up to this index; -1 or 0 for nothing.
        end: the last index of the queue itself, as far as it is known here.
        shift: number of bits of an index that hold the sequence.
    """

    queue: str
    peer: int | None
    held: int
    end: Index
    shift: int

    @property
    def lag(self) -> str:
        """The excerpts that it lacks, for people."""
        if self.held <= 0 or cycle_of(Index(self.held), self.shift) != cycle_of(
            self.end, self.shift
        ):
            return "more than a cycle"
        return plural(self.end - self.held, "excerpt")


def reaches_of(half: Source | Sink) -> Iterator[Reach]:
    """The copies of one half of a host."""
    if isinstance(half, Source):
        yield from _of_source(half)
    else:
        for queue in half.queues.values():
            yield from _of_copy(queue)


def _of_source(source: Source) -> Iterator[Reach]:
    ends: dict[str, Index | None] = {}
    for host_id, outgoing in _streams(source):
        queue, marks = outgoing.queue, outgoing.marks
        if queue.name not in ends:
            ends[queue.name] = _end_of(queue)
        end = ends[queue.name]
        if end is not None:
            held = marks.acknowledged if source.asks_ack(queue.name) else marks.sent
            yield Reach(queue=queue.name, peer=host_id, held=held, end=end, shift=outgoing.shift)


def _streams(source: Source) -> Iterator[tuple[int, Outgoing]]:
    """Those that are on, each with the host that it goes to."""
    for host_id, (_, session) in source.endpoint.connections.items():
        for each in sessions_of(SourceSession, [session]):
            for outgoing in each.outgoing.values():
                if outgoing.tailer is not None and not outgoing.has_stopped:
                    yield host_id, outgoing


def _end_of(queue: SourceQueue) -> Index | None:
    """The last index; None where there is none, or where the queue cannot be read."""
    queue.counters.drained()
    try:
        return queue.queue.last_index()
    except (QueueError, OSError):  # the connections meet the same, and say so
        return None


def _of_copy(queue: SinkQueue) -> Iterator[Reach]:
    if queue.owner is None or queue.life.stop is not None or queue.offered_end == NEXT_OF_EMPTY:
        return
    held, end = queue.known_last, Index(queue.offered_end - 1)
    if held is not None:  # it is open
        shift = queue.queue.layout.roll_cycle.shift
        yield Reach(queue=queue.name, peer=queue.master_id, held=held, end=end, shift=shift)
