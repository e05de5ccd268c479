"""One line of progress on a terminal: excerpts, bytes, rate and lag, twice a second."""

import sys
import time
from typing import Final

import trio

from cqrepl.console.units import format_bytes
from cqrepl.queue import QueueError
from cqrepl.queue.format.index import cycle_of
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from cqrepl.replicator.sourcequeue import SourceQueue

PAUSE_SECONDS: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"


async def show_progress(replicator: Source | Sink) -> None:
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
            if isinstance(replicator, Source):
                line += f"  lag {lag_text(replicator)}"
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
    if last is None or each.acknowledged >= last:
        return 0
    shift = each.queue.layout.roll_cycle.shift
    if each.acknowledged < 0 or cycle_of(each.acknowledged, shift) != cycle_of(last, shift):
        return None
    return last - each.acknowledged


def _counts(replicator: Source | Sink) -> tuple[int, int]:
    if isinstance(replicator, Source):
        sources = replicator.queues.values()
        return sum(q.sent_excerpts for q in sources), sum(q.sent_bytes for q in sources)
    sinks = replicator.queues.values()
    return sum(q.received_excerpts for q in sinks), sum(q.received_bytes for q in sinks)
