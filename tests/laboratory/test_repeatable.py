"""One seed, one run: everything that happens, in order, byte by byte."""

import os
import re
import subprocess
import sys

import pytest

from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import RunPlan

SECONDS = 10.0
SHORT, ALL = 8, 50  # what takes no part in the order that it should is soon in a run's way


@pytest.mark.parametrize(
    ("both_ways", "seed"),
    [
        *((False, seed) for seed in range(SHORT)),
        *((True, seed) for seed in range(2)),  # hosts that are both source and sink take longer
        *(pytest.param(False, seed, marks=pytest.mark.long) for seed in range(SHORT, ALL)),
    ],
)
def test_the_same_seed_twice(*, both_ways: bool, seed: int) -> None:
    first, again = (run(RunPlan.of(seed, SECONDS, both_ways=both_ways)) for _ in range(2))
    assert first.digest == again.digest
    assert first.story == again.story


def test_other_seeds_are_other_runs() -> None:
    assert len({run(RunPlan.of(seed, SECONDS)).digest for seed in range(5)}) == 5


@pytest.mark.parametrize("both_ways", [False, True])
def test_what_a_seed_stands_for_is_asked_for_or_drawn(*, both_ways: bool) -> None:
    drawn = [RunPlan.of(seed, SECONDS) for seed in range(300)]
    same = [plan for plan in drawn if plan.both_ways is both_ways]
    assert same == [RunPlan.of(plan.seed, SECONDS, both_ways=both_ways) for plan in same]
    assert len(same) > 60


def digests(hash_seed: str, roles: str, last: int) -> list[str]:
    words = [sys.executable, "-P", "-m", "cqrepl.testing", "--seeds", f"0..{last}", "--all"]
    found = subprocess.run(
        [*words, "--roles", roles, "--seconds", str(SECONDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    return re.findall(r"trace (\w+)", found.stdout)


@pytest.mark.parametrize(("roles", "last"), [("one-way", 5), ("both-ways", 0)])
def test_other_processes_and_hash_seeds(roles: str, last: int) -> None:
    one, other = digests("0", roles, last), digests("12345", roles, last)
    assert len(one) == last + 1
    assert one == other
    both_ways = roles == "both-ways"
    plans = [RunPlan.of(seed, SECONDS, both_ways=both_ways) for seed in range(last + 1)]
    assert [run(plan).digest[: len(one[0])] for plan in plans] == one
