"""The candidacy of this host: it stands only while its copy and its services are in order."""

import logging
from collections.abc import Callable, Set
from contextlib import suppress
from typing import Final

from cqrepl.cluster.election.electionstates import ElectionState
from cqrepl.cluster.election.queueelection import QueueElection
from cqrepl.net.errors import NetError
from cqrepl.protocol.messages.fences import CopyPosition
from cqrepl.queue import QueueError
from cqrepl.replicator.fitness import Fitness

_BEFORE_A_FENCE: Final = (ElectionState.MISSING, ElectionState.WAITING)
_FAILED: Final = (NetError, QueueError, OSError, ValueError)
_logger: Final = logging.getLogger(__name__)


def why_not_to_lead_on(election: QueueElection, refusing: Set[int]) -> str:
    """The reason why this host, which leads a queue, gives that up by the word of other members'
    clocks; empty where it leads on.

    Args:
        refusing: hosts that take nothing of the queue for now, as it is of times to come by their
            clocks. Where these are a majority, this host's clock is wrong, or counts as that: no
            append here gets safe, and one of them can lead.
    """
    members = sorted(refusing & election.electors.others)
    if not election.electors.elects or len(members) < election.electors.majority:
        return ""
    ids = ", ".join(map(str, members))
    return f"by the clocks of hosts {ids} it is of times to come: the clock of this host is ahead"


class Candidacy:
    """The fitness of one host for the lead of its queues.

    Args:
        position: of this host's copy of a queue; raises where that is not in order.
        fitness: of its services.
    """

    def __init__(self, position: Callable[[str], CopyPosition], fitness: Fitness) -> None:
        self._position = position
        self._fitness = fitness
        self._rests_until: dict[str, float] = {}  # by queue, after a plan that was refused

    def look_at(self, name: str, election: QueueElection, now: float) -> None:
        """Asks the services of this host whether they can serve, while a leader is missing. The
        only member is asked nothing: no other host could lead."""
        is_due = election.state is ElectionState.FOLLOWING and now >= election.deadline
        is_missing = is_due or election.state in _BEFORE_A_FENCE
        if not is_missing or len(election.electors.members) == 1:
            election.unfit = ""
            return
        was, election.unfit = election.unfit, self._why_unfit(name)
        if election.unfit and not was:
            told = "queue %r: this host does not stand for election: %s"
            _logger.info(told, name, election.unfit)
        election.last_refusal = election.unfit or election.last_refusal

    def _why_unfit(self, name: str) -> str:
        with suppress(*_FAILED):
            return self._fitness.why_unfit(name, self._position(name).next_index)
        return ""  # the plan says what is wrong with the copy

    def is_fit(self, name: str, now: float) -> bool:
        """True where the copy and the services are in order, and the plan of this host was not
        refused a moment ago: then the next candidate tries.

        Raises:
            NetError, QueueError, OSError, ValueError: the copy is not in order.
        """
        own = self._position(name)
        is_fit = not self._fitness.why_unfit(name, own.next_index)
        return is_fit and not (own.held or own.trouble) and now >= self._rests_until.get(name, now)

    def rest(self, name: str, until: float) -> None:
        """The plan of this host for a queue was refused: it is no candidate until then."""
        self._rests_until[name] = until
