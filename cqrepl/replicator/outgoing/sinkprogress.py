"""The progress of a sink with the queues of its source; also of one that has left."""

from collections.abc import Mapping
from dataclasses import dataclass

from cqrepl.replicator.queuestate.stops import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """The state of the queues on one connection, by name.

    Args:
        ended: they go no further, whichever side has stopped them.
        untaken: the sink does not take them, or not now.
        whole: it has all that was there at the start.
        withdrawn: why the sink has let go of them, as it says.
        troubles: why they cannot be read for now.
    """

    ended: frozenset[str]
    untaken: frozenset[str]
    whole: frozenset[str]
    withdrawn: Mapping[str, str]
    troubles: Mapping[str, Stop]
