"""How far the copies of a running host's queues are, for lines where there is no terminal.

Said are `caught up at INDEX` and `behind by N excerpts`, of each queue and peer when it becomes
so, each at most once a minute. Behind is a copy that lacks what was there at the look before: an
excerpt that is on its way is no news. Of a queue that is taken in, what its source had when its
stream began is all that is known of the source's end.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import trio

from cqrepl.console.units import plural
from cqrepl.queue import QueueError
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of, format_index
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.host import Host
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.sinkqueue import SinkQueue
from cqrepl.replicator.source import Source
from cqrepl.replicator.sourcesession import SourceSession

LOOK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 60.0
WORK_SHARE: Final = 0.0005  # of a core: a host with many queues is looked at less often
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far one copy is.

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


@dataclass(slots=True)
class _Said:
    """What was said of one copy."""

    end: int  # of the queue, at the look before
    is_behind: bool | None = None
    at: dict[bool, float] = field(default_factory=dict)  # when each of the two was said


class ReachLog:
    """Says what is new, from look to look."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int | None], _Said] = {}

    def look(self, reaches: Iterable[Reach], now: float) -> None:
        """Looks at all copies that are being written.

        Args:
            now: in seconds, of a clock that only goes forward.
        """
        seen = set()
        for each in reaches:
            key = (each.queue, each.peer)
            seen.add(key)
            said = self._said.get(key)
            if said is None:
                self._said[key] = _Said(each.end)
                continue
            self._tell(each, said, now)
            said.end = each.end
        for key, said in self._said.items():
            if key not in seen:  # it is told again when it comes again
                said.is_behind = None

    def _tell(self, reach: Reach, said: _Said, now: float) -> None:
        is_behind = reach.held < said.end
        is_news = is_behind or said.is_behind is not is_behind
        if not is_news or now - said.at.get(is_behind, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        said.is_behind = is_behind
        said.at[is_behind] = now
        what = f"queue {reach.queue!r}"
        if reach.peer is not None:
            what += f", host {reach.peer}"
        held = format_index(Index(reach.held)) if reach.held > 0 else None
        if is_behind:
            _logger.info("%s: behind by %s", what, reach.lag)
        else:
            _logger.info("%s: caught up at %s", what, held)


async def log_reaches(replicator: Source | Sink | Host) -> None:
    """Says so until it is cancelled."""
    log = ReachLog()
    while True:
        began = time.thread_time()
        log.look(reaches_of(replicator), trio.current_time())
        worked = time.thread_time() - began
        await trio.sleep(min(max(LOOK_SECONDS, worked / WORK_SHARE), QUIET_SECONDS))


def reaches_of(replicator: Source | Sink | Host) -> Iterator[Reach]:
    """The copies that are being written now, at this side and at others."""
    if isinstance(replicator, Host):
        yield from reaches_of(replicator.source)
        yield from reaches_of(replicator.sink)
    elif isinstance(replicator, Source):
        yield from _of_source(replicator)
    else:
        for queue in replicator.queues.values():
            yield from _of_copy(queue)


def _of_source(source: Source) -> Iterator[Reach]:
    ends: dict[str, Index | None] = {}
    for host_id, (_, session) in source.endpoint.connections.items():
        for each in sessions_of(SourceSession, [session]):
            for outgoing in each.outgoing.values():
                queue = outgoing.queue
                if outgoing.tailer is None or outgoing.has_stopped:
                    continue
                if queue.name not in ends:
                    queue.counters.drained()
                    try:
                        ends[queue.name] = queue.queue.last_index()
                    except (QueueError, OSError):  # the connections meet the same, and say so
                        ends[queue.name] = None
                end, marks = ends[queue.name], outgoing.marks
                if end is not None:
                    held = marks.acknowledged if source.asks_ack(queue.name) else marks.sent
                    yield Reach(
                        queue=queue.name, peer=host_id, held=held, end=end, shift=outgoing.shift
                    )


def _of_copy(queue: SinkQueue) -> Iterator[Reach]:
    if queue.owner is None or queue.stop is not None or queue.offered_end == NEXT_OF_EMPTY:
        return
    held, end = queue.known_last, Index(queue.offered_end - 1)
    if held is not None:  # it is open
        shift = queue.queue.layout.roll_cycle.shift
        yield Reach(queue=queue.name, peer=queue.master_id, held=held, end=end, shift=shift)
