"""One queue whose leader is elected, at one of its members: events and the time in, wishes out.

Theory of operation. Safety is in the promises of the copies alone: an epoch is led by the host that
a majority has promised it to. This code only says when this host asks for promises, when it refuses
to give one, and when it leads no longer. It does no I/O, and knows no clock and no chance but those
that it is given.

A member that hears no leader for a lease, and sees a majority, asks how far the copies are and
whether their hosts hear a leader. Where a majority hears none, it waits for a random time, less for
the longest copy, and then fences. After a refusal it waits in twice the time. A host that has just
started counts as one that hears a leader: what it heard before its start it does not know.

A member whose fence was refused has promised its own copy an epoch that no host leads in. It takes
nothing from the leader any more. The leader learns so by its answers, and leads in a later epoch.
"""

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cqrepl.cluster.election.electionstates import ELECTION_MOVES, ElectionMove, ElectionState
from cqrepl.cluster.election.lease import Lease

WAIT_LEASES_MAX: Final = 8  # the longest random time, in leases
TURNS_PER_LEASE: Final = 4
REST_LEASES: Final = 3
RENEW_LEASES: Final = 4  # at least between two epochs that a leader makes for members left behind
# above what the copy has promised: no host is away for so many promotions, at ten a second for ten
# days; a `leads` of a later epoch is of a peer that is broken
EPOCHS_AHEAD_MAX: Final = 1 << 23
NO_HOST: Final = 0
_S, _M = ElectionState, ElectionMove


class Wish(Enum):
    """The thing that a host is to do for one queue."""

    ASK_WHERE = "ask where the copies are"
    FENCE = "fence, and lead"
    RENEW = "fence, and lead in a later epoch"
    STEP_DOWN = "step down"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySight:
    """One member's copy, as the member says.

    Args:
        epoch: the last one that it holds something of.
        next_index: the first index that it does not have.
        hears: that member hears a leader.
    """

    epoch: int
    next_index: int
    hears: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """The end of the copy; the greater, the farther it is."""
        return self.epoch, self.next_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Electors:
    """The members of a queue, and how they elect.

    Args:
        own: id of this host.
        members: ids of all, this one included.
        lease_seconds: for so long a leader that was heard counts as there.
        preferred: the member that leads where several could; 0: none.
        elects: false where another service says which member asks for promises: that one does not
            wait, and a leader goes on without a majority.
    """

    own: int
    members: frozenset[int]
    lease_seconds: float
    preferred: int = NO_HOST
    elects: bool = True

    @property
    def majority(self) -> int:
        """So many members are more than half of them."""
        return len(self.members) // 2 + 1

    @property
    def others(self) -> frozenset[int]:
        """The members but this host."""
        return self.members - {self.own}


