"""The limit on how often a host may have once more what it has acknowledged.

A sink that has lost its copy asks for all of it again. One that does so again and again, by a fault
or on purpose, has the source read its whole queue from the disk each time: so a host has a few such
streams at once, and then one now and then. What is asked for too early begins later; everything
else on the connection goes on.
"""

import math
from typing import Final

from cqrepl.queue.format.index import NEXT_OF_EMPTY

RESENDS_MAX: Final = 3  # one after the other
RESEND_SECONDS: Final = 20.0  # for each further one
FEW_EXCERPTS: Final = 1 << 20  # what a power cut takes of a copy is less, and costs little


def is_resend(next_index: int, acknowledged: int, shift: int) -> bool:
    """True when a stream from this index on brings much that the host has acknowledged.

    Args:
        acknowledged: by the host, up to this index; -1 for nothing.
        shift: number of bits of an index that hold the sequence.
    """
    if next_index > acknowledged:
        return False
    is_of_this_cycle = next_index >> shift == acknowledged >> shift
    many = acknowledged - next_index >= FEW_EXCERPTS
    return next_index == NEXT_OF_EMPTY or not is_of_this_cycle or many


class Resends:
    """The streams of one host from one queue that it had before: a bucket that fills again."""

    def __init__(self) -> None:
        self._full_at = -math.inf  # when the host may have as many as ever

    def next(self, now: float) -> float:
        """Notes one more; when it may begin. Times are monotonic, in seconds."""
        self._full_at = max(now, self._full_at) + RESEND_SECONDS
        return max(now, self._full_at - RESENDS_MAX * RESEND_SECONDS)
