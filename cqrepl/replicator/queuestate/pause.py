"""The pauses of a queue that the machine keeps from going on for now: a full disk, too few
descriptors, a directory that may not be written.

Theory of operation. Such a trouble passes, and is no fault of what the queue holds. So the sink
lets go of that queue on its connection, whose other queues go on, and names it again a while later;
the while becomes longer as long as nothing gets through. A peer that cannot be told of that, as
Java's, is left, and comes again.

However often it is tried, the reason is logged once, and once more that the queue goes on. A full
disk may have room for a little each time: it goes on when nothing has held it up for a second.
"""

import errno
import math
from typing import Final

import trio

from cqrepl.queue import QueueError
from cqrepl.queue.format.errors import UnfinishedQueue
from cqrepl.replicator.agreement.firstindex import ClockBehind
from cqrepl.replicator.queuestate.passedon import CopyBehind

PAUSE_SECONDS: Final = 0.5  # the first one
PAUSE_SECONDS_MAX: Final = 5.0
FIRM_SECONDS: Final = 1.0  # what went on for so long does go on
# a queue error over one of these does tell of what is there
_LASTING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})


def is_passing(error: QueueError | OSError) -> bool:
    """True for an error of the machine, which tells nothing of what the queue holds; for a queue
    that is only being made; and for excerpts of times to come, as clocks may agree later."""
    if isinstance(error, OSError | CopyBehind | UnfinishedQueue | ClockBehind):
        return True
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno not in _LASTING


class Pause:
    """The schedule of one queue's pause: when it is tried again, and what of that is logged.
    Whether it pauses at all its life tells (`protocol/queuelife`).

    Attributes:
        logged: the reason that was, and was not taken back since; None for none.
    """

    def __init__(self) -> None:
        self.until = -math.inf  # by trio's clock
        self.firm_at = math.inf  # by trio's clock: when it is to be logged that it goes on
        self._seconds = PAUSE_SECONDS
        self.logged: str | None = None

    @property
    def is_on(self) -> bool:
        """True from `begin` to `forget`."""
        return self.logged is not None and self.firm_at == math.inf

    @property
    def is_over(self) -> bool:
        """True when the queue may be tried, for the first time or again."""
        return trio.current_time() >= self.until

    def begin(self, why: str, *, is_told: bool) -> bool:
        """Nothing gets through. True where that is to be logged.

        Args:
            is_told: the peer knows that the queue is offered again; else it comes by itself.
        """
        is_news = why != self.logged
        self.logged, self.firm_at = why, math.inf
        if is_told:
            self.until = trio.current_time() + self._seconds
            self._seconds = min(2 * self._seconds, PAUSE_SECONDS_MAX)
        return is_news

    def forget(self) -> None:
        """Something has got through, or nothing is to come that might fail again."""
        self._seconds = PAUSE_SECONDS
        self.firm_at = trio.current_time() + FIRM_SECONDS

    def takes_firm(self) -> bool:
        """True, once, when it has gone on long enough for that to be logged."""
        is_firm = trio.current_time() >= self.firm_at
        if is_firm:
            self.logged, self.firm_at = None, math.inf
        return is_firm
