"""A task board keeps its word while its leader is killed, frozen, cut off and replaced."""

import pytest

from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Kind, RunPlan
from tests.laboratory import taskboards
from tests.support.schedules import seeds


def board_run(seed: int, seconds: float = 40.0) -> Outcome:
    # a host whose changed file names it leads in no epoch as it starts, and a board writes at once
    without = [Kind.NEW_MASTER]
    plan = RunPlan.of(seed, seconds, hosts=3, without=without, changing=True, groups=1)
    return run(
        plan,
        programs=taskboards.programs,
        workload=taskboards.workload,
        checks=taskboards.checks,
        writes=True,
    )


@pytest.mark.parametrize("seed", seeds(2))
def test_a_task_board_keeps_its_word(seed: int) -> None:
    outcome = board_run(seed)
    assert outcome.broken is None, outcome.broken
    done = [each for each in outcome.history.operations if each.is_known]
    assert {each.name for each in done} == {"submit", "finish"}
