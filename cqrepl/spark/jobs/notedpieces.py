"""Pieces of a closed cycle, held against what replication has noted of it. Knows nothing of Spark.

Theory of operation. A disk may give other bytes than were written, and whoever copies them makes a
copy that is right by all its own digests. Beside a store file stands the chain over its excerpts,
at places some thousand excerpts apart, and of a closed one its end (`inspection.notedchains`). So
who reads on from one such place reckons the chain on the way, and holds it against the next one.

A task reads a part of a cycle, which begins between two places. So it reads first what lies between
the place before and its part; what lies behind the last place in its part, the next part's task
reads. Where nothing is noted, as of a queue of Java's, or no place lies in a part, nothing is read.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from cqrepl.kernel.chain import CHAIN_START, extend_chain
from cqrepl.queue import Queue, QueueDamaged, format_index
from cqrepl.queue.files.closedcycles import FETCH
from cqrepl.queue.format.index import SEQUENCE_FIRST, Index, Sequence, cycle_of, index_of
from cqrepl.queue.inspection.notedchains import Noted, QueueNotes
from cqrepl.spark.jobs.blocks import Piece, read_pieces

_START: Final = (SEQUENCE_FIRST, CHAIN_START)


def read_noted(queue: Queue, index_first: int, index_last: int) -> Iterator[Piece]:
    """All excerpts from one index to another of the same closed cycle, as `read_pieces`.

    Raises:
        IndexGap: one of them is not there.
        QueueDamaged: the file cannot be followed, or holds other excerpts than it did.
    """
    checked = _checked(queue, index_first, index_last)
    for piece in read_pieces(queue, index_first, index_last):
        checked.take(piece, queue)
        yield piece


def check_noted(queue: Queue, index_first: int, index_last: int) -> None:
    """Does nothing where these excerpts of one cycle, which can be read, are what they were.

    Raises:
        IndexGap, QueueDamaged: as `read_noted`.
    """
    checked = _checked(queue, index_first, index_last)
    if checked.is_needed:
        for piece in read_pieces(queue, index_first, index_last):
            checked.take(piece, queue)


def _checked(queue: Queue, index_first: int, index_last: int) -> "_Checked":
    cycles = queue.cycles
    cycle = cycle_of(Index(index_first), cycles.shift)
    base = index_of(cycle, SEQUENCE_FIRST, cycles.shift)
    noted = QueueNotes(queue.path).of(cycles.path_of(cycle), cycle)
    checked = _Checked(noted, base, index_first, index_last)
    if checked.is_needed:
        for piece in read_pieces(queue, checked.index_next, index_first - 1):
            checked.take(piece, queue)
    return checked


class _Checked:
    """The chain over a stretch, from the last place before it that is noted."""

    def __init__(self, noted: list[Noted], base: Index, index_first: int, index_last: int) -> None:
        self._base = base
        first, end = index_first - base, index_last + 1 - base
        sequences = [place.sequence for place in noted]
        nearest = bisect_right(sequences, first)
        self._ahead = noted[nearest : bisect_right(sequences, end)][::-1]  # the next one is last
        self._sequence, self._chain = noted[nearest - 1][:2] if nearest else _START

    @property
    def is_needed(self) -> bool:
        """True while a place lies ahead."""
        return bool(self._ahead)

    @property
    def index_next(self) -> Index:
        """The first index that is not taken yet."""
        return Index(self._base + self._sequence)

    def take(self, piece: Piece, queue: Queue) -> None:
        """Holds what follows against what is noted.

        Raises:
            QueueDamaged: they differ.
        """
        begin = 0
        while self._ahead and begin < len(piece.lengths):
            place = self._ahead[-1]
            end = min(len(piece.lengths), begin + place.sequence - self._sequence)
            self._extend(piece, begin, end)
            begin = end
            if self._sequence == place.sequence:
                self._ahead.pop()
                self._check(place, queue)

    def _extend(self, piece: Piece, begin: int, end: int) -> None:
        start = sum(piece.lengths[:begin])
        lengths = piece.lengths[begin:end]
        offsets = array("q", accumulate(lengths, initial=start))
        offsets.pop()
        self._chain = extend_chain(piece.payload, offsets, lengths, self._sequence, self._chain)
        self._sequence = Sequence(self._sequence + end - begin)

    def _check(self, place: Noted, queue: Queue) -> None:
        if self._chain == place.chain:
            return
        last = Index(self._base + place.sequence - 1)
        raise QueueDamaged(
            f"at least one excerpt up to {format_index(last)} is not what it was when it was"
            f" appended, as {place.path.name} says; put the right file back, from a backup or a"
            f" copy: {FETCH}",
            path=queue.cycles.path_of(cycle_of(last, queue.cycles.shift)),
            index=last,
        )
