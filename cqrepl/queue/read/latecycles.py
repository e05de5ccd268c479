"""Cycles that came to a queue after later ones had been streamed: no host was sent them.

Theory of operation. Writers go upwards. But one whose clock was set back, or a person who puts a
store file there, may bring a cycle below others. A source that has passed it never reads it, and
marks, which tell of all up to an index, would cover it. So a source keeps, in the table store, the
first cycle that it has streamed or would have (`cqrepl.firstCycle`), and `files.closedcycles` tells
of those between. A cycle below the first one, of which no note tells, has come since.
"""

from collections.abc import Mapping
from typing import Final

from cqrepl.queue.files.chroniclemarks import FIRST_KEY
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.read.count import count_in

_NONE: Final = -1


def late_below(cycles: Cycles, first: int) -> list[Cycle]:
    """The cycles with excerpts below the first one that a source has known, ascending; not those
    that are noted: retention had taken them, and they were put back.

    Raises:
        QueueError: a store file cannot be read.
        OSError: the notes cannot be read.
    """
    below = [cycle for cycle in cycles.listing() if cycle < first]
    noted = cycles.closed.load() if below else {}
    return [cycle for cycle in below if cycle not in noted and count_in(cycles, cycle, 1)]


def late_cycles(cycles: Cycles, keys: Mapping[str, int]) -> list[Cycle]:
    """The cycles that a source has not streamed, as far as what is kept tells, ascending. One that
    runs finds them, and lowers its marks; this is for a command that looks at the queue before.

    Args:
        keys: of the table store.

    Raises:
        QueueError: a store file cannot be read.
        OSError: what is kept cannot be read.
    """
    first = keys.get(FIRST_KEY.lower(), _NONE)
    if first == _NONE:
        return []
    noted = cycles.closed.load()
    highest = max(noted, default=_NONE)
    between = [c for c in cycles.listing() if first <= c < highest and c not in noted]
    return late_below(cycles, first) + [cycle for cycle in between if count_in(cycles, cycle, 1)]