class QueueElection:
    """One queue at one member.

    Args:
        chance: a number between two others, by chance.
        now: when this host has started.

    Attributes:
        state: of the table.
        leader: the host that was heard last, or has the latest promise; 0: none.
        epoch: its epoch.
        lease: of this host while it leads; None while it does not.
        is_chosen: another service has chosen this member to ask.
        unfit: the reason why this host does not ask for promises; empty where it may.
        last_refusal: the reason why the last fence, or wait for one, came to nothing.
    """

    def __init__(
        self, electors: Electors, now: float, chance: Callable[[float, float], float]
    ) -> None:
        self.electors = electors
        self.state = _S.FOLLOWING
        self.leader = NO_HOST
        self.epoch = 0
        self._promised = 0  # the latest epoch that this host's copy has promised, as it was told
        self.lease: Lease | None = None
        self.last_refusal = ""
        self.is_chosen = False
        self.unfit = ""
        self._chance = chance
        self._heard_until = now + electors.lease_seconds
        if len(electors.members) == 1:  # it has no leader to wait for
            self._heard_until = now
        self._serves_from = math.inf
        self._due = -math.inf  # of the next try, or the fence
        self._refusals = 0
        self._not_heard: dict[int, float] = {}  # members that have promised more, since when
        self._renewed = -math.inf
        self._seen: Set[int] = frozenset({electors.own})

    @property
    def deadline(self) -> float:
        """The time of the next `tick` that may have something to do."""
        match self.state:
            case _S.FOLLOWING:
                return self._heard_until
            case _S.MISSING | _S.WAITING:
                return self._due if self._may_ask else math.inf
            case _S.LEADING:
                assert self.lease is not None
                return self.lease.ends
        return math.inf

    def hears_leader(self, now: float) -> bool:
        """True while no other host need be elected, as far as this one knows: it heard a leader
        less than a lease ago, leads under a lease that holds, or asks for promises itself."""
        return self.state is _S.FENCING or self._hears(now)

    def _hears(self, now: float) -> bool:
        until = self._heard_until if self.lease is None else self.lease.ends
        return now < until

    def refuses(self, candidate: int, now: float) -> bool:
        """True while this host gives that one no promise by election, or asks for none itself."""
        return self._hears(now) and candidate != self.leader

    def may_read(self, now: float) -> bool:
        """True while this host leads, and no other one can have been elected."""
        return self.lease is not None and now >= self._serves_from and self.lease.holds(now)

    def leads_until(self, now: float) -> float:
        """The time until which no other host can have been elected, one lease from now at most; 0.0
        where this host does not lead, or one may have been."""
        if self.lease is None or not self.may_read(now):
            return 0.0
        return min(self.lease.until, now + self.electors.lease_seconds)

    def see(self, hosts: Set[int]) -> None:
        """These other members are connected."""
        self._seen = (hosts & self.electors.members) | {self.electors.own}

    def change(self, electors: Electors, now: float) -> None:
        """It has other members from now on. A lease begins anew: its answers were other hosts'."""
        self.electors = electors
        if self.lease is not None:
            self.lease = Lease(electors.others, electors.lease_seconds, now)

    def switch(self, now: float, *, is_on: bool) -> None:
        """Each member that is known can elect, or one cannot."""
        if not is_on and self.state is not _S.OFF:
            self._move(_M.SWITCH_OFF)
        elif is_on and self.state is _S.OFF:
            self._move(_M.SWITCH_ON)
            self._heard_until = max(self._heard_until, now + self.electors.lease_seconds)
            if self.lease is not None:
                self._move(_M.LEAD)

    def hear(self, leader: int, epoch: int, promised: int, promised_to: int, now: float) -> bool:
        """Another host says that it leads in an epoch; true where this host hears it: its copy has
        promised no other host that epoch, nor a later one, and it is no epoch that cannot be.

        Args:
            promised, promised_to: what the copy of this host has.
        """
        self._promised = max(self._promised, promised)
        is_latest = epoch > promised or (epoch == promised and promised_to == leader)
        can_be = epoch <= promised + EPOCHS_AHEAD_MAX and leader in self.electors.others
        if not (is_latest and can_be):
            return False
        self._follow(leader, epoch, now)
        return True

    def promised(self, leader: int, epoch: int, now: float) -> None:
        """The copy of this host has promised an epoch to another host, which has a lease to begin
        it."""
        self._promised = max(self._promised, epoch)
        if epoch > self.epoch and leader != self.electors.own:
            self._follow(leader, epoch, now)

    def _follow(self, leader: int, epoch: int, now: float) -> None:
        if epoch >= self.epoch:
            self.leader, self.epoch = leader, epoch
        self.lease = None
        self._refusals = 0
        self._heard_until = now + self.electors.lease_seconds
        if self.state is not _S.OFF:
            self._move(_M.HEAR)

    def positions(self, sights: Mapping[int, CopySight], now: float) -> None:
        """The members that answer say how far they are; this host is among them."""
        if self.state is not _S.ASKING:  # it has heard a leader meanwhile
            return
        deaf = {host for host, each in sights.items() if not each.hears}
        wanted = self.electors.majority if self.electors.elects else len(sights)
        if len(deaf & self.electors.members) < wanted:
            hearing = sorted(sights.keys() - deaf)
            hears = "hear" if len(hearing) > 1 else "hears"
            told = f", {_hosts(hearing)} {hears} a leader" if hearing else ""
            self._put_off(f"{len(deaf)} of {len(self.electors.members)} hear none{told}", now)
            return
        self._move(_M.ANSWER)
        self._due = now + self._wait(sights)

    def _wait(self, sights: Mapping[int, CopySight]) -> float:
        """The random time before a fence. The longest copies wait in turn, the preferred one first,
        so that each mostly has its time for itself; shorter ones come behind them."""
        own, lease = self.electors.own, self.electors.lease_seconds
        if len(self.electors.members) == 1 or not self.electors.elects:
            return 0.0
        longest = max(each.place for each in sights.values())
        firsts = [host for host, each in sights.items() if each.place == longest]
        turns = sorted(firsts, key=lambda host: (host != self.electors.preferred, host))
        turn = turns.index(own) if own in turns else len(turns)
        slot = lease / TURNS_PER_LEASE
        return min(turn * slot, lease - slot) + self._chance(0.0, slot / 2)

    def put_off(self, why: str, now: float) -> None:
        """The last wish cannot be done now: it comes again."""
        if self.state is _S.FENCING:
            self.refused(why, now)
        elif self.state is _S.ASKING:
            self._put_off(why, now)

    def refused(self, why: str, now: float) -> None:
        """Too few copies have promised, or this host cannot lead."""
        self.last_refusal = why
        if self.state is not _S.FENCING:  # it has heard a leader meanwhile, or leads
            return
        self._refusals = min(self._refusals + 1, WAIT_LEASES_MAX.bit_length())
        self._move(_M.REFUSE)
        most = self.electors.lease_seconds * min(1 << self._refusals, WAIT_LEASES_MAX) / 2
        self._due = now + self._chance(0.0, most)

    def leads(self, epoch: int, now: float, *, is_elected: bool) -> None:
        """This host leads in an epoch from now on.

        Args:
            is_elected: no other lease can hold: a majority heard no leader, or the old leader has
                promised. Else, as by an operator's word, consistent reads wait for a lease.
        """
        if epoch < self.epoch or (self.lease is not None and epoch == self.epoch):
            return
        self.leader, self.epoch, self._refusals = self.electors.own, epoch, 0
        self._promised = max(self._promised, epoch)
        lease = self.electors.lease_seconds
        self.lease = Lease(self.electors.others, lease, now)
        self._serves_from = now if is_elected else now + lease
        self.last_refusal = ""
        self._not_heard.clear()
        if self.state is _S.LEADING:
            self._move(_M.STEP_DOWN)
        if self.state is not _S.OFF:
            self._move(_M.LEAD)

    def leads_no_longer(self, now: float, *, rests: bool = False) -> None:
        """This host has given up the lead.

        Args:
            rests: for others to lead, as an operator wishes.
        """
        self.lease = None
        if self.leader == self.electors.own:
            self.leader = NO_HOST
        lease = self.electors.lease_seconds
        if self.state is _S.LEADING:
            self._move(_M.STEP_DOWN)
            self._due = now + self._chance(lease / 4, lease)
        if self.state is _S.MISSING and rests:
            self._due = now + REST_LEASES * lease + self._chance(0, lease)

    def answered(self, host_id: int, epoch: int, sent: float) -> None:
        """Another member hears that this host leads in an epoch, as was sent at that time."""
        if self.lease is not None and epoch == self.epoch:
            self.lease.answered(host_id, sent)
            self._not_heard.pop(host_id, None)

    def not_heard(self, host_id: int, promised: int, now: float) -> None:
        """Another member, which this host has told that it leads, has promised another epoch."""
        if self.lease is not None and promised > self.epoch:
            self._not_heard.setdefault(host_id, now)

    def tick(self, now: float) -> Wish | None:
        """The thing to do now."""
        if self.state is _S.LEADING:
            return self._tick_leading(now) if self.electors.elects else None
        if self.state is _S.FOLLOWING and now >= self._heard_until:
            self._move(_M.MISS)
            self.epoch = min(self.epoch, self._promised)  # what was only heard counts no more
            self._due = now
        if self.state is _S.MISSING and now >= self._due and self._may_ask:
            self._move(_M.ASK)
            return Wish.ASK_WHERE
        if self.state is _S.WAITING and now >= self._due:
            if self._may_ask:
                self._move(_M.FENCE)
                return Wish.FENCE
            self._put_off(
                self.unfit or f"only {_hosts(sorted(self._seen))} of the members are there", now
            )
        return None

    def _tick_leading(self, now: float) -> Wish | None:
        assert self.lease is not None
        if now >= self.lease.ends:
            return Wish.STEP_DOWN
        lease = self.electors.lease_seconds
        since = min(self._not_heard.values(), default=math.inf)
        if now >= max(since + lease, self._renewed + RENEW_LEASES * lease):
            self._renewed = now
            return Wish.RENEW
        return None

    @property
    def _may_ask(self) -> bool:
        if self.unfit:
            return False
        if not self.electors.elects:
            return self.is_chosen
        return len(self._seen) >= self.electors.majority

    def _put_off(self, why: str, now: float) -> None:
        self.last_refusal = why
        self._move(_M.PUT_OFF)
        self._due = now + self._chance(0.0, self.electors.lease_seconds / 2)

    def _move(self, move: ElectionMove) -> None:
        after = ELECTION_MOVES.get((self.state, move))
        assert after is not None, f"{move.name} is not allowed while {self.state.name}"
        self.state = after
        assert self.lease is not None or after is not _S.LEADING


def _hosts(ids: list[int]) -> str:
    return f"host{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
