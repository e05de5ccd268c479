"""A simulated set of hosts that elect, over a network that loses and delays, in one thread.

Each host has a clock of its own, which drifts, and freezes now and then. It is a `HostElections`
and what it has promised, which it keeps; promises are asked for as `cqrepl.cluster.promoter` does.
What must never be is noted in `faults` as it happens.
"""

import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import count

from cqrepl.cluster.election.hostelections import HostElections, Promised
from cqrepl.cluster.election.queueelection import CopySight, Electors, Wish
from cqrepl.protocol.messages.leads import Leads

QUEUE = "orders"
LEASE = 2.0
CLOCKS = 0.007  # how far from 1 the rate of a clock may be: two differ by less than `DRIFT`
ANSWER_SECONDS = 1.0  # for a host to answer what the one that is to lead asks


class Member:
    """One host."""

    def __init__(self, electorate: "Electorate", host_id: int) -> None:
        self.host_id = host_id
        self._all = electorate
        self._rng = electorate.rng
        self._rate = 1 + self._rng.uniform(-CLOCKS, CLOCKS)
        self._offset = self._rng.uniform(0, 1e6)
        self.promised = Promised()  # survives a restart
        self.held = 0  # the last epoch that its copy holds something of
        self.is_fencing = False
        self.frozen_until = 0.0
        self.start()

    def start(self) -> None:
        """It begins, and knows what it has promised and nothing else."""
        electors = Electors(own=self.host_id, members=self._all.ids, lease_seconds=LEASE)
        self.elections = HostElections({QUEUE: electors}, self.now, self._rng.uniform)
        self.queue = self.elections.queues[QUEUE]
        for other in self._all.ids - {self.host_id}:
            if self._all.is_joined(self.host_id, other):
                self.elections.connected(other, self.now, elects=True)

    @property
    def now(self) -> float:
        """The time by its own clock."""
        return self._all.time * self._rate + self._offset

    @property
    def is_frozen(self) -> bool:
        return self._all.time < self.frozen_until

    def promises(self, to: int, epoch: int, *, by_operator: bool) -> bool:
        """It is asked for a promise; whether it gives one."""
        is_claim = self.promised.leader == self.host_id and self.queue.lease is None
        gives_up = is_claim and epoch == self.promised.epoch and not self.is_fencing
        if (epoch, to) == tuple(self.promised):
            return True
        if epoch <= self.promised.epoch and not gives_up:
            return False
        if not by_operator and self.queue.refuses(to, self.now):
            return False
        if self.queue.lease is not None:
            self.queue.leads_no_longer(self.now)
        self.promised = Promised(epoch, to)
        if to != self.host_id:
            self.queue.promised(to, epoch, self.now)
        return True

    def meets(self, other: int) -> None:
        """Another host is connected."""
        self.elections.connected(other, self.now, elects=True)

    def loses(self, other: int) -> None:
        """It is connected no more."""
        self.elections.lost(other, self.now)

    def work(self) -> None:
        """Does what is due, and says what it leads."""
        for _, wish in self.elections.tick(self.now):
            if wish is Wish.ASK_WHERE:
                self._ask_where()
            elif wish in (Wish.FENCE, Wish.RENEW):
                self._all.fence(self)
            else:
                self.promised = Promised(self.promised.epoch + 1, self.host_id)
                self.queue.leads_no_longer(self.now)
        for other in self._all.ids - {self.host_id}:
            for leads in self.elections.leads_for(other, {}, self.now):
                self._all.send(self, other, partial(self._heard_by, leads))

    def _heard_by(self, leads: Leads, there: "Member") -> None:
        led = leads.queues[QUEUE]
        there.promises(self.host_id, led.epoch, by_operator=True)  # it is announced so
        hears = there.elections.told_leads(
            self.host_id,
            leads,
            lambda name: there.promised,
            there.now,
        )
        self._all.send(
            there,
            self.host_id,
            lambda here: here.elections.told_hears(there.host_id, hears, here.now),
        )

    def sight(self) -> CopySight:
        """Its copy, as it tells others."""
        return CopySight(
            epoch=self.held, next_index=self.held, hears=self.queue.hears_leader(self.now)
        )

    def _ask_where(self) -> None:
        sights = {self.host_id: self.sight()}

        def ask(there: "Member") -> None:
            seen = there.sight()
            self._all.send(there, self.host_id, lambda _: sights.update({there.host_id: seen}))

        for other in self._all.ids - {self.host_id}:
            self._all.send(self, other, ask)
        self._all.later(ANSWER_SECONDS / 2, self, lambda: self.queue.positions(sights, self.now))


