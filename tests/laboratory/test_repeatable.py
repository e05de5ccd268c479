"""One seed, one run: everything that happens, in order, byte by byte."""

import os
import re
import subprocess
import sys

import pytest

from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import RunPlan

PAIRS = 50
SECONDS = 10.0


@pytest.mark.parametrize("seed", range(PAIRS))
def test_the_same_seed_twice(seed: int) -> None:
    first, again = (run(RunPlan.of(seed, SECONDS)) for _ in range(2))
    assert first.digest == again.digest
    assert first.story == again.story


def test_other_seeds_are_other_runs() -> None:
    assert len({run(RunPlan.of(seed, SECONDS)).digest for seed in range(5)}) == 5


def digests(hash_seed: str) -> list[str]:
    words = [sys.executable, "-P", "-m", "cqrepl.testing", "--seeds", "0..5", "--all"]
    found = subprocess.run(
        [*words, "--seconds", str(SECONDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    return re.findall(r"trace (\w+)", found.stdout)


def test_other_processes_and_hash_seeds() -> None:
    one, other = digests("0"), digests("12345")
    assert len(one) == 6
    assert one == other
    here = [run(RunPlan.of(seed, SECONDS)).digest for seed in range(6)]
    assert [digest[: len(one[0])] for digest in here] == one
