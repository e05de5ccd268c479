"""Schedules that once broke a promise, and do so no more."""

import pytest

from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan


def plan(
    *faults: Fault,
    seed: int = 0,
    hosts: int = 2,
    roll_cycle: str = "FAST_DAILY",
    rate: float = 20.0,
    seconds: float = 20.0,
) -> RunPlan:
    return RunPlan(
        seed=seed, seconds=seconds, hosts=hosts, roll_cycle=roll_cycle, rate=rate, faults=faults
    )


MENDED = {
    "gc waits for the slowest sink": plan(
        Fault(10.0, Kind.STALL, 3, SOURCE, 8.0),
        Fault(16.0, Kind.GC, SOURCE, 0, 0.05),
        hosts=3,
        roll_cycle="TEST_SECONDLY",
        seconds=40.0,
    ),
    "a queue is not logged into itself": plan(Fault(12.0, Kind.ACK_LOG, SOURCE, 0, 0.05)),
    "a source that lost its end, and local writes": plan(
        Fault(10.0, Kind.POWER_CUT, SOURCE, 0, 0.3), seed=2
    ),
    "a mark beyond the end of the source": plan(
        Fault(6.68, Kind.POWER_CUT, SOURCE, 0, 0.3), seed=8, rate=2.0, seconds=10.0
    ),
    "a torn excerpt in a copy is told": plan(
        Fault(8.0, Kind.POWER_CUT, 2, 0, 0.05), rate=60.0, seconds=10.0
    ),
    "a copy that has lost a whole file": plan(
        Fault(10.0, Kind.POWER_CUT, 2, 0, 0.3), roll_cycle="TEST_SECONDLY"
    ),
    "a source made anew takes nothing": plan(Fault(12.0, Kind.ANEW, SOURCE, 0, 0.05), hosts=3),
    "a source from a backup": plan(Fault(12.0, Kind.RESTORED, SOURCE, 0, 0.05), seed=2, hosts=3),
    "a sink in the directory of its source": plan(
        Fault(12.0, Kind.SAME_DIRECTORY, 2, 0, 0.05), seconds=40.0
    ),
    "a sink at another queue": plan(Fault(12.0, Kind.FOREIGN, 2, 0, 0.05)),
}


@pytest.mark.parametrize("plan", MENDED.values(), ids=MENDED.keys())
def test_it_stays_mended(plan: RunPlan) -> None:
    outcome = run(plan)
    assert outcome.broken is None
    assert sum(outcome.injected.values()) == len(plan.faults)
