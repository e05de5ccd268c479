"""Storage: the memory-mapped files of a queue, read and written beside the Java library.

Queue       a directory: `open` to read, `open_for_append` to write
Tailer      reads on from an index, across cycles, in batches
Appender    appends at exact indexes, or at the end
RollCycle, QueueLayout, ExcerptBatch, the index functions    plain values
"""

from cqrepl.queue.appender import Appender
from cqrepl.queue.batch import ExcerptBatch
from cqrepl.queue.errors import (
    AtomicsMissing,
    Diverged,
    ExcerptTooLarge,
    IndexGap,
    LayoutMismatch,
    NotAQueue,
    QueueDamaged,
    QueueError,
    QueueLocked,
)
from cqrepl.queue.index import (
    NEXT_OF_EMPTY,
    cycle_of,
    format_index,
    index_of,
    is_next,
    parse_index,
    sequence_of,
)
from cqrepl.queue.layout import QueueLayout
from cqrepl.queue.queue import Queue
from cqrepl.queue.rollcycle import ROLL_CYCLES, RollCycle
from cqrepl.queue.tailer import Tailer

__all__ = [
    "NEXT_OF_EMPTY",
    "ROLL_CYCLES",
    "Appender",
    "AtomicsMissing",
    "Diverged",
    "ExcerptBatch",
    "ExcerptTooLarge",
    "IndexGap",
    "LayoutMismatch",
    "NotAQueue",
    "Queue",
    "QueueDamaged",
    "QueueError",
    "QueueLayout",
    "QueueLocked",
    "RollCycle",
    "Tailer",
    "cycle_of",
    "format_index",
    "index_of",
    "is_next",
    "parse_index",
    "sequence_of",
]
