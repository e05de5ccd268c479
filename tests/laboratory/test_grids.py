"""A grid keeps its word while the host that leads is killed, frozen, cut off and replaced."""

import pytest

from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Kind, RunPlan
from tests.laboratory import gridmaps
from tests.support.schedules import seeds


def grid_run(seed: int, seconds: float = 30.0) -> Outcome:
    plan = RunPlan.of(seed, seconds, hosts=3, without=[Kind.NEW_MASTER], changing=True, groups=1)
    return run(
        plan,
        programs=gridmaps.programs,
        workload=gridmaps.workload,
        checks=gridmaps.checks,
        writes=True,
    )


@pytest.mark.parametrize("seed", [*seeds(2)])
def test_a_grid_keeps_its_word(seed: int) -> None:
    outcome = grid_run(seed)
    assert outcome.broken is None, outcome.broken
    done = [each for each in outcome.history.operations if each.is_known]
    assert {each.name for each in done} >= {"commit", "get"}
