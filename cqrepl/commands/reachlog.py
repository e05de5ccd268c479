"""Logs the reach of each copy of a running host's queues, where there is no terminal.

A line says `caught up at INDEX` or `behind by N excerpts`, of a queue and a peer when it becomes
so, each at most once a minute. A copy is behind when it lacks an excerpt that was there at the look
before: an excerpt that is on its way is no news.
"""

import logging
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import trio

from cqrepl.host import Host
from cqrepl.net.ticks import until_tick
from cqrepl.queue.format.index import Index, format_index
from cqrepl.replicator.reaches import Reach, reaches_of
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source

LOOK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 60.0
WORK_SHARE: Final = 0.0005  # of a core: a host with many queues is looked at less often
_logger: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Said:
    """The lines that were said of one copy."""

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
        log.look(_reaches_of(replicator), trio.current_time())
        worked = time.thread_time() - began
        # whole seconds: the loop is awake then
        seconds = math.ceil(min(max(LOOK_SECONDS, worked / WORK_SHARE), QUIET_SECONDS))
        await until_tick(seconds)


def _reaches_of(replicator: Source | Sink | Host) -> Iterator[Reach]:
    if isinstance(replicator, Host):
        yield from reaches_of(replicator.source)
        yield from reaches_of(replicator.sink)
    else:
        yield from reaches_of(replicator)
