"""Cycles without a store file of which nothing tells whether they held anything. Knows no Spark.

Theory of operation. A cycle in which nothing was written has no store file, as on a day without
trade. A store file that was lost looks the same, but where replication has noted what closed cycles
held (`queue.files.closedcycles`): a noted one that is missing is damage. In a queue without such
notes both are read as if nothing had been there, so it is said where that is so.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from cqrepl.console.units import plural
from cqrepl.queue import Queue
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import Cycle, Index, cycle_of, sequence_of
from cqrepl.spark.ranges import IndexRange, listed_cycles

_WHY: Final = "and no note tells whether there was one"


def unknown_holes(cycles: Cycles) -> list[tuple[Cycle, Cycle]]:
    """Each two neighbours among store files between which cycles have none, where nothing is noted
    of the lower one.

    Raises:
        OSError: what is noted cannot be read.
    """
    listed, noted = listed_cycles(cycles), cycles.closed.load()
    return [(low, high) for low, high in pairwise(listed) if high > low + 1 and low not in noted]


def told_of_holes(queue: Queue, ranges: Iterable[IndexRange]) -> str | None:
    """One line about such cycles just below some ranges that are read from their beginning."""
    shift = queue.cycles.shift
    begun = {
        cycle_of(Index(one.index_first), shift)
        for one in ranges
        if one.queue == queue.path and not sequence_of(Index(one.index_first), shift)
    }
    return _text(queue, [each for each in unknown_holes(queue.cycles) if each[1] in begun])


def told_of_all_holes(queue: Queue) -> str | None:
    """One line about all such cycles of a queue."""
    return _text(queue, unknown_holes(queue.cycles))


def _text(queue: Queue, holes: list[tuple[Cycle, Cycle]]) -> str | None:
    if not holes:
        return None
    count = plural(sum(high - low - 1 for low, high in holes), "cycle")
    first = queue.cycles.path_of(Cycle(holes[0][0] + 1)).name
    return f"{queue.path}: {count} between others without a store file, {first} first, {_WHY}"
