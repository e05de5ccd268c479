"""The replicas that a commit waits for: those in peer mode. It is told the time.

A replica comes into peer mode once it has all that there was when it was looked at last (E-42), and
leaves it when it has lacked something for a lease and nothing has come to it: its link is silent.
Of those in peer mode the first `sync` in the order of the group are waited for, each of them
(E-43); an asynchronous one moves up where one before it is missing. With fewer than `least` of them
a commit waits until any so many copies have its record: a promotion meets one of those.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

NOTHING: Final = -1


class WaitedCopies(NamedTuple):
    """The copies that have to have a record.

    Args:
        number: so many of them.
        hosts: their ids.
    """

    number: int
    hosts: frozenset[int]


class PeerSet:
    """The copies of one group beside the leader's.

    Args:
        order: ids of their hosts, in the order in which they are synchronous.
        lease_seconds: see above.

    Attributes:
        peers: the hosts in peer mode, in that order.
    """

    def __init__(
        self, order: Sequence[int], sync: int, least: int, lease_seconds: float, now: float
    ) -> None:
        self.peers: list[int] = []
        self._order = list(order)
        self._sync = min(sync, len(order))
        self._least = min(least, len(order))
        self._lease_seconds = lease_seconds
        self._marks = dict.fromkeys(order, NOTHING)
        self._heard = dict.fromkeys(order, now)
        self._end = NOTHING  # of the log, when it was looked at last
        self._has_looked = False

    def look(self, now: float, marks: Mapping[int, int], end: int) -> None:
        """Decides which hosts are in peer mode from now on.

        Args:
            marks: the index up to which each host has the log.
            end: the last index of the log.
        """
        for host in self._order:
            mark = marks.get(host, NOTHING)
            if mark != self._marks[host] or mark >= end:
                self._heard[host] = now
            self._marks[host] = mark
            is_silent = now - self._heard[host] > self._lease_seconds
            if host in self.peers and is_silent:
                self.peers.remove(host)
            elif host not in self.peers and self._has_looked and mark >= max(self._end, 0):
                self.peers.append(host)
        self.peers.sort(key=self._order.index)
        self._end, self._has_looked = end, True

    def waited(self) -> WaitedCopies:
        """The copies that a commit waits for now."""
        if not self._sync:
            return WaitedCopies(0, frozenset())
        peers = self.peers[: self._sync]
        if len(peers) >= self._least:
            return WaitedCopies(len(peers), frozenset(peers))
        return WaitedCopies(self._least, frozenset(self._order))

    def lacks(self, wanted: int) -> int:
        """The number of hosts that have told nothing yet, of so many with the leader's; all of them
        are wanted, where there are fewer."""
        there = sum(each != NOTHING for each in self._marks.values())
        return max(0, min(wanted - 1, len(self._order)) - there)

    @property
    def missing(self) -> list[int]:
        """The hosts without which there are too few; empty while there are enough."""
        if len(self.peers) >= self._least:
            return []
        return [each for each in self._order if each not in self.peers]
