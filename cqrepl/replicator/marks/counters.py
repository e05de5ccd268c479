"""The counters of what a role has done with each of its queues: they are kept only here.

Theory of operation. There is one set of counters for a queue and a role, over all connections. The
sessions add to it what goes through their hands. While a native pump does the work, the numbers
grow in its lanes, where both threads see them: `drained` has each session fetch what its lanes hold
and count it like the rest. What shows numbers asks for `drained()`, and reads nothing else.

    source   sent over every connection        raises `chronicle.lastIndexReplicated`
             acknowledged by each sink         raises `chronicle.lastAcknowledgedIndexReplicated`
    sink     received, and in the queue now

The marks in the table store are those of the counters: a mark is raised with the index that raises
it here, Java's two and those of the sink's host (`hostmarks`). What a connection needs to check its
peer (the window, the last index it has sent) belongs to the protocol, and is per connection.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from cqrepl.kernel.board import AckLevel, MarkRow
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Cycle, Index, cycle_of
from cqrepl.replicator.marks.hostmarks import NOTHING_SENT, HostMarks

NOTHING: Final = -1  # the index mark when there was no excerpt yet


@dataclass(slots=True)
class Tally:
    """Excerpts, and the bytes of their payloads."""

    excerpts: int = 0
    payload_bytes: int = 0

    def add(self, excerpts: int, payload_bytes: int) -> None:
        """So many more."""
        assert excerpts >= 0 <= payload_bytes
        self.excerpts += excerpts
        self.payload_bytes += payload_bytes


class SourceCounters:
    """One queue of a source.

    Args:
        queue: whose marks are raised.
        drain: has every session count what its native lanes hold.
        is_own: false for a copy that is passed on: its two marks are its own source's matter.
        safe: up to which index the policy that the queue was given calls it safe; None: it was
            given none. Readers of any process go by the acknowledged mark: it tells no more.

    Attributes:
        sent: to all sinks together; what was sent again after a cut is counted again.
        sent_to: the same to each host, by its id.
        acknowledged: by all sinks together.
        cycles_sent: those that a sink was the first one to be sent excerpts of, since `latecycles`
            has taken them.
        index_sent: some sink was sent everything up to this.
        index_acknowledged: some sink has everything up to this.
    """

    def __init__(
        self,
        queue: Queue,
        drain: Callable[[], None],
        *,
        is_own: bool = True,
        safe: Callable[[], int] | None = None,
    ) -> None:
        self._is_own = is_own
        self.sent = Tally()
        self.sent_to: dict[int, Tally] = {}
        self.acknowledged = Tally()
        self.index_sent = NOTHING
        self.index_acknowledged = NOTHING
        self._queue = queue
        self._drain = drain
        self._safe = safe
        self._shift = queue.layout.roll_cycle.shift
        self.cycles_sent: set[Cycle] = set()

    def drained(self) -> Self:
        """These, with what native lanes have done until now."""
        self._drain()
        return self

    @property
    def sent_once(self) -> Tally:
        """The excerpts that went out, each counted once however many sinks take it. It is the tally
        of the host that was sent most."""
        return max(self.sent_to.values(), key=lambda tally: tally.excerpts, default=Tally())

    def count_sent(
        self,
        marks: HostMarks,
        index_last: int,
        excerpts: int,
        payload_bytes: int,
        *,
        is_in_order: bool,
    ) -> None:
        """So much was sent to a host, up to this index.

        Args:
            is_in_order: it has what comes before, or was sent it.
        """
        self.sent.add(excerpts, payload_bytes)
        self.sent_to.setdefault(marks.host_id, Tally()).add(excerpts, payload_bytes)
        if index_last > self.index_sent:
            self.index_sent = index_last
            self.cycles_sent.add(cycle_of(Index(index_last), self._shift))
        if self._is_own:
            self._queue.raise_sent(index_last)
        marks.raise_sent(index_last if is_in_order else NOTHING_SENT)

    def count_acknowledged(
        self,
        marks: HostMarks,
        index: int,
        excerpts: int,
        payload_bytes: int,
        claim: MarkRow | None,
    ) -> None:
        """A sink has acknowledged so much that it had not, up to this index.

        Args:
            claim: of a sink of which it is not known that it has what comes before its stream: that
                rises, and no mark does.
        """
        self.acknowledged.add(excerpts, payload_bytes)
        if claim is None:
            self.mark_acknowledged(marks, index)
        else:
            claim.raise_to(AckLevel.APPENDED, index)

    def mark_acknowledged(self, marks: HostMarks, index: int) -> None:
        """A sink has everything up to this index, though it may not have come over this wire."""
        index = marks.covers(index)
        self.index_acknowledged = max(self.index_acknowledged, index)
        self.mark_safe()
        marks.raise_acknowledged(index)

    def lower_to(self, index: int) -> None:
        """The queue has nothing beyond this index."""
        self.index_sent = min(self.index_sent, index)
        self.index_acknowledged = min(self.index_acknowledged, index)

    def mark_safe(self) -> None:
        """More may be safe than was when this was called last."""
        if not self._is_own or self.index_acknowledged == NOTHING:
            return
        index = self.index_acknowledged
        self._queue.raise_acknowledged(index if self._safe is None else min(index, self._safe()))


class SinkCounters:
    """One queue of a sink.

    Args:
        drain: has the session that owns the queue count what its native lane holds.

    Attributes:
        received: taken in: appended, or found to be there already.
    """

    def __init__(self, drain: Callable[[], None]) -> None:
        self.received = Tally()
        self._drain = drain

    def drained(self) -> Self:
        """These, with what native lanes have done until now."""
        self._drain()
        return self

    def count_received(self, excerpts: int, payload_bytes: int) -> None:
        """So much was taken in."""
        self.received.add(excerpts, payload_bytes)
