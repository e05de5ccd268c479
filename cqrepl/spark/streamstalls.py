"""A cycle that a stream cannot leave. Knows nothing of Spark.

Theory of operation. A stream leaves a cycle at its end-of-file mark, as every tailer does. Where a
writer died before it set one, and a later cycle holds excerpts, a tailer waits, and says so
(`queue.read.stall`). A query that is to take what there is must not end there as if that were all.
It cannot prove that nothing comes into the open cycle any more: a Java process that has it open may
append. So it ends with an error, and `cqrepl repair --apply` closes the cycle under the write lock.
"""

import time
from typing import Final

from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import Cycle, Index, cycle_of
from cqrepl.queue.read.stall import Stall, unclosed
from cqrepl.spark.ranges import listed_cycles

_LOOK_PAUSE_S: Final = 0.5


def confirmed_stall(cycles: Cycles, next_index: int) -> Stall | None:
    """The open cycle that keeps a reader at an index; None where there is none, or a
    living writer may be about to close the cycle.

    Raises:
        QueueError: a store file cannot be read.
    """
    first = cycle_of(Index(next_index), cycles.shift)
    found = _found(cycles, first)
    if found is None:
        return None
    time.sleep(_LOOK_PAUSE_S)
    again = _found(cycles, first)
    return again if again is not None and again.cycle == found.cycle else None


def _found(cycles: Cycles, first: Cycle) -> Stall | None:
    waiting = [cycle for cycle in listed_cycles(cycles) if cycle >= first]
    return unclosed(cycles, waiting, time.monotonic())
