"""What a wait called safe by its policy is there after any faults that the policy covers."""

import random
from collections import Counter

import pytest

from cqrepl.kernel.board import AckLevel
from cqrepl.replicator.syncedfiles import SyncedFiles
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from cqrepl.testing.safewaits import NOT_COVERED
from cqrepl.testing.shortener import shortened

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
    return RunPlan(
        seed=seed,
        seconds=12.0,
        hosts=hosts,
        roll_cycle="FAST_DAILY",
        rate=10.0,
        faults=tuple(fault for fault in faults if fault.host <= hosts),
    )


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


def test_with_the_power_of_all_hosts_cut_at_once() -> None:
    outcomes = [run(cut_of_all(seed), waits=True) for seed in CUT_SEEDS]
    assert [each.broken for each in outcomes] == [None] * len(outcomes)
    all_levels(outcomes)
    assert not run(cut_of_all(0)).called_safe, "nothing waits where it was not asked for"


def test_the_same_seed_tells_the_same_story() -> None:
    one, other = (run(cut_of_all(1), waits=True) for _ in range(2))
    assert (one.digest, one.called_safe) == (other.digest, other.called_safe)


def test_a_sink_that_says_synced_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk has nothing of it when the power of both hosts is cut."""
    monkeypatch.setattr(SyncedFiles, "_sync_files", lambda self, end, *, is_at_once: None)
    for seed in PLANTED_SEEDS:
        outcome = run(cut_of_all(seed), waits=True)
        if outcome.check == "safe":
            break
    else:
        pytest.fail("not found")
    short = shortened(outcome, runs_max=4)
    assert short.check == "safe"
    assert short.waits
