"""Seeds drawn from the commit: another commit tries others, the same one the same.

CQREPL_LABORATORY_DRAW stands for the commit, where one wants others.
"""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from cqrepl.testing.known import KNOWN, LEFT_OUT, Known
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import RunPlan
from cqrepl.testing.shortener import shortened
from cqrepl.testing.transcript import told

SECONDS = 60.0
SECONDS_BOTH_WAYS = 20.0  # these take several times as long
COUNT = int(os.environ.get("CQREPL_LABORATORY_SEEDS", "40"))
SPACE = 1 << 31


def commit() -> str:
    """What the seeds are drawn from; a tree without a history has the seeds of its name."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return os.environ.get("CQREPL_LABORATORY_DRAW") or found.stdout.strip() or "no history"


def seeds() -> list[int]:
    first = int.from_bytes(hashlib.sha256(commit().encode()).digest()[:4], "little")
    return [(first + nth) % SPACE for nth in range(COUNT)]


@pytest.mark.parametrize("seed", seeds())
def test_every_promise_is_kept(seed: int) -> None:
    plan = RunPlan.of(seed, SECONDS, without=LEFT_OUT)
    if plan.both_ways:
        plan = RunPlan.of(seed, SECONDS_BOTH_WAYS, without=LEFT_OUT)
    outcome = run(plan)
    if outcome.broken is not None:
        for line in told(shortened(outcome, runs_max=20)):
            print(line)
    words = f"--seed {seed} --seconds {plan.seconds:g}"
    assert outcome.broken is None, f"python -m cqrepl.testing {words}: {outcome.broken}"


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_what_is_known_to_fail_still_does(known: Known) -> None:
    outcome = run(known.plan)
    assert outcome.check == known.check, f"mended? {outcome.broken}"
