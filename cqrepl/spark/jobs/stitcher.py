"""Reads one cycle from several copies of a queue, each as far as it can be read. Knows no Spark.

The first copy that holds the next excerpt is read on until it ends or cannot be followed; then the
first of all copies that goes on there. What several copies hold is taken to be the same: an audit
comes before, and the caller has decided which copy wins where they differ.

What is taken of a copy is held against what replication has noted beside it, on the way: each byte
that is given out was in the chain that was compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cqrepl.queue import IndexGap, Queue, QueueDamaged
from cqrepl.spark.jobs.blocks import Piece, read_pieces
from cqrepl.spark.jobs.notedpieces import Doubt, NotedCheck, begun_check


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Excerpts that came from one copy, by its place among the copies."""

    copy: int
    index_first: int
    index_last: int


def goes_on(taken: Taken, further: Taken) -> bool:
    """True when `further` goes on where `taken` ends, in the same copy."""
    return taken.copy == further.copy and taken.index_last + 1 == further.index_first


class Stitcher:
    """The excerpts of one cycle; `taken` tells afterwards where they came from."""

    def __init__(self, paths: Sequence[Path], order: Sequence[int]) -> None:
        """The places of the copies among the paths are in `order`, the best first."""
        self.taken: list[Taken] = []
        self._paths = paths
        self._order = order
        self._checks: list[tuple[int, NotedCheck]] = []  # for each of `taken`, with its copy

    def pieces(self, index_first: int, index_last: int) -> Iterator[Piece]:
        """All excerpts from one index to another.

        Raises:
            QueueDamaged: an excerpt can be read from no copy, or what was taken was altered since
                replication has noted it.
        """
        queues = {copy: Queue.open(self._paths[copy]) for copy in self._order}
        index = index_first
        try:
            while index <= index_last:
                before = index
                for copy in self._order:
                    for piece in _readable(queues[copy], index, index_last):
                        self._take(copy, queues[copy], piece, index_last)
                        yield piece
                        index = piece.index_last + 1
                    if index > before:
                        break  # the best copy may go on behind what it lacked
                else:
                    raise QueueDamaged(
                        f"expected excerpt {index:#x} in one of {len(queues)} copies, found none"
                        " that can be read",
                        index=index,
                    )
        finally:
            for queue in queues.values():
                queue.close()

    def doubts(self) -> list[tuple[int, Doubt]]:
        """Excerpts of a copy of which one was altered, where some of them lie before what was taken
        here: it is enough that another task has not taken these. Known once all was taken."""
        return [(copy, check.doubt) for copy, check in self._checks if check.doubt is not None]

    def _take(self, copy: int, queue: Queue, piece: Piece, index_last: int) -> None:
        """Notes where a piece came from, and holds it against what is noted there.

        Raises:
            QueueDamaged: something was altered.
        """
        taken = Taken(copy=copy, index_first=piece.index_first, index_last=piece.index_last)
        if self.taken and goes_on(self.taken[-1], taken):
            self.taken[-1] = replace(self.taken[-1], index_last=piece.index_last)
        else:
            self.taken.append(taken)
            self._checks.append((copy, begun_check(queue, piece.index_first, index_last)))
        self._checks[-1][1].take(piece, queue)


def _readable(queue: Queue, index: int, index_last: int) -> Iterator[Piece]:
    """The excerpts of a copy from an index on, as far as it has them."""
    try:
        yield from read_pieces(queue, index, index_last)
    except (IndexGap, QueueDamaged):
        return
