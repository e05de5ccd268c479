"""Faults put into services on purpose: a task board in the laboratory finds each."""

from collections.abc import Callable
from typing import Any

import pytest

from cqrepl.broker.fields import TaskWords
from cqrepl.broker.taskboard import TaskTable
from cqrepl.cluster import checkpoints
from cqrepl.cluster.checkpoints import Checkpointer
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.format.logpos import LogPos
from cqrepl.replicator.followfeed import FollowFeed, Saved
from cqrepl.surroundings import surroundings
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from tests.laboratory import taskboards
from tests.laboratory.test_task_boards import board_run
from tests.support.schedules import schedule

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


def a_checkpoint_is_above_what_is_committed(patch: Patch) -> None:
    """It has its name at once, and is taken though the queue was cut below."""
    save, newest = Checkpointer.save, Checkpointer.newest

    def early(self: Checkpointer, pos: LogPos, committed: int, *more: Any) -> None:
        save(self, pos, INDEX_MAX, *more)

    def any_newest(self: Checkpointer, to: LogPos | None) -> Saved | None:
        return newest(self, None)

    patch.setattr(Checkpointer, "save", early)
    patch.setattr(Checkpointer, "newest", any_newest)
    patch.setattr(checkpoints, "is_on", lambda *_: True)


def cut_leaders(seed: int) -> RunPlan:
    """Another host is promoted meanwhile; what the old leader has written last is lost."""
    at = 5.0 + seed / 10
    cut = [Fault(at, Kind.STALL, 1, each, 8.0) for each in (2, 3)]
    promote = Fault(at + 3.0, Kind.PROMOTE, 2, 0, 0.05)
    changes = {"seed": seed, "seconds": 20.0, "hosts": 3, "rate": 4.0, "changing": True}
    return schedule(*cut, promote, **changes)


def cut_run(seed: int) -> Outcome:
    return run(
        cut_leaders(seed),
        programs=taskboards.programs,
        workload=taskboards.workload,
        checks=taskboards.checks,
        writes=True,
    )


PLANTED: list[tuple[Callable[[Patch], None], Callable[[int], Outcome]]] = [
    (a_record_is_applied_at_the_time_of_the_host, board_run),
    (state_stays_where_a_tail_went_to_quarantine, board_run),
    (a_checkpoint_is_above_what_is_committed, cut_run),
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("plant", "runs"), [pytest.param(*each, id=each[0].__name__) for each in PLANTED]
)
def test_it_is_found(
    plant: Callable[[Patch], None], runs: Callable[[int], Outcome], monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        outcomes = (runs(seed) for seed in range(SEEDS))
        found = next((each for each in outcomes if each.broken is not None), None)
    assert found is not None, "not found"
    print(found.plan.seed, found.broken)
    assert found.check == "boards", found.broken
    whole = runs(found.plan.seed)
    assert whole.broken is None, f"also without the fault: {whole.broken}"
