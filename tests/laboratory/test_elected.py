"""Hosts that elect the leaders of their queues, under faults."""

from functools import partial

import pytest

from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import DRIFT_MAX, Fault, Kind, RunPlan
from tests.support.schedules import assert_kept, schedule

SECONDS = 20.0
LONG_SECONDS = 60.0
FEW_SEEDS = (1, 2, 3)
LONG_SEEDS = range(1, 101)

# seeds of three hosts for twenty seconds that have found a fault, which was mended
FOUND = {
    942963712: "a leader that has just stepped down announces its epoch",
    20011: "a copy whose clock is hours behind its leader's waits for it",
    20020: "a host that is silent when it comes back is not asked again for a promise",
}

plan = partial(schedule, hosts=3, rate=4.0, changing=True, lease=1.0, seed=3)


def epochs(outcome: Outcome) -> list[str]:
    """The epochs that hosts have led in, in order."""
    words = "this host leads it in epoch "
    return [each.text.split(words)[1] for each in outcome.story if words in each.text]


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_every_promise_is_kept(seed: int) -> None:
    assert_kept(RunPlan.elected(seed, SECONDS, 3, LEFT_OUT))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_every_promise_is_kept_for_longer_by_more_hosts(seed: int) -> None:
    assert_kept(RunPlan.elected(seed, LONG_SECONDS, without=LEFT_OUT))


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.values())
def test_what_was_mended_stays_so(seed: int) -> None:
    assert_kept(RunPlan.elected(seed, SECONDS, 3, LEFT_OUT))


def test_seeds_draw_all_that_an_election_meets() -> None:
    drawn = [RunPlan.elected(seed, LONG_SECONDS) for seed in range(100)]
    assert {each.hosts for each in drawn} == {3, 4, 5}
    assert {each.lease for each in drawn} == {1.0, 2.0, 3.0}
    assert {each.groups for each in drawn} == {1, 2}
    assert all(len(each.drifts) == each.hosts for each in drawn)
    assert all(abs(drift) <= DRIFT_MAX for each in drawn for drift in each.drifts)
    assert len({each.key for each in drawn}) == len(drawn)
    kinds = {fault.kind for each in drawn for fault in each.faults}
    assert kinds >= {Kind.KILL, Kind.FREEZE, Kind.POWER_CUT, Kind.STALL_ONE_WAY, Kind.CLOCK_STEP}


def test_a_leader_that_thaws_when_all_its_connections_are_over_follows_the_next_one() -> None:
    """It steps down in the very moment in which its connections end."""
    frozen = [Fault(8.0 + 12 * nth, Kind.FREEZE, nth + 1, 0, 9.0) for nth in range(3)]
    outcome = run(plan(*frozen, seconds=45.0))
    assert outcome.broken is None, outcome.broken
    assert epochs(outcome)[:2] == ["1", "2"]


@pytest.mark.parametrize("seed", [1, 7])
def test_a_leader_that_has_lost_its_power_does_not_count_as_having_what_was_safe(
    seed: int,
) -> None:
    """It comes back without its end, and with a host that was away; the copy that has all is away
    by then."""
    at = 11.0 + seed / 10
    away = Fault(8.0, Kind.STOP, 3, 0, 4.0)
    cut = Fault(at, Kind.POWER_CUT, 1, 0, 3.0)
    kill = Fault(at + 0.05, Kind.KILL, 2, 0, 20.0)
    changes = {"seed": seed, "seconds": 36.0, "rate": 10.0, "roll_cycle": "TEST_SECONDLY"}
    outcome = run(plan(away, cut, kill, **changes))
    assert outcome.broken is None, outcome.broken
    refused = "what was safe: 2 copies expected to promise, 1 does"
    assert any(refused in each.text for each in outcome.story)


AHEAD = (
    *(Fault(8.0, Kind.CUT, 1, each, 0.0) for each in (2, 3)),
    Fault(8.02, Kind.CLOCK_STEP, 1, 0, 0.0, step_s=7200.0),
)


def test_a_leader_whose_clock_is_ahead_of_a_majority_s_steps_down_and_follows() -> None:
    """Its appends by that clock go to quarantine: no other host has taken them."""
    outcome = run(plan(*AHEAD, roll_cycle="MINUTELY"))
    assert outcome.broken is None, outcome.broken
    assert epochs(outcome) == ["1", "2"]
    told = [each.text for each in outcome.story]
    assert sum("by the clocks of hosts 2, 3 it is of times to come" in each for each in told) == 1
    assert sum("which the leader of a later epoch never had" in each for each in told) == 1
    assert not [each for each in told if "stopped (" in each]


def test_a_leader_goes_on_while_one_copy_s_clock_is_behind() -> None:
    """Both hosts say so; the copy goes on by itself once its clock is right."""
    faults = (
        Fault(8.0, Kind.CUT, 1, 3, 0.0),
        Fault(8.02, Kind.CLOCK_STEP, 3, 0, 0.0, step_s=-7200.0),
        Fault(14.0, Kind.CLOCK_STEP, 3, 0, 0.0, step_s=7200.0),
    )
    outcome = run(plan(*faults, roll_cycle="TEST_SECONDLY", seconds=20.0))
    assert outcome.broken is None, outcome.broken
    assert epochs(outcome) == ["1"]
    wrong = "the clock of this host, or of the one that wrote it, is wrong"
    told = [each.text for each in outcome.story if wrong in each.text]
    assert len(told) == 2
    assert sum("the peer says" in each for each in told) == 1
    goes_on = [each for each in outcome.story if each.text.endswith("queue 'q' goes on")]
    assert len(goes_on) == 2
    assert all(each.seconds > 14.0 for each in goes_on)
