"""Faults put into services on purpose: a task board in the laboratory finds each."""

from collections.abc import Callable
from typing import Any

import pytest

from cqrepl.broker.fields import TaskWords
from cqrepl.broker.taskboard import TaskTable
from cqrepl.queue.format.logpos import LogPos
from cqrepl.replicator.followfeed import FollowFeed
from cqrepl.surroundings import surroundings
from tests.laboratory.test_task_boards import board_run

SEEDS = 60

Patch = pytest.MonkeyPatch


def a_record_is_applied_at_the_time_of_the_host(patch: Patch) -> None:
    """And not at that of the record."""
    apply = TaskTable.apply

    def late(self: TaskTable, index: int, said: TaskWords) -> Any:
        words = dict(said.values) | {"now": surroundings().wall_ms()}
        return apply(self, index, TaskWords(said.name, words))

    patch.setattr(TaskTable, "apply", late)


def state_stays_where_a_tail_went_to_quarantine(patch: Patch) -> None:
    """The feed goes on from where it was."""
    go_back = FollowFeed._go_back

    async def stays(self: FollowFeed, to: LogPos | None) -> None:
        if to is None:
            await go_back(self, to)

    patch.setattr(FollowFeed, "_go_back", stays)


PLANTED: list[Callable[[Patch], None]] = [
    a_record_is_applied_at_the_time_of_the_host,
    state_stays_where_a_tail_went_to_quarantine,
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__)
def test_it_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        outcomes = (board_run(seed) for seed in range(SEEDS))
        found = next((each for each in outcomes if each.broken is not None), None)
    assert found is not None, "not found"
    print(found.plan.seed, found.broken)
    assert found.check == "boards", found.broken
    whole = board_run(found.plan.seed)
    assert whole.broken is None, f"also without the fault: {whole.broken}"
