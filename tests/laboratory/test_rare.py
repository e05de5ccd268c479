"""Choices that are legal and rare: the laboratory makes them, and every promise is kept."""

import re
from pathlib import Path
from typing import Any

import pytest

import cqrepl
from cqrepl.surroundings import Surroundings
from cqrepl.testing import labmachine
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import RunPlan
from tests.support.schedules import assert_kept, schedule, seeds

SECONDS = 6.0
# made in runs of their own: an audit is one, and storages are on hosts that elect
ELSEWHERE = {"audit", "storage told in many words"}


def test_the_machine_itself_makes_none() -> None:
    assert Surroundings().rarely("window", 7, 1, 2) == 7


def names() -> set[str]:
    """The names of all choices that the product asks for."""
    package = Path(cqrepl.__file__).parent
    texts = (path.read_text() for path in package.rglob("*.py"))
    return {name for text in texts for name in re.findall(r'\.rarely\("([^"]+)"', text)}


def test_each_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, set[Any]] = {}
    rarely = labmachine.Process.rarely

    def noted(self: labmachine.Process, name: str, usual: Any, *others: Any) -> Any:
        found = rarely(self, name, usual, *others)
        made.setdefault(name, set()).add(found == usual)
        return found

    monkeypatch.setattr(labmachine.Process, "rarely", noted)
    for seed in range(30):
        plan = RunPlan.of(seed, SECONDS, 3, LEFT_OUT, changing=True, groups=1, rare=True)
        run(plan)
        if all(made.get(name) == {True, False} for name in names() - ELSEWHERE):
            break
    assert {name for name, found in made.items() if False in found} >= names() - ELSEWHERE


@pytest.mark.parametrize("seed", seeds(4))
def test_every_promise_is_kept(seed: int) -> None:
    assert_kept(RunPlan.of(seed, 20.0, without=LEFT_OUT, both_ways=False, rare=True))


@pytest.mark.parametrize("seed", seeds(1))
def test_every_promise_is_kept_where_roles_change(seed: int) -> None:
    assert_kept(RunPlan.of(seed, SECONDS, 3, LEFT_OUT, changing=True, rare=True))


def test_a_run_without_them_is_what_it_was() -> None:
    usual, rare = schedule(seed=5), schedule(seed=5, rare=True)
    assert usual.key != rare.key
    assert run(usual).digest != run(rare).digest
