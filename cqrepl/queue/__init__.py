"""Storage: the memory-mapped files of a queue, read and written beside the Java library.

Queue       a directory: what is read and written goes through it
Tailer      reads on from an index, across cycles; BackwardTailer goes down, NamedTailer remembers
Appender    appends at exact indexes, or at the end
RollCycle, QueueLayout, ExcerptBatch, the index functions    plain values
"""

from cqrepl.queue.format.errors import (
    AppendsToCopy,
    AtomicsMissing,
    Diverged,
    DurabilityLost,
    ExcerptTooLarge,
    IndexGap,
    LayoutMismatch,
    NotAQueue,
    QueueCut,
    QueueDamaged,
    QueueError,
    QueueLocked,
    UnfinishedQueue,
    WrittenBetween,
)
from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    Cycle,
    Index,
    Sequence,
    cycle_of,
    format_index,
    index_of,
    is_next,
    parse_index,
    sequence_of,
)
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.format.rollcycle import ROLL_CYCLES, RollCycle
from cqrepl.queue.queue import Queue
from cqrepl.queue.read.backward import BackwardTailer
from cqrepl.queue.read.columns import Columns
from cqrepl.queue.read.namedtailer import NamedPosition, NamedTailer
from cqrepl.queue.read.pauser import Pauser
from cqrepl.queue.read.tailer import Tailer
from cqrepl.queue.write.appender import Appender
from cqrepl.queue.write.groupcommit import Durability

__all__ = [
    "NEXT_OF_EMPTY",
    "ROLL_CYCLES",
    "Appender",
    "AppendsToCopy",
    "AtomicsMissing",
    "BackwardTailer",
    "Columns",
    "Cycle",
    "Diverged",
    "Durability",
    "DurabilityLost",
    "Excerpt",
    "ExcerptBatch",
    "ExcerptTooLarge",
    "Index",
    "IndexGap",
    "LayoutMismatch",
    "NamedPosition",
    "NamedTailer",
    "NotAQueue",
    "Pauser",
    "Queue",
    "QueueCut",
    "QueueDamaged",
    "QueueError",
    "QueueLayout",
    "QueueLocked",
    "RollCycle",
    "Sequence",
    "Tailer",
    "UnfinishedQueue",
    "WrittenBetween",
    "cycle_of",
    "format_index",
    "index_of",
    "is_next",
    "parse_index",
    "sequence_of",
]
