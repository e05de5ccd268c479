"""Queues for the tests of jobs: made in no time, in several cycles, and damaged at will."""

from collections.abc import Sequence
from pathlib import Path

from cqrepl.queue import Queue, index_of
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.count import count_in

DAY_MS = 86_400_000
CYCLE = Cycle(19_675)
FIRST = index_of(CYCLE, SEQUENCE_FIRST, 32)


def payload(number: int) -> bytes:
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


def note_chains(path: Path) -> None:
    """Has replication's side files for the closed cycles of a queue."""
    with Queue.open(path) as queue:
        chains = Chains(queue.cycles)
        for cycle in queue.cycles.listing():
            chains.at(Index((cycle << 32) + count_in(queue.cycles, cycle)))
        chains.save(Index(queue.next_index()))


def note_closed(path: Path, cycle: Cycle = CYCLE) -> None:
    """Has replication's record of what a closed cycle of a queue holds."""
    with Queue.open(path) as queue:
        count = count_in(queue.cycles, cycle)
        chain = Chains(queue.cycles).at(Index((cycle << 32) + count))
        queue.cycles.closed.remember(ClosedCycle(cycle, count, chain))
        queue.cycles.closed.note_below(Cycle(cycle + 1))


def break_at(path: Path, number: int) -> int:
    """Makes a length lead nowhere: what is behind cannot be followed. Returns the position."""
    position = path.read_bytes().index(payload(number)) - 4
    with path.open("r+b") as file:
        file.seek(position)
        file.write((0x3FFF_FF00).to_bytes(4, "little"))
    return position


def overwrite_word(store: Path, body: bytes, word: int) -> None:
    """Overwrites the header of the only document of a store file that begins so."""
    data = store.read_bytes()
    assert data.count(body) == 1
    with store.open("r+b") as file:
        file.seek(data.index(body) - 4)
        file.write(word.to_bytes(4, "little"))
