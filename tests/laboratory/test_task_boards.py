"""A task board keeps its word while its leader is killed, frozen, cut off and replaced."""

import pytest

from cqrepl.testing.experiment import Scene
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from tests.laboratory import taskboards
from tests.support.schedules import schedule, seeds


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


# the clock of a host goes back by two hours, so its copy stops; a promotion accepts a loss; a power
# cut brings back the append lock of the time when the leader was a copy
MENDED = (1408293111, 9022, 1009)


def elected_board_run(seed: int, seconds: float = 20.0) -> Outcome:
    return run(
        RunPlan.elected(seed, seconds, 3, LEFT_OUT, groups=1),
        programs=taskboards.programs,
        workload=taskboards.workload,
        checks=taskboards.checks,
        writes=True,
    )


@pytest.mark.parametrize("seed", seeds(1))
def test_a_task_board_keeps_its_word_where_hosts_elect(seed: int) -> None:
    assert_served(elected_board_run(seed))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 31))
def test_a_task_board_keeps_its_word_for_longer_where_hosts_elect(seed: int) -> None:
    assert_served(elected_board_run(seed, 60.0))


def assert_served(outcome: Outcome) -> None:
    assert outcome.broken is None, outcome.broken
    done = {each.name for each in outcome.history.operations if each.is_known}
    assert done >= {"submit", "finish"}


@pytest.mark.parametrize("seed", [*MENDED, *seeds(2)])
def test_a_task_board_keeps_its_word(seed: int) -> None:
    assert_served(board_run(seed))


def test_a_copy_that_says_why_it_differs_is_asked_for_no_task() -> None:
    seen: list[list[int]] = []

    def note(scene: Scene) -> list[str]:
        seen.append(scene.equal_hosts(QUEUE))
        return []

    behind = Fault(3.0, Kind.CLOCK_STEP, host=2, peer=0, lasting=0.05, step_s=-7200.0)
    # a cycle begins each second, and ten that the clock has not come to are taken
    plan = RunPlan.of(1408293111, 24.0, hosts=3, changing=True, groups=1).only([behind])
    assert plan.roll_cycle == "TEST_SECONDLY"
    outcome = run(
        plan,
        programs=taskboards.programs,
        workload=taskboards.workload,
        checks=[note, *taskboards.checks],
        writes=True,
    )
    assert outcome.broken is None, outcome.broken
    assert seen == [[1, 3]]


def test_clients_leave_a_leader_that_stands_still_for_the_next_one() -> None:
    """Within two seconds, by which the next one has been elected; it stands still for longer."""
    frozen = Fault(8.0, Kind.FREEZE, host=1, peer=0, lasting=8.0)
    changes = {"hosts": 3, "rate": 1.0, "changing": True, "lease": 1.0, "seed": 3}
    outcome = run(
        schedule(frozen, seconds=14.0, **changes),
        programs=taskboards.programs,
        workload=taskboards.workload,
        checks=taskboards.checks,
        writes=True,
    )
    assert_served(outcome)
    told = [each for each in outcome.story if each.where == "history" and "submit" in each.text]
    assert any(9.0 < each.seconds < 12.5 and "gives" in each.text for each in told)
