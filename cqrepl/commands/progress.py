"""One line of progress on a terminal: excerpts, bytes, rate and lag, twice a second."""

import sys
import time
from typing import Final

import trio

from cqrepl.console.units import format_bytes
from cqrepl.queue import QueueError
from cqrepl.queue.format.index import Index, cycle_of
from cqrepl.replicator.counters import NOTHING
from cqrepl.replicator.host import Host
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from cqrepl.replicator.sourcequeue import SourceQueue

PAUSE_SECONDS: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"


async def show_progress(replicator: Source | Sink | Host) -> None:
    """Redraws until cancelled; does nothing when stderr is no terminal."""
    if not sys.stderr.isatty():
        return
    before, then = 0, time.monotonic()
    try:
        while True:
            await trio.sleep(PAUSE_SECONDS)
            excerpts, payload_bytes = _counts(replicator)
            now = time.monotonic()
            rate = (excerpts - before) / (now - then)
            before, then = excerpts, now
            line = f"{excerpts:,} excerpts  {format_bytes(payload_bytes)}  {rate:,.0f}/s"
            source = replicator.source if isinstance(replicator, Host) else replicator
            if isinstance(source, Source) and source.names:
                line += f"  lag {lag_text(source)}"
            sys.stderr.write(_CLEAR_LINE + line)
            sys.stderr.flush()
    finally:
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()


def lag_text(source: Source) -> str:
    """How far the acknowledgements are behind the ends of the queues."""
    try:
        behind = [_lag(each) for each in source.queues.values()]
    except (QueueError, OSError):
        return "not known"  # the connections meet the same, and say what it is
    if None in behind:
        return "more than a cycle"
    return f"{sum(each for each in behind if each is not None):,}"


def _lag(each: SourceQueue) -> int | None:
    """Excerpts that are not acknowledged; None when that spans cycles and would have to be
    counted."""
    last = each.queue.last_index()
    acknowledged = Index(each.counters.drained().index_acknowledged)
    if last is None or acknowledged >= last:
        return 0
    shift = each.queue.layout.roll_cycle.shift
    if acknowledged == NOTHING or cycle_of(acknowledged, shift) != cycle_of(last, shift):
        return None
    return last - acknowledged


def _counts(replicator: Source | Sink | Host) -> tuple[int, int]:
    """Excerpts and payload bytes of all queues together."""
    if isinstance(replicator, Host):
        halves = zip(_counts(replicator.source), _counts(replicator.sink), strict=True)
        excerpts, payload_bytes = (out + into for out, into in halves)
        return excerpts, payload_bytes
    if isinstance(replicator, Source):
        tallies = [each.counters.drained().sent for each in replicator.queues.values()]
    else:
        tallies = [each.counters.drained().received for each in replicator.queues.values()]
    return sum(each.excerpts for each in tallies), sum(each.payload_bytes for each in tallies)
