"""A grid keeps its word while the host that leads is killed, frozen, cut off and replaced."""

import pytest

from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Kind, RunPlan
from tests.laboratory import gridmaps
from tests.laboratory.griddatabase import database_run
from tests.support.schedules import seeds

# the primary is killed as the database has refused a transaction, and its client has heard so
MENDED = (2,)


def plan_of(seed: int, seconds: float = 30.0) -> RunPlan:
    return RunPlan.of(seed, seconds, hosts=3, without=[Kind.NEW_MASTER], changing=True, groups=1)


def grid_run(seed: int, seconds: float = 30.0) -> Outcome:
    return run(
        plan_of(seed, seconds),
        programs=gridmaps.programs,
        workload=gridmaps.workload,
        checks=gridmaps.checks,
        writes=True,
    )


def assert_kept(outcome: Outcome) -> None:
    assert outcome.broken is None, outcome.broken
    done = [each for each in outcome.history.operations if each.is_known]
    assert {each.name for each in done} >= {"commit", "get"}


@pytest.mark.parametrize("seed", [*seeds(2)])
def test_a_grid_keeps_its_word(seed: int) -> None:
    assert_kept(grid_run(seed))


@pytest.mark.parametrize("seed", [*MENDED, *seeds(1)])
def test_a_grid_and_its_database_keep_their_word(seed: int) -> None:
    assert_kept(database_run(plan_of(seed)))
