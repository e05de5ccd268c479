"""All queues of one host whose leaders are elected: what it says to each member, and does itself.

Events and the time in, documents and wishes out; no I/O, no clock. Four times a lease a host says
to each other member that elects which queues it leads, all in one document. The answer names those
of which that member hears the leader.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from cqrepl.cluster.election.queueelection import NO_HOST, Electors, QueueElection, Wish
from cqrepl.protocol.messages.leads import BODY_MAX, QUEUE_BYTES, Hears, Leads, Led

SAYS_PER_LEASE: Final = 4
_UNANSWERED_MAX: Final = 64  # documents to one member, whose answers would still count


class Promised(NamedTuple):
    """The latest epoch that this host's copy has promised, and to which host; 0: none."""

    epoch: int = 0
    leader: int = NO_HOST


NO_PROMISE: Final = Promised()


class HostElections:
    """The elections of one host.

    Args:
        electors: of each queue, by name.
        now: when the host has started.
        chance: as of `QueueElection`.
    """

    def __init__(
        self,
        electors: Mapping[str, Electors],
        now: float,
        chance: Callable[[float, float], float],
    ) -> None:
        self.queues: Final[dict[str, QueueElection]] = {}
        self._chance = chance
        self._elects: dict[int, bool] = {}  # what is known of members, connected or not
        self._connected: set[int] = set()
        self._number = 0
        self._sent: dict[int, dict[int, float]] = {}  # by member: when each number was said
        self.set_queues(electors, now)

    def set_queues(self, electors: Mapping[str, Electors], now: float) -> None:
        """These are the queues from now on; those that were there before go on, with the members
        that they have now."""
        for name in self.queues.keys() - electors.keys():
            del self.queues[name]
        for name, each in electors.items():
            known = self.queues.get(name)
            if known is None:
                self.queues[name] = QueueElection(each, now, self._chance)
            elif known.electors != each:
                known.change(each, now)
        self._changed(now)

    @property
    def cannot_elect(self) -> list[int]:
        """The members that are known not to elect, or to have another lease."""
        return sorted(host for host, elects in self._elects.items() if not elects)

    def connected(self, host_id: int, now: float, *, elects: bool) -> None:
        """Another host is connected.

        Args:
            elects: it does so, with the same lease.
        """
        self._connected.add(host_id)
        self._elects[host_id] = elects
        self._sent[host_id] = {}  # answers to what an older connection was told are lost
        self._changed(now)

    def lost(self, host_id: int, now: float) -> None:
        """It is connected no more. Whether it elects is still known."""
        self._connected.discard(host_id)
        self._changed(now)

    def _changed(self, now: float) -> None:
        for each in self.queues.values():
            members = each.electors.others
            each.see(self._connected)
            each.switch(now, is_on=all(self._elects.get(host, True) for host in members))

    def leads_for(self, host_id: int, safe: Mapping[str, int], now: float) -> list[Leads]:
        """The documents for one member, to be sent now: one, where the names are not many; none
        where this host leads nothing that it is a member of.

        Args:
            safe: up to which index each queue is safe.
        """
        found: list[Leads] = []
        if not self._elects.get(host_id):
            return found
        queues: dict[str, Led] = {}
        room = BODY_MAX
        for name, each in self.queues.items():
            if each.lease is None or host_id not in each.electors.others:
                continue
            room -= len(name.encode()) + QUEUE_BYTES
            if room < 0:
                found.append(self._numbered(host_id, queues, now))
                queues, room = {}, BODY_MAX - len(name.encode()) - QUEUE_BYTES
            queues[name] = Led(each.epoch, safe.get(name, -1))
        if queues:
            found.append(self._numbered(host_id, queues, now))
        return found

    def _numbered(self, host_id: int, queues: Mapping[str, Led], now: float) -> Leads:
        self._number += 1
        sent = self._sent.setdefault(host_id, {})
        sent[self._number] = now
        if len(sent) > _UNANSWERED_MAX:
            del sent[next(iter(sent))]
        return Leads(number=self._number, queues=queues)

    def told_leads(
        self, host_id: int, leads: Leads, promised: Callable[[str], Promised], now: float
    ) -> Hears:
        """Another member says that it leads; the answer.

        Args:
            promised: by this host's copy of a queue.
        """
        heard: dict[str, int] = {}
        refuses: dict[str, int] = {}
        for name, led in leads.queues.items():
            queue = self.queues.get(name)
            if queue is not None:
                epoch, leader = promised(name)
                if queue.hear(host_id, led.epoch, epoch, leader, now):
                    heard[name] = led.epoch
                else:
                    refuses[name] = epoch
        return Hears(number=leads.number, queues=heard, refuses=refuses)

    def told_hears(self, host_id: int, hears: Hears, now: float) -> None:
        """A member hears what this host has said."""
        sent = self._sent.get(host_id, {}).pop(hears.number, None)
        if sent is None:  # of an older connection, or too old to count
            return
        for name, epoch in hears.queues.items():
            if name in self.queues:
                self.queues[name].answered(host_id, epoch, sent)
        for name, epoch in hears.refuses.items():
            if name in self.queues:
                self.queues[name].not_heard(host_id, epoch, now)

    def tick(self, now: float) -> list[tuple[str, Wish]]:
        """The things to do now, with the names of the queues."""
        wishes = [(name, each.tick(now)) for name, each in self.queues.items()]
        return [(name, wish) for name, wish in wishes if wish is not None]

    @property
    def deadline(self) -> float:
        """The time of the next `tick` that may have something to do."""
        return min((each.deadline for each in self.queues.values()), default=math.inf)

    @property
    def says_every(self) -> float:
        """The seconds between two documents to a member."""
        leases: Iterable[float] = (q.electors.lease_seconds for q in self.queues.values())
        return min(leases, default=math.inf) / SAYS_PER_LEASE
