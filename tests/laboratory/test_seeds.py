"""Schedules that are drawn from the commit, and those that are known to fail."""

import os

import pytest

from cqrepl.testing.known import KNOWN, LEFT_OUT, Known
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import RunPlan
from tests.support.schedules import assert_kept, seeds

SECONDS = 60.0
SECONDS_BOTH_WAYS = 20.0  # these take several times as long
COUNT = int(os.environ.get("CQREPL_LABORATORY_SEEDS", "30"))
SHORT = 10  # so many of them are in `make test`, the others in `make test-all`


@pytest.mark.parametrize("seed", seeds(COUNT)[:SHORT])
def test_every_promise_is_kept(seed: int) -> None:
    keeps(seed)


@pytest.mark.parametrize("seed", seeds(COUNT)[SHORT:])
def test_more_schedules_keep_every_promise(seed: int) -> None:
    keeps(seed)


def keeps(seed: int) -> None:
    plan = RunPlan.of(seed, SECONDS, without=LEFT_OUT)
    if plan.both_ways:
        plan = RunPlan.of(seed, SECONDS_BOTH_WAYS, without=LEFT_OUT)
    assert_kept(plan)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_what_is_known_to_fail_still_does(known: Known) -> None:
    outcome = run(known.plan)
    assert outcome.check == known.check, f"mended? {outcome.broken}"
