"""Compares the last excerpts of a copy with those of a source that cannot prove what it holds, as
Java's, which announce nothing.

Theory of operation. The protocol lets a sink ask for a stream from any index on. So a sink asks
such a source not for what is new, but from a while before its own end on. It compares what comes
with what it holds, and appends what is behind. How far back it can ask is limited:

    only within the cycle of its end     a source that has removed the cycle before would not find
                                         the index: Java's streams nothing then, for ever
    only of a source that has all of it  to one that has less, the index that is asked for says
                                         that something comes back, and how much

Of the rest nothing is known, which is said once for each connection.
"""

from typing import Final

from cqrepl.queue import Queue
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Index,
    Sequence,
    cycle_of,
    format_index,
    index_of,
    sequence_of,
)
from cqrepl.queue.write.heldexcerpts import HeldExcerpts

OVERLAP_EXCERPTS: Final = 1000


def overlap_from(end: Index, shift: int) -> Index:
    """The index of the first of the last excerpts that can be asked for again; `end` for none.

    Args:
        end: one past the last excerpt; 0 for an empty queue.
        shift: number of bits of an index that hold the sequence.
    """
    if end == NEXT_OF_EMPTY:
        return end
    first = max(SEQUENCE_FIRST, sequence_of(end, shift) - OVERLAP_EXCERPTS)
    return index_of(cycle_of(end, shift), Sequence(first), shift)


def uncompared(queue: Queue, start: Index, end: Index, offered: int) -> str | None:
    """A sentence on the excerpts of a copy that are not compared; None where all are.

    Args:
        start: the index from which on the source was asked for excerpts.
        end: one past the last excerpt of the queue.
        offered: one past the source's.

    Raises:
        QueueError: a store file cannot be read.
    """
    first = queue.first_index()
    if first is None or first >= start:
        return None
    cannot = "its source cannot prove what it holds"
    if offered < end:
        return f"{cannot}, and has less than this copy: nothing that both hold is compared"
    return (
        f"{cannot}: the last {end - start} excerpts, from {format_index(start)} on, are asked for"
        " again and compared; what is before them is taken for the same"
    )


class Overlap:
    """Compares what a queue holds from `start` on with what comes for it again.

    Args:
        doubtful_from: from here on a power cut may have torn excerpts; they are mended. None: it
            has not.

    Raises:
        QueueError: the queue does not reach to `start`, or cannot be read.
    """

    def __init__(self, queue: Queue, start: Index, doubtful_from: Index | None) -> None:
        self._held = HeldExcerpts(queue.cycles, start, doubtful_from)
        self._has_to_come = doubtful_from is not None

    @property
    def mended(self) -> int:
        """Number of excerpts that were torn here, and are no more."""
        return self._held.mended

    def compare(self, batch: ExcerptBatch) -> None:
        """Checks that the queue holds these next, and nothing between.

        Raises:
            Diverged: it holds something else, and no power cut explains it.
            QueueError, OSError: it cannot be read, or mended.
        """
        self._has_to_come = True
        self._held.compare(batch)

    def check_passed(self) -> None:
        """Checks that nothing was left out: what comes now is behind the queue's end.

        A source of which nothing has come again may have removed all of it since; that it is there
        has to be known only where a power cut may have torn it here.

        Raises:
            Diverged: the source has passed over excerpts.
            QueueError: the queue cannot be read.
        """
        if self._has_to_come:
            self._held.check_passed()

    def close(self) -> None:
        self._held.close()