class Electorate:
    """The hosts, and what lies between them.

    Args:
        seed: of all chance.
        count_hosts: so many.
    """

    def __init__(self, seed: int, count_hosts: int) -> None:
        self.rng = random.Random(seed)
        self.ids = frozenset(range(1, count_hosts + 1))
        self.time = 0.0
        self.faults: list[str] = []
        self.reads = 0  # that were answered
        self.began: dict[int, tuple[int, float]] = {}  # by epoch: who leads in it, from when on
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._cut: set[tuple[int, int]] = set()  # ways that nothing goes
        self.is_quiet = False
        self.members = {each: Member(self, each) for each in sorted(self.ids)}
        for each in self.ids:
            self._at(self.rng.uniform(0, LEASE), partial(self._works, each))

    def is_joined(self, one: int, other: int) -> bool:
        return (one, other) not in self._cut and (other, one) not in self._cut

    def _at(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.time + seconds, next(self._order), call))

    def later(self, seconds: float, member: Member, call: Callable[[], None]) -> None:
        """A host does this once so much time is over, and it is not frozen."""

        def attempt() -> None:
            if member.is_frozen:
                self._at(member.frozen_until - self.time, attempt)
            else:
                call()
                self._look(member)

        self._at(seconds, attempt)

    def send(self, sender: Member, to: int, call: Callable[[Member], None]) -> None:
        """Something goes to another host, which may get it late, or not at all."""
        if (sender.host_id, to) in self._cut:
            return
        if not self.is_quiet and self.rng.random() < 0.05:
            return
        slow = not self.is_quiet and self.rng.random() < 0.1
        delay = self.rng.uniform(0.0, 3.0 if slow else 0.05)
        there = self.members[to]
        self.later(delay, there, lambda: call(there))

    def _works(self, host_id: int) -> None:
        member = self.members[host_id]
        if not member.is_frozen:
            self._look(member)  # a read may come before anything else is done
            member.work()
            self._look(member)
        self._at(LEASE / 8, lambda: self._works(host_id))

    def _look(self, member: Member) -> None:
        """Reads at a host wherever it would answer: no later epoch serves anywhere."""
        queue = member.queue
        if not queue.may_read(member.now):
            return
        self.reads += 1
        later = [
            e for e, (_, since) in self.began.items() if e > queue.epoch and since <= self.time
        ]
        if later:
            self.faults.append(
                f"at {self.time:.3f} host {member.host_id} reads in epoch {queue.epoch}, and epoch"
                f" {max(later)} is led by host {self.began[max(later)][0]}"
            )

    def fence(self, member: Member, *, by_operator: bool = False) -> None:
        """A host asks all for their promise, and leads where a majority gives it."""
        epoch = max(each.promised.epoch for each in self._seen_by(member)) + 1
        if not member.promises(member.host_id, epoch, by_operator=True):
            member.queue.refused("its own copy", member.now)
            return
        given = {member.host_id}
        member.is_fencing = True

        def ask(there: Member) -> None:
            if there.promises(member.host_id, epoch, by_operator=by_operator):
                self.send(there, member.host_id, lambda _: given.add(there.host_id))

        for other in self.ids - {member.host_id}:
            self.send(member, other, ask)

        def end() -> None:
            member.is_fencing = False
            is_latest = tuple(member.promised) == (epoch, member.host_id)
            if len(given) < member.queue.electors.majority or not is_latest:
                member.queue.refused("too few promise", member.now)
                return
            if epoch in self.began:
                self.faults.append(f"epoch {epoch} has two leaders")
            member.held = epoch
            self.began[epoch] = member.host_id, self.time + (LEASE * 1.01 if by_operator else 0.0)
            member.queue.leads(epoch, member.now, is_elected=not by_operator)

        self.later(self.rng.uniform(0.01, ANSWER_SECONDS), member, end)

    def _seen_by(self, member: Member) -> list[Member]:
        joined = [m for i, m in self.members.items() if self.is_joined(i, member.host_id)]
        return [member, *joined]

    def trouble(self) -> None:
        """Something goes wrong."""
        rng, ids = self.rng, sorted(self.ids)
        member = self.members[rng.choice(ids)]
        match rng.randrange(5):
            case 0:
                member.frozen_until = self.time + rng.uniform(0.1, 3 * LEASE)
            case 1:  # it loses all that it had in memory
                member.start()
            case 2:
                self.fence(member, by_operator=True)
            case 3:
                one, other = rng.sample(ids, 2)
                ways = [(one, other), (other, one)][: rng.randint(1, 2)]
                self._break(ways, rng.uniform(0.5, 4 * LEASE))
            case _:
                others = [each for each in ids if each != member.host_id]
                ways = [(member.host_id, each) for each in others]
                if rng.random() < 0.5:
                    ways += [(each, member.host_id) for each in others]
                self._break(ways, rng.uniform(0.5, 4 * LEASE))

    def _break(self, ways: list[tuple[int, int]], seconds: float) -> None:
        self._cut.update(ways)
        for one, other in ways:
            for host, peer in ((one, other), (other, one)):
                member = self.members[host]
                self.later(self.rng.uniform(0, LEASE), member, partial(member.loses, peer))
        self._at(seconds, lambda: self._mend(ways))

    def _mend(self, ways: list[tuple[int, int]]) -> None:
        self._cut.difference_update(ways)
        for one, other in ways:
            for host, peer in ((one, other), (other, one)):
                member = self.members[host]
                self.later(self.rng.uniform(0, 1.0), member, partial(member.meets, peer))

    def run(self, seconds: float, *, troubles: int = 0) -> None:
        """Goes on for so long."""
        end = self.time + seconds
        for _ in range(troubles):
            self._at(self.rng.uniform(0, seconds), self.trouble)
        while self._events and self._events[0][0] <= end:
            self.time, _, call = heapq.heappop(self._events)
            call()
        self.time = end

    def quiet(self) -> None:
        """Nothing goes wrong from now on, and what was frozen or cut goes on."""
        self.is_quiet = True
        for member in self.members.values():
            member.frozen_until = min(member.frozen_until, self.time)
        for one in sorted(self.ids):
            for other in sorted(self.ids - {one}):
                self._mend([(one, other)])

    @property
    def leaders(self) -> list[int]:
        """The hosts that lead, as each says itself."""
        return [i for i, each in self.members.items() if each.queue.lease is not None]
