"""Schedules of the laboratory that are drawn from the commit: another commit tries others, the same
one the same.

CQREPL_LABORATORY_DRAW stands for the commit, where one wants others.
"""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import Fault, RunPlan
from cqrepl.testing.shortener import shortened
from cqrepl.testing.transcript import told

SPACE = 1 << 31


def commit() -> str:
    """The text that the seeds are drawn from: usually the commit. A tree without a history has a
    fixed text."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return os.environ.get("CQREPL_LABORATORY_DRAW") or found.stdout.strip() or "no history"


def seeds(count: int) -> list[int]:
    first = int.from_bytes(hashlib.sha256(commit().encode()).digest()[:4], "little")
    return [(first + nth) % SPACE for nth in range(count)]


def schedule(*faults: Fault, **changes: Any) -> RunPlan:
    """A run with these faults: two hosts for twelve seconds, unless the changes say otherwise."""
    usual = {"seed": 0, "seconds": 12.0, "hosts": 2, "roll_cycle": "FAST_DAILY", "rate": 20.0}
    return RunPlan(**{**usual, **changes}, faults=faults)


def assert_kept(plan: RunPlan) -> None:
    """Every promise was kept; else the shortest story is told, and the command that repeats it."""
    outcome = run(plan)
    if outcome.broken is not None:
        for line in told(shortened(outcome, runs_max=20)):
            print(line)
    cut = "-cut" if plan.cut_inside else ""
    roles = f"--roles changing{cut} " if plan.changing else ""
    roles = "--roles elected " if plan.lease else roles
    words = f"{roles}--seed {plan.seed} --seconds {plan.seconds:g}"
    assert outcome.broken is None, f"python -m cqrepl.testing {words}: {outcome.broken}"
