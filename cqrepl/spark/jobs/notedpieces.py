"""Pieces of a closed cycle, held against what replication has noted of it. Knows nothing of Spark.

Theory of operation. A disk may give other bytes than were written, and a task that copies them
makes a copy that is right by all its own digests. Beside a store file stands the chain over its
excerpts, at places some thousand excerpts apart, and of a closed one its end
(`inspection.notedchains`). So a task that reads on from one such place reckons the chain on the
way, and holds it against the next one.

A task reads a part of a cycle, which begins between two places. So it reads first what lies between
the place before and its part; what lies behind the last place in its part, the next part's task
reads. Where nothing is noted, as of a queue of Java's, or no place lies in a part, nothing is read.

A task that takes a cycle from several copies may have passed over just what lies before its part,
because that cannot be read or is altered (`begun_check`). That says nothing of the part. The chain
up to the part is not known then, and is begun anew at the first place in the part.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from cqrepl.kernel.chain import CHAIN_START, extend_chain
from cqrepl.queue import IndexGap, Queue, QueueDamaged, format_index
from cqrepl.queue.files.closedcycles import FETCH
from cqrepl.queue.format.index import SEQUENCE_FIRST, Index, Sequence, cycle_of, index_of
from cqrepl.queue.inspection.notedchains import Noted, QueueNotes
from cqrepl.spark.jobs.blocks import Piece, read_pieces

_START: Final = (SEQUENCE_FIRST, CHAIN_START)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Excerpts of which one at least is not what it was: in a part, or before it."""

    index_first: int
    index_last: int
    text: str
    store: str

    def to_error(self) -> QueueDamaged:
        """The error that a caller raises once it has taken all of these excerpts."""
        return QueueDamaged(self.text, path=Path(self.store), index=Index(self.index_last))


def read_noted(queue: Queue, index_first: int, index_last: int) -> Iterator[Piece]:
    """All excerpts from one index to another of the same closed cycle, as `read_pieces`.

    Raises:
        IndexGap: one of them is not there.
        QueueDamaged: the file cannot be followed, or holds other excerpts than it did.
    """
    checked = _checked(queue, index_first, index_last)
    if checked.is_needed:
        checked.lead_in(queue, index_first)
    for piece in read_pieces(queue, index_first, index_last):
        checked.take(piece, queue)
        yield piece


def begun_check(queue: Queue, index_first: int, index_last: int) -> "NotedCheck":
    """A check of excerpts of one cycle, from `index_first` on, against the noted chain. It takes
    the pieces in their order, up to `index_last` at most.

    A changed excerpt may also lie before the first index. Then `doubt` tells of it, as the caller
    knows which copy that excerpt was taken from. Excerpts before the first index that cannot be
    read are left out.
    """
    checked = _checked(queue, index_first, index_last)
    if checked.is_needed:
        try:
            checked.lead_in(queue, index_first)
        except (IndexGap, QueueDamaged):
            checked.begin_anew(index_first)
        else:
            checked.doubt_before(index_first)
    return checked


def _checked(queue: Queue, index_first: int, index_last: int) -> "NotedCheck":
    cycles = queue.cycles
    cycle = cycle_of(Index(index_first), cycles.shift)
    base = index_of(cycle, SEQUENCE_FIRST, cycles.shift)
    noted = QueueNotes(queue.path).of(cycles.path_of(cycle), cycle)
    return NotedCheck(noted, base, index_first, index_last)


class NotedCheck:
    """The chain over a stretch, from the last place before it that is noted."""

    def __init__(self, noted: list[Noted], base: Index, index_first: int, index_last: int) -> None:
        self._base = base
        first, end = index_first - base, index_last + 1 - base
        sequences = [place.sequence for place in noted]
        nearest = bisect_right(sequences, first)
        self._ahead = noted[nearest : bisect_right(sequences, end)][::-1]  # the next one is last
        self._chain: bytes | None  # None: not known
        self._sequence, self._chain = noted[nearest - 1][:2] if nearest else _START
        self._begin = self._sequence
        self._is_shared = False  # up to the next place, with what lies before the part
        self.doubt: Doubt | None = None

    @property
    def is_needed(self) -> bool:
        """True while a place lies ahead."""
        return bool(self._ahead)

    def lead_in(self, queue: Queue, index_first: int) -> None:
        """Reads what lies between the place before a part and the part.

        Raises:
            IndexGap, QueueDamaged: it cannot be read.
        """
        for piece in read_pieces(queue, self._base + self._sequence, index_first - 1):
            self.take(piece, queue)

    def begin_anew(self, index_first: int) -> None:
        """Compares nothing up to the next place, and goes on from what is noted there."""
        self._chain, self._sequence = None, Sequence(index_first - self._base)

    def doubt_before(self, index_first: int) -> None:
        """Tells of what is wrong up to the next place, where something was read before a part."""
        self._is_shared = self._begin < index_first - self._base

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
        if self._chain is not None:
            self._chain = extend_chain(piece.payload, offsets, lengths, self._sequence, self._chain)
        self._sequence = Sequence(self._sequence + end - begin)

    def _check(self, place: Noted, queue: Queue) -> None:
        if self._chain not in (None, place.chain):
            doubt = self._doubt_at(place, queue)
            if not self._is_shared:
                raise doubt.to_error()
            self.doubt = doubt
        self._chain, self._is_shared = place.chain, False

    def _doubt_at(self, place: Noted, queue: Queue) -> Doubt:
        last = Index(self._base + place.sequence - 1)
        text = (
            f"at least one excerpt up to {format_index(last)} is not what it was when it was"
            f" appended, as {place.path.name} says; put the right file back, from a backup or a"
            f" copy: {FETCH}"
        )
        store = queue.cycles.path_of(cycle_of(last, queue.cycles.shift))
        first = self._base + self._begin
        return Doubt(index_first=first, index_last=last, text=text, store=str(store))
