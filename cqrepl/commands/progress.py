"""Progress on a terminal, twice a second: a line with excerpts, bytes, rate and lag; of a host a
table."""

import sys
import time
from typing import Final

import trio

from cqrepl.commands.livetable import LiveTable
from cqrepl.commands.screen import Screen
from cqrepl.console.units import format_bytes
from cqrepl.host import Host
from cqrepl.queue import QueueError
from cqrepl.queue.format.index import Index, cycle_of
from cqrepl.replicator.marks.counters import NOTHING
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from cqrepl.status.snapshot import snapshot_of

PAUSE_SECONDS: Final = 0.5


async def show_progress(replicator: Source | Sink | Host, screen: Screen | None = None) -> None:
    """Redraws until cancelled; does nothing where there is no terminal.

    Args:
        screen: where it is drawn; on standard error if there is none.
    """
    screen = screen or Screen(sys.stderr)
    if not screen.is_terminal:
        return
    try:
        if isinstance(replicator, Host):
            await _show_table(replicator, screen)
        else:
            await _show_line(replicator, screen)
    finally:
        screen.clear()


async def _show_table(host: Host, screen: Screen) -> None:
    live = LiveTable()
    while True:
        await trio.sleep(PAUSE_SECONDS)
        screen.draw(live.lines(snapshot_of(host), time.monotonic(), screen.size.lines - 1))


async def _show_line(replicator: Source | Sink, screen: Screen) -> None:
    before, then = 0, time.monotonic()
    while True:
        await trio.sleep(PAUSE_SECONDS)
        excerpts, payload_bytes = _counts(replicator)
        now = time.monotonic()
        rate = (excerpts - before) / (now - then)
        before, then = excerpts, now
        line = f"{excerpts:,} excerpts  {format_bytes(payload_bytes)}  {rate:,.0f}/s"
        if isinstance(replicator, Source):
            line += f"  lag {lag_text(replicator)}"
        screen.draw([line])


def lag_text(source: Source) -> str:
    """The number of excerpts by which acknowledgements are behind the ends of the queues, as text;
    in words where it is not known or more than a cycle."""
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


def _counts(replicator: Source | Sink) -> tuple[int, int]:
    """Excerpts and payload bytes of all queues together."""
    if isinstance(replicator, Source):
        tallies = [each.counters.drained().sent_once for each in replicator.queues.values()]
    else:
        tallies = [each.counters.drained().received for each in replicator.queues.values()]
    return sum(each.excerpts for each in tallies), sum(each.payload_bytes for each in tallies)
