"""Storages lose nothing that was acknowledged while leaders are killed, frozen, cut off."""

import pytest

from cqrepl.testing.experiment import Scene
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.plan import Fault, Kind
from tests.laboratory.storageruns import run_with_storages, storage_run
from tests.support.schedules import schedule, seeds


@pytest.mark.parametrize("seed", seeds(2))
def test_storages_keep_their_word(seed: int) -> None:
    outcome, writes = storage_run(seed)
    assert outcome.broken is None, outcome.broken
    assert len(writes.done) > 3


def test_a_copy_that_says_why_it_differs_is_asked_for_no_item() -> None:
    """The clock of a leader goes back by two hours; the next one begins cycles that are of times to
    come for it, so its copy stops."""
    seen: list[list[int]] = []

    def note(scene: Scene) -> list[str]:
        seen.append(scene.equal_hosts(QUEUE))
        return []

    behind = Fault(6.0, Kind.CLOCK_STEP, host=1, peer=0, lasting=0.05, step_s=-7200.0)
    frozen = Fault(7.0, Kind.FREEZE, host=1, peer=0, lasting=6.0)
    changes = {"hosts": 3, "rate": 4.0, "changing": True, "lease": 1.0, "seed": 3}
    plan = schedule(behind, frozen, roll_cycle="TEST_SECONDLY", seconds=24.0, **changes)
    outcome, writes = run_with_storages(plan, checks=[note])
    assert outcome.broken is None, outcome.broken
    assert seen == [[2, 3]]
    assert len(writes.done) > 3
