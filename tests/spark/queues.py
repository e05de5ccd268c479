"""Queues for the tests of jobs: made in no time, in several cycles, and damaged at will."""

from collections.abc import Sequence
from pathlib import Path

from cqrepl.queue import Queue, index_of
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle

DAY_MS = 86_400_000
CYCLE = Cycle(19_675)
FIRST = index_of(CYCLE, SEQUENCE_FIRST, 32)


def payload(number: int) -> bytes:
    """The payload of the excerpt of this number; no two are alike."""
    return b"excerpt %012d of a queue that is replicated" % number


def make_queue(path: Path, counts: Sequence[int], *, start: int = 0) -> Path:
    """A queue with a cycle for each count, from `CYCLE` on, that holds so many excerpts."""
    with Queue.open(path, create="FAST_DAILY") as queue:
        number = start
        for nth, count in enumerate(counts):
            for first in range(number, number + count, 4096):
                some = range(first, min(first + 4096, number + count))
                queue.append_many([payload(n) for n in some], now_ms=(CYCLE + nth) * DAY_MS)
            number += count
    return path


def excerpts(path: Path) -> list[tuple[int, bytes]]:
    """All that a queue holds."""
    with Queue.open(path) as queue:
        return [(excerpt.index, bytes(excerpt)) for excerpt in queue.tailer()]
