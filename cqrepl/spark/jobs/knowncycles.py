"""Is there all that copies of a queue are known to have held? Knows nothing of Spark.

Theory of operation. A cycle that every copy has lost is in no listing, and what is made of the
copies would go on behind it as if it had never been. Replication has noted beside a copy what
closed cycles held, and a table store names the highest cycle. Below the lowest store file of a copy
retention was at work.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cqrepl.queue import Queue, QueueDamaged, cycle_of, index_of
from cqrepl.queue.files.closedcycles import PUT_BACK, ClosedCycle
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import SEQUENCE_FIRST, Index
from cqrepl.spark.jobs.blockaudit import Block
from cqrepl.spark.lostends import confirmed_lost_end


def check_known(copies: Sequence[Path], blocks: Iterable[Block], shift: int) -> None:
    """Does nothing where what the copies are known to have held is in one of them.

    Args:
        blocks: what was read of the copies.
        shift: of the queue's indexes.

    Raises:
        QueueDamaged: it is in none.
        OSError: what is noted cannot be read.
    """
    ends: dict[int, int] = {}
    for block in blocks:
        cycle = cycle_of(Index(block.index_first), shift)
        ends[cycle] = max(ends.get(cycle, 0), block.index_last + 1)
    for path in copies:
        with Queue.open(path) as queue:
            _check_copy(queue.cycles, ends)


def _check_copy(cycles: Cycles, ends: dict[int, int]) -> None:
    for record in _noted(cycles):
        first = index_of(record.cycle, SEQUENCE_FIRST, cycles.shift)
        found = max(0, ends.get(record.cycle, first) - first)
        if found < record.excerpts:
            raise QueueDamaged(
                f"expected {record.excerpts} excerpts in one of the copies, found {found};"
                f" {PUT_BACK}",
                path=cycles.path_of(record.cycle),
                index=Index(first + found),
            )
    lost = confirmed_lost_end(cycles)
    if lost is not None and lost.cycle not in ends:
        raise QueueDamaged(
            f"{lost.what}, nor in another copy; cqrepl repair QUEUE --apply says that it is lost",
            path=lost.path,
            index=Index(lost.index),
        )


def _noted(cycles: Cycles) -> Iterator[ClosedCycle]:
    """The notes of closed cycles that retention has not deleted."""
    noted = {cycle: record for cycle, record in cycles.closed.load().items() if record.excerpts}
    lowest = min(cycles.listing(), default=max(noted, default=None))
    for cycle in sorted(noted):
        if lowest is not None and cycle >= lowest:
            yield noted[cycle]
