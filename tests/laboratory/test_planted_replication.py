"""Faults put into the replication itself on purpose: drawn runs find each.

Each stands with the seed that finds it first; a run of the same plan without the fault keeps all
promises.
"""

from collections.abc import Callable

import pytest

from cqrepl.replicator.queuestate.keptepochs import KeptEpochs, Tail
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import RunPlan

SECONDS = 30.0

Patch = pytest.MonkeyPatch


def a_tail_of_an_old_leader_stays(patch: Patch) -> None:
    """A copy does not look for excerpts that the leader of a later epoch never had."""
    nothing = Tail(beyond=None, may_differ_from=None)
    patch.setattr(KeptEpochs, "tail_of", lambda *_: nothing)


def changing(seed: int) -> RunPlan:
    return RunPlan.of(seed, SECONDS, 3, LEFT_OUT, changing=True)


PLANTED: list[tuple[Callable[[Patch], None], Callable[[int], RunPlan], int, str]] = [
    (a_tail_of_an_old_leader_stays, changing, 6, "cause"),
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("plant", "drawn", "seed", "check"),
    [pytest.param(*each, id=each[0].__name__) for each in PLANTED],
)
def test_it_is_found(
    plant: Callable[[Patch], None],
    drawn: Callable[[int], RunPlan],
    seed: int,
    check: str,
    monkeypatch: Patch,
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        found = run(drawn(seed))
    assert found.check == check, found.broken
    whole = run(drawn(seed))
    assert whole.broken is None, f"also without the fault: {whole.broken}"
