"""Finds one of many queues of which a sink has not yet all that was there at the start."""

from collections.abc import Callable, Mapping

from cqrepl.protocol.cid import Cid
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing


class QueueBehind:
    """A queue of which the sink has not all that was there at the start. It is the same one as long
    as that is so, and one of the last that began: they are many, and this is asked for each thing
    that happens.

    Args:
        outgoing: the queues that are on the connection, as they come and go.
    """

    def __init__(self, outgoing: Mapping[Cid, Outgoing]) -> None:
        self._outgoing = outgoing
        self._found: Outgoing | None = None

    def find(self, has_target: Callable[[Outgoing], bool]) -> Outgoing | None:
        """One of which `has_target` is not true; None where there is none."""
        each = self._found
        if each is None or self._outgoing.get(each.cid) is not each or has_target(each):
            latest = reversed(list(self._outgoing.values()))
            self._found = next((one for one in latest if not has_target(one)), None)
        return self._found
