"""Faults put into elections on purpose: the laboratory finds each."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cqrepl.cluster import promotion
from cqrepl.cluster.election.electiondesk import ElectionDesk
from cqrepl.cluster.election.hostelections import HostElections
from cqrepl.cluster.election.lease import Lease
from cqrepl.protocol.messages.leads import Hears
from cqrepl.queue.files import epochfile
from cqrepl.queue.files.sidefile import replace_side_file
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.surroundings import surroundings
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from tests.support.schedules import schedule

SEEDS = 30
HOSTS = (1, 2, 3)

Patch = pytest.MonkeyPatch
plan = partial(schedule, hosts=3, rate=4.0, changing=True, drifts=(0.0, 0.0, 0.0))


def a_promise_is_not_on_the_disk(patch: Patch) -> None:
    """It is given before the file that has it was synced."""
    replace = replace_side_file

    def careless(path: Any, data: bytes, *, is_synced: bool) -> None:
        replace(path, data, is_synced=False)

    patch.setattr(epochfile, "replace_side_file", careless)
    patch.setattr(epochfile, "sync_path", lambda _: None)


def a_leader_reads_after_a_thaw(patch: Patch) -> None:
    """It looks at whether it leads, and at no clock."""
    patch.setattr(Lease, "holds", lambda *_: True)


def a_lease_is_kept_by_the_wall_clock(patch: Patch) -> None:
    patch.setattr(ElectionDesk, "_now", property(lambda _: surroundings().wall_ns() / 1e9))


def one_promise_too_few(patch: Patch) -> None:
    """One host less has to promise than there have to be."""
    votes = promotion._Votes.of

    def fewer(*arguments: Any, **options: Any) -> Any:
        found = votes(*arguments, **options)
        needed, majority = max(found.needed - 1, 1), max(found.majority - 1, 1)
        return replace(found, needed=needed, majority=majority)

    patch.setattr(promotion._Votes, "of", fewer)


def a_lease_counts_from_the_answer(patch: Patch) -> None:
    """And not from when the leader sent what was answered."""
    told = HostElections.told_hears

    def late(self: HostElections, host_id: int, hears: Hears, now: float) -> None:
        sent = self._sent.get(host_id, {})
        if hears.number in sent:
            sent[hears.number] = now
        told(self, host_id, hears, now)

    patch.setattr(HostElections, "told_hears", late)


def a_leader_that_lost_its_power_counts_as_sure(patch: Patch) -> None:
    """In a promotion it has all that was safe, though nothing tells where it ended."""
    patch.setattr(DiskEnd, "lacks_from", None)


def power_cuts_after_promises(seed: int) -> RunPlan:
    """A host is killed, which may be the one that leads; another loses its power a little later."""
    rng = random.Random(seed)
    first, second = rng.sample(HOSTS, 2)
    at = 6.0 + rng.random()
    kill = Fault(at, Kind.KILL, first, 0, 8.0)
    cut = Fault(at + 1.0 + 2 * rng.random(), Kind.POWER_CUT, second, 0, 0.3)
    return plan(kill, cut, seed=seed, seconds=14.0, lease=1.0)


def frozen_leaders(seed: int) -> RunPlan:
    frozen = [Fault(6.0 + 6 * nth, Kind.FREEZE, host, 0, 3.0) for nth, host in enumerate(HOSTS)]
    return plan(*frozen, seed=seed, seconds=26.0, lease=1.0)


def clocks_that_step_back(seed: int) -> RunPlan:
    """The clock of a host goes back, which then hears nothing, and is not heard."""
    leader, at = seed % 3 + 1, 8.0 + random.Random(seed).random()
    step = Fault(at, Kind.CLOCK_STEP, leader, 0, 0.0, -5.0)
    cut = [Fault(at + 0.4, Kind.STALL, leader, each, 8.0) for each in HOSTS if each != leader]
    return plan(step, *cut, seed=seed, seconds=20.0, lease=1.0)


def power_cut_of_a_leader(seed: int) -> RunPlan:
    """It comes back without its end, and with a host that was away; the copy that has all is away
    by then."""
    at = 11.0 + random.Random(seed).random()
    away, cut = Fault(8.0, Kind.STOP, 3, 0, 4.0), Fault(at, Kind.POWER_CUT, 1, 0, 3.0)
    kill = Fault(at + 0.05, Kind.KILL, 2, 0, 20.0)
    changes = {"seed": seed, "seconds": 36.0, "rate": 10.0, "roll_cycle": "TEST_SECONDLY"}
    return plan(away, cut, kill, lease=1.0, **changes)


def two_that_ask_at_once(seed: int) -> RunPlan:
    """The leader is killed, and what the two others say to each other is on its way for long."""
    at = 6.0 + random.Random(seed).random()
    slow = Fault(at - 0.5, Kind.SLOW, 2, 3, 6.0)
    return plan(slow, Fault(at, Kind.KILL, 1, 0, 8.0), seed=seed, seconds=16.0, lease=1.0)


def answers_that_come_late(seed: int) -> RunPlan:
    """The others hear the leader, and their answers stay on the way; they hear it no more by the
    time that those come, and it hears nothing more of them."""
    at = 6.0 + random.Random(seed).random()
    late = [Fault(at, Kind.STALL_ONE_WAY, each, 1, 1.35) for each in (2, 3)]
    cut = [Fault(at + 0.55, Kind.STALL_ONE_WAY, 1, each, 5.0) for each in (2, 3)]
    cut += [Fault(at + 1.4, Kind.STALL_ONE_WAY, each, 1, 5.0) for each in (2, 3)]
    return plan(*late, *cut, seed=seed, seconds=16.0, lease=2.0)


PLANTED: list[tuple[Callable[[Patch], None], Callable[[int], RunPlan], set[str]]] = [
    (a_promise_is_not_on_the_disk, power_cuts_after_promises, {"epochs", "crash"}),
    (a_leader_reads_after_a_thaw, frozen_leaders, {"lease", "linearizable"}),
    (a_leader_that_lost_its_power_counts_as_sure, power_cut_of_a_leader, {"safe"}),
    (one_promise_too_few, two_that_ask_at_once, {"epochs"}),
    (a_lease_counts_from_the_answer, answers_that_come_late, {"lease", "linearizable"}),
    (a_lease_is_kept_by_the_wall_clock, clocks_that_step_back, {"lease", "linearizable"}),
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("plant", "plan_of", "checks"), [pytest.param(*each, id=each[0].__name__) for each in PLANTED]
)
def test_it_is_found(
    plant: Callable[[Patch], None],
    plan_of: Callable[[int], RunPlan],
    checks: set[str],
    monkeypatch: Patch,
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        outcomes = (run(plan_of(seed)) for seed in range(SEEDS))
        found = next((each for each in outcomes if each.broken is not None), None)
    assert found is not None, "not found"
    print(found.plan.seed, found.broken)
    assert found.check in checks, found.broken
    whole = run(found.plan)
    assert whole.broken is None, f"also without the fault: {whole.broken}"
