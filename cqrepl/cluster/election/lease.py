"""The lease of a leader: until when no other host can have been elected.

Theory of operation. A member that hears a leader refuses, for one lease by its own clock, each
fence that comes by election. It hears a `leads` after that was sent. So until one lease after a
`leads` was *sent* that a majority has answered, the leader itself among them, each majority that
could promise another epoch has a member that refuses. It counts from the sending, never from the
answer: the answer may have been on its way for long. Two clocks may run apart by `DRIFT`, so the
leader's lease is shorter by that.
"""

import math
from collections.abc import Set
from typing import Final

DRIFT: Final = 1 / 64  # of the lease: by so much may one clock be slower than another one


class Lease:
    """The lease of one queue that this host leads in one epoch.

    Args:
        others: the members but this host.
        seconds: length of the lease.
        now: when the epoch was begun.
    """

    def __init__(self, others: Set[int], seconds: float, now: float) -> None:
        self._seconds = seconds * (1 - DRIFT)
        self._needed = (len(others) + 1) // 2  # with this host they are more than a half
        self._sent = dict.fromkeys(others, -math.inf)  # the latest that each has answered
        self._began = now

    def answered(self, host_id: int, sent: float) -> None:
        """A member has heard what this host sent at that time."""
        if host_id in self._sent:
            self._sent[host_id] = max(self._sent[host_id], sent)

    @property
    def until(self) -> float:
        """The time until which consistent reads may be answered; infinity for the only member."""
        if not self._needed:
            return math.inf
        return sorted(self._sent.values(), reverse=True)[self._needed - 1] + self._seconds

    @property
    def ends(self) -> float:
        """The time at which this host steps down: it also has one lease from the beginning of its
        epoch, for its first answers."""
        return max(self.until, self._began + self._seconds)

    def holds(self, now: float) -> bool:
        """True while no other host can have been elected."""
        return now < self.until

    def hears(self, now: float) -> frozenset[int]:
        """The members whose answers count now."""
        return frozenset(host for host, at in self._sent.items() if now < at + self._seconds)
