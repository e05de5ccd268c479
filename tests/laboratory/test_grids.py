"""A grid keeps its word while the host that leads is killed, frozen, cut off and replaced."""

import pytest

from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Kind, RunPlan
from tests.laboratory import gridmaps
from tests.laboratory.griddatabase import database_run
from tests.support.schedules import seeds

# the primary is killed as the database has refused a transaction, and its client has heard so
MENDED = (2,)


def plan_of(seed: int, seconds: float = 30.0) -> RunPlan:
    return RunPlan.of(seed, seconds, hosts=3, without=[Kind.NEW_MASTER], changing=True, groups=1)


def elected_plan(seed: int, seconds: float = 20.0) -> RunPlan:
    return RunPlan.elected(seed, seconds, 3, LEFT_OUT, groups=1)


def grid_run(plan: RunPlan) -> Outcome:
    return run(
        plan,
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
    assert_kept(grid_run(plan_of(seed)))


@pytest.mark.parametrize("seed", seeds(1))
def test_a_grid_keeps_its_word_where_hosts_elect(seed: int) -> None:
    assert_kept(grid_run(elected_plan(seed)))


@pytest.mark.parametrize("seed", [*MENDED, *seeds(1)])
def test_a_grid_and_its_database_keep_their_word(seed: int) -> None:
    assert_kept(database_run(plan_of(seed)))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 31))
def test_a_grid_and_its_database_keep_their_word_where_hosts_elect(seed: int) -> None:
    assert_kept(database_run(elected_plan(seed, 40.0)))
