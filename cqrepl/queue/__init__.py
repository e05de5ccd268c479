"""Storage: the memory-mapped files of a queue, read and written beside the Java library.

Queue       a directory: what is read and written goes through it
Tailer      reads on from an index, across cycles; BackwardTailer goes down, NamedTailer remembers
Appender    appends at exact indexes, or at the end
RollCycle, QueueLayout, ExcerptBatch, the index functions    plain values
"""

from cqrepl.queue.appender import Appender
from cqrepl.queue.backward import BackwardTailer
from cqrepl.queue.batch import ExcerptBatch
from cqrepl.queue.columns import Columns
from cqrepl.queue.durability import Durability
from cqrepl.queue.errors import (
    AtomicsMissing,
    Diverged,
    DurabilityLost,
    ExcerptTooLarge,
    IndexGap,
    LayoutMismatch,
    NotAQueue,
    QueueDamaged,
    QueueError,
    QueueLocked,
)
from cqrepl.queue.excerpt import Excerpt
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
from cqrepl.queue.named import NamedPosition, NamedTailer
from cqrepl.queue.pauser import Pauser
from cqrepl.queue.queue import Queue
from cqrepl.queue.rollcycle import ROLL_CYCLES, RollCycle
from cqrepl.queue.tailer import Tailer

__all__ = [
    "NEXT_OF_EMPTY",
    "ROLL_CYCLES",
    "Appender",
    "AtomicsMissing",
    "BackwardTailer",
    "Columns",
    "Diverged",
    "Durability",
    "DurabilityLost",
    "Excerpt",
    "ExcerptBatch",
    "ExcerptTooLarge",
    "IndexGap",
    "LayoutMismatch",
    "NamedPosition",
    "NamedTailer",
    "NotAQueue",
    "Pauser",
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
