"""The plan of a run: drawn from its seed beforehand, so that parts of it can be left out.

A fault has a time, a kind, the hosts that it is about and how long it lasts. Leaving one out
changes no other, which is how a failing run is made short.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

from cqrepl.testing.faultkinds import (
    AT_A_CALL,
    AT_FILES,
    AT_LINKS,
    AT_ONCE,
    AT_SINKS,
    AT_THE_SOURCE,
    BY_OPERATORS,
    BY_RELOADS,
    FAULT_EVERY_SECONDS_AT_SERVICES,
    FAULT_EVERY_SECONDS_OWN,
    INSIDE,
    SERVICE_FIRST,
    SHARE_RELOADING,
    SHARE_STEPPING_DOWN,
    STEP_DOWN_EVERY_SECONDS,
    WEIGHTS,
    WEIGHTS_AT_SERVICES,
    WEIGHTS_BOTH_WAYS,
    WEIGHTS_CHANGING,
    WEIGHTS_ELECTED,
    WEIGHTS_RELOADING,
)
from cqrepl.testing.faultkinds import Kind as Kind  # part of a plan: it is imported from here

SOURCE: Final = 1  # the id of the host whose application writes, where only one does
ROLL_CYCLES: Final = ("FAST_DAILY", "FAST_DAILY", "MINUTELY", "TEST4_DAILY", "TEST_SECONDLY")
RATES: Final = (2.0, 20.0, 20.0, 60.0)  # appends a second
FAULT_EVERY_SECONDS: Final = (4.0, 8.0, 16.0)
# clusters in which each host has a queue of its own and takes in those of all others
SHARE_BOTH_WAYS: Final = 1 / 3
HOSTS_BOTH_WAYS: Final = (3, 3, 3, 4, 5)
RATES_BOTH_WAYS: Final = (0.5, 2.0, 2.0, 10.0)  # appends a second, of each application
SHARE_PASSED_ON: Final = 1 / 3  # of these clusters have hosts that pass copies on
# clusters of one queue, whose leader changes
HOSTS_CHANGING: Final = (3, 3, 3, 4, 5, 6, 7)
AWAY_SECONDS: Final = (25.0, 60.0)  # of hosts that stay away longer than a promotion waits for them
SHARE_WITH_RARE_CHOICES: Final = 1 / 3
SHARE_OF_SEVERAL_GROUPS: Final = 1 / 4
GROUPS: Final = (2, 2, 3)
SHARE_OF_MAJORITIES: Final = 2 / 3
SHARE_AWAY: Final = 1 / 4  # of the faults that take a process away
AWAY: Final = frozenset({"kill", "kill-at-call", "freeze", "stop", "fail-over", "power-cut"})
RATES_CHANGING: Final = (1.0, 4.0, 4.0, 10.0)
FAULT_EVERY_SECONDS_CHANGING: Final = (1.5, 3.0, 6.0)
# clusters whose leaders are elected
HOSTS_ELECTED: Final = (3, 3, 3, 4, 5, 5)
LEASES_SECONDS: Final = (1.0, 1.0, 2.0, 3.0)
GROUPS_ELECTED: Final = (1, 1, 2)
DRIFT_MAX: Final = 1 / 130  # of a clock: two differ by less than a lease allows for
FAULT_EVERY_SECONDS_ELECTED: Final = (2.0, 4.0, 8.0)
SHARE_WITH_BURSTS: Final = 1 / 3
RATE_WITH_BURSTS: Final = 30.0  # appends a second, of each application: a burst every ten seconds
SHARE_WITH_FRAMES: Final = 1 / 4  # of the hosts, where it is drawn which have `--frames`


BYTES: Final = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 2000, 9000)
CALLS: Final = (1, 2, 3, 5, 8, 20, 100)
LASTING_SECONDS: Final = (0.05, 0.3, 1.0, 3.0, 8.0)
CLOCK_STEPS_SECONDS: Final = (-7200.0, -70.0, -1.5, 1.5, 70.0, 7200.0, 90_000.0)


class Route(NamedTuple):
    """A host takes a queue from another one than its master.

    Args:
        queue: the id of its master.
        host: the id of the one that takes it.
        via: the id of the one that passes it on.
    """

    queue: int
    host: int
    via: int


@dataclass(frozen=True, slots=True)
class Fault:
    """`step_s` is for clocks alone, `nth` for what happens at the n-th call or byte; `queue` is the
    id of the master of the queue that it is about, 0 where there is one queue."""

    at: float
    kind: Kind
    host: int
    peer: int
    lasting: float
    step_s: float = 0.0
    nth: int = 1
    queue: int = 0
    own: str = field(default="", repr=False)  # the name of a fault of a user

    def __str__(self) -> str:
        at_link = self.kind in AT_LINKS
        where = f"hosts {self.host} and {self.peer}" if at_link else f"host {self.host}"
        if self.queue and self.kind in AT_SINKS | AT_FILES:
            where += f", queue of host {self.queue}"
        if self.queue and self.kind in BY_OPERATORS:
            where += f", queue {self.queue}"
        step = f" by {self.step_s:g} s" if self.kind is Kind.CLOCK_STEP else ""
        call = f" {self.nth} from here" if self.kind in AT_A_CALL else ""
        if self.kind is Kind.CUT_INSIDE:
            call = f" {self.nth} bytes on"
        lasting = "" if self.kind in AT_ONCE else f" for {self.lasting:g} s"
        return f"{self.own or self.kind.value}{call}{step} at {where}{lasting}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run; equal plans give equal runs.

    Args:
        both_ways: each host has a queue of its own and takes in those of all others; else host 1
            has the only one.
        changing: there is one queue, which operators have other hosts lead.
        bursts: applications append hundreds of excerpts now and then.
        with_frames: the ids of the hosts that have `--frames`; between all others go runs.
        routes: of hosts that are both, those which take a queue from another one than its master.
        groups: how many queues there are whose leaders change, each by itself.
        rare: hosts make choices that are legal and rare.
        services: how many a user has brought, on machines of their own.
        acks: where roles change, how many other hosts the policy of the queue waits for.
        cut_inside: as the faults were drawn, where roles change.
        lease: seconds, where roles change by elections; else 0.
        drifts: of the clocks of the hosts by which leases are counted, in the order of their ids.
    """

    seed: int
    seconds: float
    hosts: int
    roll_cycle: str
    rate: float
    faults: tuple[Fault, ...]
    both_ways: bool = False
    changing: bool = False
    bursts: bool = False
    with_frames: tuple[int, ...] = ()
    routes: tuple[Route, ...] = ()
    acks: int = 1
    cut_inside: bool = field(default=False, repr=False)  # by its faults two keys differ anyway
    services: int = field(default=0, repr=False)
    groups: int = field(default=1, repr=False)
    rare: bool = field(default=False, repr=False)
    lease: float = field(default=0.0, repr=False)
    drifts: tuple[float, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        seed: int,
        seconds: float,
        hosts: int | None = None,
        without: Iterable[Kind] = (),
        *,
        both_ways: bool | None = None,
        passed_on: bool | None = None,
        changing: bool = False,
        cut_inside: bool = False,
        runs: bool | None = None,
        groups: int | None = None,
        rare: bool | None = None,
    ) -> Self:
        """The plan that this seed stands for.

        Args:
            hosts: how many; drawn if None.
            without: kinds of faults that are left out.
            both_ways: as the plan has it; drawn if None. What a seed stands for otherwise does not
                depend on whether this was drawn.
            passed_on: whether hosts that are both pass copies on; drawn if None. Nothing else
                depends on it.
            groups: as the plan has it, where roles change; drawn if None. Nothing else depends on
                it.
            changing: as the plan has it; it is never drawn.
            rare: as the plan has it; drawn if None. Nothing else depends on it.
            cut_inside: with cuts inside documents and with floods, where roles change. A seed then
                stands for something else.
            runs: whether all hosts take runs, or none does; drawn for each host if None. Nothing
                else depends on it.
        """
        if changing:
            drawn = cls._changing(seed, seconds, hosts, without, runs, cut_inside=cut_inside)
            kinds = frozenset(without)
            drawn = drawn if Kind.STEP_DOWN in kinds else drawn._with_steps_down()
            return replace(drawn._with_groups(groups), rare=_rare(seed, rare))
        if both_ways is None:
            both_ways = random.Random(f"roles {seed}").random() < SHARE_BOTH_WAYS
        rng = random.Random(f"both ways {seed}" if both_ways else f"plan {seed}")
        count_drawn = rng.choice(HOSTS_BOTH_WAYS if both_ways else (2, 2, 3))
        roll_cycle = rng.choice(ROLL_CYCLES)
        rate = rng.choice(RATES_BOTH_WAYS if both_ways else RATES)
        bursts = random.Random(f"bursts {seed}").random() < SHARE_WITH_BURSTS
        count = count_drawn if hosts is None else hosts
        pause = rng.choice(FAULT_EVERY_SECONDS)
        draw = _fault_both_ways if both_ways else _fault
        faults = _faults(rng, pause, 0.0, seconds, lambda at: draw(rng, at, count))
        return cls(
            seed=seed,
            seconds=seconds,
            hosts=count,
            roll_cycle=roll_cycle,
            rate=RATE_WITH_BURSTS if bursts else rate,
            faults=_without(faults, without),
            both_ways=both_ways,
            bursts=bursts,
            with_frames=tuple(_with_frames(seed, count, runs)),
            routes=tuple(_routes(seed, count, passed_on)) if both_ways else (),
            rare=_rare(seed, rare),
        )

    @classmethod
    def _changing(
        cls,
        seed: int,
        seconds: float,
        hosts: int | None,
        without: Iterable[Kind],
        runs: bool | None,
        *,
        cut_inside: bool,
    ) -> Self:
        rng = random.Random(f"changing, cut inside {seed}" if cut_inside else f"changing {seed}")
        drawn, roll_cycle = rng.choice(HOSTS_CHANGING), rng.choice(ROLL_CYCLES)
        rate, pause = rng.choice(RATES_CHANGING), rng.choice(FAULT_EVERY_SECONDS_CHANGING)
        count = drawn if hosts is None else hosts
        reloads = random.Random(f"reloads {seed}").random() < SHARE_RELOADING
        weights = WEIGHTS_RELOADING if reloads else WEIGHTS_CHANGING
        weights = weights | INSIDE if cut_inside else weights
        start = 2.0  # copies are made by then
        faults = _faults(
            rng, pause, start, seconds, lambda at: _fault_changing(rng, weights, at, count)
        )
        return cls(
            seed=seed,
            seconds=seconds,
            hosts=count,
            roll_cycle=roll_cycle,
            rate=rate,
            faults=_without(_away(seed, faults), without),
            changing=True,
            acks=_acks(seed, count),
            cut_inside=cut_inside,
            with_frames=tuple(_with_frames(seed, count, runs)),
        )

    @classmethod
    def elected(
        cls,
        seed: int,
        seconds: float,
        hosts: int | None = None,
        without: Iterable[Kind] = (),
        *,
        runs: bool | None = None,
        groups: int | None = None,
        rare: bool | None = None,
    ) -> Self:
        """The plan of hosts that elect the leaders of their queues. The arguments are those of
        `of`."""
        rng = random.Random(f"elected {seed}")
        drawn, roll_cycle = rng.choice(HOSTS_ELECTED), rng.choice(ROLL_CYCLES)
        rate, pause = rng.choice(RATES_CHANGING), rng.choice(FAULT_EVERY_SECONDS_ELECTED)
        lease, queues = rng.choice(LEASES_SECONDS), rng.choice(GROUPS_ELECTED)
        count = drawn if hosts is None else hosts
        drifts = random.Random(f"drifts {seed}")
        start = 2 * lease  # a leader is there by then
        faults = _faults(
            rng, pause, start, seconds, lambda at: _fault_changing(rng, WEIGHTS_ELECTED, at, count)
        )
        plan = cls(
            seed=seed,
            seconds=seconds,
            hosts=count,
            roll_cycle=roll_cycle,
            rate=rate,
            faults=_without(_away(seed, faults), without),
            changing=True,
            acks=count // 2,
            with_frames=tuple(_with_frames(seed, count, runs)),
            rare=_rare(seed, rare),
            lease=lease,
            drifts=tuple(round(drifts.uniform(-DRIFT_MAX, DRIFT_MAX), 6) for _ in range(count)),
        )
        return plan._with_groups(queues if groups is None else groups)

    def with_parts(self, services: int, own: Iterable[str]) -> Self:
        """The same plan for a run with parts of a user, and faults for them besides, drawn from the
        seed.

        Args:
            services: how many there are.
            own: the names of a user's faults.
        """
        rng, names = random.Random(f"parts {self.seed}"), sorted(own)
        faults = list(self.faults)
        if services:
            faults += _faults(
                rng, FAULT_EVERY_SECONDS_AT_SERVICES, 0.0, self.seconds,
                lambda at: _fault_at_service(rng, at, self.hosts, services),
            )  # fmt: skip
        if names:
            faults += _faults(
                rng, FAULT_EVERY_SECONDS_OWN, 0.0, self.seconds,
                lambda at: _fault_own(rng, at, self.hosts, names),
            )  # fmt: skip
        return replace(self, faults=tuple(faults), services=services)

    def _with_steps_down(self) -> Self:
        """The same plan, in which leaders give up their lead by themselves, or in which none does:
        that came later, so nothing else depends on it."""
        rng = random.Random(f"steps down {self.seed}")
        if rng.random() >= SHARE_STEPPING_DOWN:
            return self
        more = _faults(
            rng, STEP_DOWN_EVERY_SECONDS, 2.0, self.seconds,
            lambda at: Fault(
                round(at, 3), Kind.STEP_DOWN, rng.randint(1, self.hosts), 0,
                rng.choice(LASTING_SECONDS), nth=rng.choice(CALLS),
            ),
        )  # fmt: skip
        return replace(self, faults=(*self.faults, *more))

    def _with_groups(self, groups: int | None) -> Self:
        """The same plan with so many queues. Each thing that operators do is about one of them, and
        about the first where they do it by files."""
        rng = random.Random(f"groups {self.seed}")
        is_several, drawn = rng.random() < SHARE_OF_SEVERAL_GROUPS, rng.choice(GROUPS)
        count = (drawn if is_several else 1) if groups is None else groups
        if count == 1:
            return self
        faults = [
            replace(each, queue=rng.randint(1, count))
            if each.kind in BY_OPERATORS - BY_RELOADS
            else each
            for each in self.faults
        ]
        return replace(self, faults=tuple(faults), groups=count)

    def only(self, faults: Iterable[Fault]) -> Self:
        """The same plan with these faults and no others."""
        return replace(self, faults=tuple(faults))

    @property
    def key(self) -> str:
        """Stands for this very plan, faults included."""
        # plans without what came later keep their keys
        later = [each.own for each in self.faults if each.own]
        later += [f"{self.groups} groups"] if self.groups > 1 else []
        later += ["rare choices"] if self.rare else []
        later += [f"{self.services} services"] if self.services else []
        later += [f"elected, {self.lease} s, {self.drifts}"] if self.lease else []
        text = repr(self) + "".join(later)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        roles = " both ways" if self.both_ways else " changing roles" if self.changing else ""
        roles = f" electing, lease {self.lease:g} s" if self.lease else roles
        roles += ", copies passed on" if self.routes else ""
        roles += ", cut inside documents" if self.cut_inside else ""
        roles += f", {self.acks} waited for" if self.changing else ""
        roles += f", {self.groups} queues" if self.groups > 1 else ""
        roles += ", rare choices" if self.rare else ""
        bursts = " in bursts" if self.bursts else ""
        frames = ", ".join(map(str, self.with_frames))
        frames = f" ({frames} with frames)" if frames else ""
        return (
            f"seed {self.seed}: {self.hosts} hosts{roles}{frames}, {self.seconds:g} s,"
            f" {self.roll_cycle}, {self.rate:g} appends/s{bursts}, {len(self.faults)} faults"
        )


