"""Places of one store file at which its chain is known."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

from cqrepl.kernel.chain import CHAIN_START
from cqrepl.queue.files.chainfile import POINTS_MAX, Point
from cqrepl.queue.format.index import SEQUENCE_FIRST, Sequence

START: Final[Point] = (SEQUENCE_FIRST, CHAIN_START)


class ChainPoints:
    """Sequences that rise, each with the chain over all before it, as evenly spread as they came.

    Args:
        file: tells the store file from another one of its name.
    """

    def __init__(self, file: object) -> None:
        self.file = file
        self.chain_first: bytes | None = None  # behind the first excerpt, once that was asked for
        self.saved = SEQUENCE_FIRST  # the last one that the side file has
        self._points: list[Point] = [START]
        self._apart = 1  # so many excerpts at least lie between two of them, but for the last

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    @property
    def last(self) -> Point:
        return self._points[-1]

    def last_before(self, sequence: Sequence) -> Point:
        """The last one at or before a sequence."""
        return self._points[bisect_right(self._points, sequence, key=itemgetter(0)) - 1]

    def note(self, sequence: Sequence, chain: bytes) -> None:
        """One more; it does nothing unless it lies behind the last one."""
        points = self._points
        if sequence <= points[-1][0]:
            return
        if len(points) > 2 and points[-1][0] - points[-2][0] < self._apart:
            points.pop()
        points.append((sequence, chain))
        if len(points) > POINTS_MAX:
            self._apart = 2 * sequence // POINTS_MAX
            self._thin()

    def _thin(self) -> None:
        kept = [START]
        for point in self._points[1:-1]:
            if point[0] - kept[-1][0] >= self._apart:
                kept.append(point)
        self._points = [*kept, self._points[-1]]

    def take(self, points: Iterable[Point]) -> None:
        """Takes in the points that a side file has of this store file."""
        for sequence, chain in points:
            self.note(sequence, chain)
        self.saved = self.last[0]
