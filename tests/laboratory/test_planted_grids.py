"""Faults put into grids on purpose: the laboratory finds each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.loaders import LoaderDesk
from cqrepl.grid.partition import primary
from cqrepl.grid.partition.gridwords import Change, MapOp, pack_changes
from cqrepl.grid.partition.partitiongroup import PartitionGroup
from cqrepl.grid.partition.peerset import PeerSet
from cqrepl.grid.partition.primary import Primary, WrittenTx
from cqrepl.service.fieldwords import FieldWords
from cqrepl.testing.experiment import Check, Scene
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from tests.laboratory import gridmaps
from tests.laboratory.griddatabase import database_run
from tests.laboratory.test_grids import plan_of
from tests.laboratory.test_planted_boards import cut_leaders
from tests.laboratory.test_planted_elections import frozen_leaders
from tests.support.schedules import schedule

SEEDS = 60

Patch = pytest.MonkeyPatch
plan = partial(schedule, hosts=3, rate=4.0, changing=True)


def lists_are_cleared_before_the_answer(patch: Patch) -> None:
    """When a record is made that carries them, and not once it is safe: it may never be written."""
    record = Primary.record

    def clears(self: Primary, *arguments: Any, **options: Any) -> WrittenTx:
        written = record(self, *arguments, **options)
        self.answered(written)
        return written

    patch.setattr(Primary, "record", clears)


def the_next_transaction_loses_outcomes(patch: Patch) -> None:
    """It counts as having carried them."""
    record = Primary.record

    def loses(self: Primary, *arguments: Any, **options: Any) -> WrittenTx:
        written = record(self, *arguments, **options)
        values = {k: v for k, v in written.words.values.items() if k not in ("committed", "rolled")}
        return replace(written, words=FieldWords(written.words.name, values))

    patch.setattr(Primary, "record", loses)


def replicas_are_in_peer_mode_too_early(patch: Patch) -> None:
    """Each is, whatever it has, and whether or not it is there."""
    look = PeerSet.look

    def early(self: PeerSet, *arguments: Any) -> None:
        look(self, *arguments)
        self.peers = list(self._order)

    patch.setattr(PeerSet, "look", early)


def a_token_is_known_by_its_index_alone(patch: Patch) -> None:
    patch.setattr(PartitionGroup, "check_epoch", lambda *_, **__: None)


def a_clear_is_not_in_the_log(patch: Patch) -> None:
    def without(changes: Iterable[Change]) -> tuple[str, bytes]:
        return pack_changes([each for each in changes if each.op is not MapOp.CLEAR])

    patch.setattr(primary, "pack_changes", without)


def a_primary_reads_after_a_thaw(patch: Patch) -> None:
    async def reads(self: GridGroup) -> None:
        """It asks for no lease."""

    patch.setattr(GridGroup, "_check_lease", reads)


def recovery_does_not_ask_what_was_committed(patch: Patch) -> None:
    """The primary was killed between the commit in the database and the record of its outcome."""
    patch.setattr(LoaderDesk, "_was_committed", lambda *_: False)


AWAY_SECONDS = 15.0


def a_replica_is_away(seed: int) -> RunPlan:
    """One after the other, the first in the order of the group is among them."""
    away = Fault(4.0, Kind.STOP, 2 + seed % 2, 0, AWAY_SECONDS)
    return plan(away, seed=seed, seconds=22.0)


def commits_go_on(scene: Scene) -> Iterator[str]:
    """Without a replica that is away, once it was silent for a lease."""
    assert scene.plan is not None
    for fault in scene.plan.faults:
        first, last = fault.at + 5.0, fault.at + AWAY_SECONDS
        during = [
            each
            for each in scene.history.operations
            if each.name == "commit" and first <= each.at and each.is_known
            if each.at < last - 5.0
        ]
        if len(during) < 6:  # each of three clients may have one that waits
            yield f"{len(during)} transactions are committed while host {fault.host} is away"


def grid(plan: RunPlan, checks: Sequence[Check] = ()) -> Outcome:
    return run(
        plan,
        programs=gridmaps.programs,
        workload=gridmaps.workload,
        checks=[*gridmaps.checks, *checks],
        writes=True,
    )


# a lost outcome shows in copies, to readers or in the database, whichever is met first
SEEN = {"rows", "copies", "tokens", "partitions"}
Plant = Callable[[Patch], None]
PLANTED: list[tuple[Plant, Callable[[int], RunPlan], Callable[[RunPlan], Outcome], set[str]]] = [
    (lists_are_cleared_before_the_answer, plan_of, database_run, SEEN),
    (the_next_transaction_loses_outcomes, plan_of, database_run, SEEN),
    (
        replicas_are_in_peer_mode_too_early,
        a_replica_is_away,
        partial(grid, checks=[commits_go_on]),
        {"commits_go_on"},
    ),
    (a_token_is_known_by_its_index_alone, cut_leaders, grid, {"copies"}),
    (a_clear_is_not_in_the_log, plan_of, grid, {"partitions", "tokens"}),
    (a_primary_reads_after_a_thaw, frozen_leaders, grid, {"partitions"}),
    (recovery_does_not_ask_what_was_committed, plan_of, database_run, SEEN),
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("plant", "plan_of", "runs", "checks"),
    [pytest.param(*each, id=each[0].__name__) for each in PLANTED],
)
def test_it_is_found(
    plant: Plant,
    plan_of: Callable[[int], RunPlan],
    runs: Callable[[RunPlan], Outcome],
    checks: set[str],
    monkeypatch: Patch,
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        outcomes = (runs(plan_of(seed)) for seed in range(SEEDS))
        found = next((each for each in outcomes if each.broken is not None), None)
    assert found is not None, "not found"
    print(found.plan.seed, found.broken)
    assert found.check in checks, found.broken
    whole = runs(found.plan)
    assert whole.broken is None, f"also without the fault: {whole.broken}"