def _rare(seed: int, rare: bool | None) -> bool:
    is_drawn = random.Random(f"rare {seed}").random() < SHARE_WITH_RARE_CHOICES
    return is_drawn if rare is None else rare


def _acks(seed: int, hosts: int) -> int:
    """The number that a policy waits for: mostly what leaves a majority with the leader, at times
    any other, as users may have it."""
    rng = random.Random(f"acks {seed}")
    majority = hosts // 2
    return majority if rng.random() < SHARE_OF_MAJORITIES else rng.randint(1, hosts - 1)


def _away(seed: int, faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults, of which some that take a process away last longer."""
    rng = random.Random(f"away {seed}")
    for fault in faults:
        is_long, seconds = rng.random() < SHARE_AWAY, rng.uniform(*AWAY_SECONDS)
        is_away = fault.kind.value in AWAY and is_long
        yield replace(fault, lasting=round(seconds, 1)) if is_away else fault


def _with_frames(seed: int, hosts: int, runs: bool | None) -> Iterator[int]:
    rng = random.Random(f"frames {seed}")
    for host in range(1, hosts + 1):
        if rng.random() < SHARE_WITH_FRAMES if runs is None else not runs:
            yield host


def _routes(seed: int, hosts: int, passed_on: bool | None) -> Iterator[Route]:
    """Each host takes each queue from its master, or from a host that has it already."""
    rng = random.Random(f"routes {seed}")
    is_drawn = rng.random() < SHARE_PASSED_ON
    if passed_on is False or (passed_on is None and not is_drawn):
        return
    for master in range(1, hosts + 1):
        have = [master]
        others = [host for host in range(1, hosts + 1) if host != master]
        for host in rng.sample(others, len(others)):
            via = rng.choice(have)
            have.append(host)
            if via != master:
                yield Route(master, host, via)


def _faults(
    rng: random.Random, pause: float, start: float, seconds: float, draw: Callable[[float], Fault]
) -> Iterator[Fault]:
    """The faults that `draw` gives for moments that are `pause` seconds apart on the average."""
    at = start
    while (at := at + rng.expovariate(1 / pause)) < seconds:
        yield draw(at)


def _without(faults: Iterable[Fault], kinds: Iterable[Kind]) -> tuple[Fault, ...]:
    """All of them are drawn: what is left out changes nothing of the others."""
    left_out = frozenset(kinds)
    return tuple(fault for fault in faults if fault.kind not in left_out)


def _fault(rng: random.Random, at: float, hosts: int) -> Fault:
    [kind] = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    host, peer, sink = rng.randrange(1, hosts + 1), 0, rng.randrange(2, hosts + 1)
    ends = rng.choice(((SOURCE, sink), (sink, SOURCE)))
    if kind in AT_LINKS:
        host, peer = ends
    elif kind in AT_THE_SOURCE:
        host = SOURCE
    elif kind in AT_SINKS:
        host = sink
    lasting, step_s = rng.choice(LASTING_SECONDS), rng.choice(CLOCK_STEPS_SECONDS)
    return Fault(round(at, 3), kind, host, peer, lasting, step_s, rng.choice(CALLS))


def _fault_both_ways(rng: random.Random, at: float, hosts: int) -> Fault:
    """Each host is source of its own queue, and sink of all others."""
    [kind] = rng.choices(list(WEIGHTS_BOTH_WAYS), list(WEIGHTS_BOTH_WAYS.values()))
    host, other = rng.sample(range(1, hosts + 1), 2)
    queue = other if kind in AT_SINKS else rng.choice((host, other)) if kind in AT_FILES else host
    lasting, step_s = rng.choice(LASTING_SECONDS), rng.choice(CLOCK_STEPS_SECONDS)
    return Fault(
        at=round(at, 3),
        kind=kind,
        host=host,
        peer=other if kind in AT_LINKS else 0,
        lasting=lasting,
        step_s=step_s,
        nth=rng.choice(BYTES if kind is Kind.CUT_INSIDE else CALLS),
        queue=queue,
    )


def _fault_changing(
    rng: random.Random, weights: Mapping[Kind, int], at: float, hosts: int
) -> Fault:
    """Each host may lead the queue, or be told to."""
    [kind] = rng.choices(list(weights), list(weights.values()))
    host, other = rng.sample(range(1, hosts + 1), 2)
    lasting, step_s = rng.choice(LASTING_SECONDS), rng.choice(CLOCK_STEPS_SECONDS)
    peer = other if kind in AT_LINKS else 0
    nth = rng.choice(BYTES if kind is Kind.CUT_INSIDE else CALLS)
    return Fault(round(at, 3), kind, host, peer, lasting, step_s, nth)


def _fault_at_service(rng: random.Random, at: float, hosts: int, services: int) -> Fault:
    """At its machine, or on the way between it and a host."""
    [kind] = rng.choices(list(WEIGHTS_AT_SERVICES), list(WEIGHTS_AT_SERVICES.values()))
    ends = [SERVICE_FIRST + rng.randrange(services), rng.randrange(1, hosts + 1)]
    if kind in AT_LINKS:
        rng.shuffle(ends)
    lasting, step_s = rng.choice(LASTING_SECONDS), rng.choice(CLOCK_STEPS_SECONDS)
    peer = ends[1] if kind in AT_LINKS else 0
    return Fault(round(at, 3), kind, ends[0], peer, lasting, step_s, rng.choice(CALLS))


def _fault_own(rng: random.Random, at: float, hosts: int, names: Sequence[str]) -> Fault:
    host, peer = rng.sample(range(1, hosts + 1), 2)
    lasting, nth, name = rng.choice(LASTING_SECONDS), rng.choice(CALLS), rng.choice(names)
    return Fault(round(at, 3), Kind.OWN, host, peer, lasting, nth=nth, own=name)
