"""The causes of stops: which faults of a plan may stop a queue at a host, and from which index on.

A queue that stops, and whose hosts say so, is left out of what must be equal in the end. So a stop
itself has to be explained: by something that was done to the very copy that stopped, or to one by
which the queue comes to it. All other stops break the run, as do those of a reason that the fault
does not bring about, and those that name an index below all that the fault has touched.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from cqrepl.protocol import StopReason
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.testing.plan import Kind

_INDEX: Final = re.compile(r"\bat (0x[0-9a-f]+)")
_DIFFERS: Final = frozenset({StopReason.DIVERGED, StopReason.GAP, StopReason.REFUSED})
_LACKS: Final = frozenset({StopReason.DAMAGED, StopReason.GAP})
# by the kinds of faults: the reasons that they explain. A kind that is not here explains nothing:
# hosts that were killed, links, a full disk, retention, peers that lie
EXPLAINED: Final = {
    Kind.ANEW: _DIFFERS | _LACKS,
    Kind.RESTORED: _DIFFERS,
    Kind.FOREIGN: _DIFFERS,
    Kind.SAME_DIRECTORY: _DIFFERS | _LACKS,
    Kind.MOVED_AWAY: _LACKS,
    Kind.FILE_GONE: _LACKS,
    Kind.FILE_OLD: _LACKS,
    Kind.POWER_CUT: _DIFFERS | _LACKS,
    Kind.CLOCK_STEP: frozenset({StopReason.REFUSED}),
    Kind.BIT_FLIP: frozenset({StopReason.DIVERGED, StopReason.DAMAGED}),
}
CLOCKS_DIFFER_SECONDS: Final = 3600.0  # more than that no copy has to take
# of `firstindex`'s messages
OF_THE_CLOCK: Final = (" and now (", " after now (", " cycles of times to come ")
# other files are there then, whatever they hold
IN_ANY_CASE: Final = frozenset({Kind.ANEW, Kind.FOREIGN, Kind.SAME_DIRECTORY, Kind.MOVED_AWAY})


@dataclass(frozen=True, slots=True)
class Cause:
    """A fault that has changed what a copy holds.

    Args:
        host: whose copy that is.
        first: the lowest index that the fault has touched.
    """

    kind: Kind
    host: int
    first: int

    def explains(self, stop: Stop, hosts: Container[int]) -> bool:
        """True where it accounts for a stop of the queue.

        Args:
            hosts: those by which the queue comes to the copy that has stopped, with its own.
        """
        if self.host not in hosts or stop.reason not in EXPLAINED[self.kind]:
            return False
        if self.kind is Kind.CLOCK_STEP:
            return any(each in stop.message for each in OF_THE_CLOCK)
        if stop.reason is not StopReason.DIVERGED:
            return True
        told = _INDEX.search(stop.message)
        return told is None or int(told[1], 16) >= self.first


def unexplained(
    stops: Iterable[Stop], causes: Iterable[Cause], hosts: Container[int]
) -> list[Stop]:
    """The stops that no cause explains."""
    known = list(causes)
    return [stop for stop in stops if not any(each.explains(stop, hosts) for each in known)]
