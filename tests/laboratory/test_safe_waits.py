"""An excerpt that its policy called safe is there after any faults that the policy covers."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.replicator.disk.syncedfiles import SyncedFiles
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, Leading
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from cqrepl.testing.safewaits import NOT_COVERED
from cqrepl.testing.shortener import shortened
from tests.support.schedules import schedule

SEEDS = range(3)
CUT_SEEDS = range(4)
PLANTED_SEEDS = range(40)
LEVELS = {level.name.lower() for level in AckLevel}


def cut_of_all(seed: int) -> RunPlan:
    """All hosts lose their power at once, some of them twice."""
    rng = random.Random(f"cut {seed}")
    hosts, at = rng.choice((2, 3)), 4.0 + rng.random() * 3.0
    faults = [Fault(at, Kind.POWER_CUT, host, 0, rng.choice((0.3, 2.0))) for host in (1, 2, 3)]
    faults.append(Fault(at + 4.0, Kind.POWER_CUT, rng.choice((1, 2)), 0, 0.3))
    there = [fault for fault in faults if fault.host <= hosts]
    return schedule(*there, seed=seed, hosts=hosts, rate=10.0)


def all_levels(outcomes: list[Outcome]) -> None:
    called = sum((Counter(each.called_safe) for each in outcomes), Counter())
    assert set(called) == LEVELS, "else nothing was looked for"
    assert min(called.values()) >= 5, called


def test_with_faults_that_are_drawn() -> None:
    outcomes = []
    for seed in SEEDS:
        plan = RunPlan.of(seed, 10.0, without=LEFT_OUT | NOT_COVERED, both_ways=False)
        outcomes.append(run(plan, waits=True))
        assert outcomes[-1].broken is None, outcomes[-1].broken
    all_levels(outcomes)
    assert sum(each.timed_out for each in outcomes) >= 3, "else no time was ever over"
    assert sum(each.admitted for each in outcomes) >= 10, "else no window was ever full"


@pytest.mark.parametrize("seed", [3, 7, 8])
def test_nobody_asks_for_what_went_with_the_power(seed: int) -> None:
    """It was appended while the replication was down: no host has heard of it, and all that they
    hear of later has higher indexes."""
    faults = Fault(4.0, Kind.STOP, 1, 0, 1.0), Fault(4.9, Kind.POWER_CUT, 1, 0, 0.3)
    plan = schedule(*faults, seed=seed, seconds=9.0, roll_cycle="TEST_SECONDLY", rate=3.0)
    outcome = run(plan, waits=True)
    assert outcome.broken is None
    assert sum(outcome.called_safe.values()) >= 5


def test_with_the_power_of_all_hosts_cut_at_once() -> None:
    outcomes = [run(cut_of_all(seed), waits=True) for seed in CUT_SEEDS]
    assert [each.broken for each in outcomes] == [None] * len(outcomes)
    all_levels(outcomes)
    assert not run(cut_of_all(0)).called_safe, "nothing waits where it was not asked for"


def a_time_out_counts_as_safe(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "_unknown", lambda self, policy: AckOutcome.ACKED)


def a_policy_that_blocks_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "_goes_on", lambda self, index, policy: False)


def a_time_out_is_no_error(patch: pytest.MonkeyPatch) -> None:
    goes_on = Leading._goes_on

    def _goes_on(self: Leading, index: int, policy: AckPolicy) -> bool:
        try:
            return goes_on(self, index, policy)
        except AckUnknown:
            return False

    patch.setattr(Leading, "_goes_on", _goes_on)


def every_policy_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "_goes_on", lambda self, index, policy: True)


def whoever_steps_down_appends_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "check_leads", lambda self: None)


def a_window_lets_all_through(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "_beyond_window", lambda self, policy, count: None)


def a_window_is_one_more(patch: pytest.MonkeyPatch, more: int) -> None:
    beyond = Leading._beyond_window
    patch.setattr(
        Leading, "_beyond_window", lambda self, policy, count: beyond(self, policy, count - more)
    )


@pytest.mark.parametrize(
    "plant",
    [
        a_time_out_counts_as_safe,
        a_policy_that_blocks_ends,
        a_time_out_is_no_error,
        every_policy_blocks,
        whoever_steps_down_appends_on,
        a_window_lets_all_through,
        pytest.param(partial(a_window_is_one_more, more=1), id="a_window_is_one_wider"),
        pytest.param(partial(a_window_is_one_more, more=-1), id="a_window_is_one_narrower"),
    ],
)
def test_what_a_policy_says_of_times_and_windows_is_held(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in PLANTED_SEEDS:
        if (check := run(cut_of_all(seed), waits=True).check) is not None:
            break
    assert check == "timed"


def test_waits_of_changing_roles_have_times_where_that_is_asked_for() -> None:
    """Else a seed stands for the run that it always was."""
    plan = RunPlan.of(3, 15.0, changing=True)
    assert not run(plan).timed_out
    outcome = run(plan, waits=True)
    assert (outcome.broken, outcome.timed_out > 0) == (None, True)


def test_a_sink_that_says_synced_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk has nothing of it when the power of both hosts is cut."""
    monkeypatch.setattr(SyncedFiles, "_sync_files", lambda self, end, *, is_at_once: None)
    for seed in PLANTED_SEEDS:
        outcome = run(cut_of_all(seed), waits=True)
        if outcome.check == "synced":
            break
    else:
        pytest.fail("not found")
    short = shortened(outcome, runs_max=4)
    assert short.check == "synced"
    assert short.waits
