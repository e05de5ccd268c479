"""Runs cases in turn, round by round, and keeps what each of them found.

The one-minute load is quoted with every round, as it was before it began. Our own processes raise
it, so before a round whose 99th percentiles count, the machine gets time to calm down.
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cqrepl.bench.machine import load
from cqrepl.queue import QueueError

LOAD_MAX = 1.5  # with more, a 99th percentile tells of the scheduler
CALM_LOOK_SECONDS = 1.0
Values = dict[str, float]


def _present() -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to be measured; `missing` says why it cannot be here."""

    name: str
    run: Callable[[Path], Values]
    missing: Callable[[], str | None] = _present


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that are compared with each other, hence take turns.

    Args:
        wants_calm: percentiles of it count.
        rounds_max: no more rounds than this.
    """

    name: str
    cases: Sequence[Case]
    wants_calm: bool = False
    rounds_max: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The values that one case found in one round."""

    group: str
    case: str
    round: int
    load: float
    values: Values


@dataclass(frozen=True, slots=True)
class Results:
    """All that was found, and why the rest was not."""

    found: list[Found] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def run_groups(
    groups: Sequence[Group], folder: Path, rounds: int, calm_s: float, say: Callable[[str], None]
) -> Results:
    """Runs every group to its end; a case that cannot run or fails is left out from then on."""
    results = Results()
    for group in groups:
        for case in group.cases:
            reason = case.missing()
            if reason is not None:
                results.failures[case.name] = reason
        for number in range(1, min(rounds, group.rounds_max) + 1):
            if group.wants_calm:
                _wait_for_calm(calm_s)
            now = load()
            say(f"{group.name}, round {number}, load {now:.2f}")
            for case in group.cases:
                _run_case(group.name, case, number, now, folder, results, say)
    return results


def _run_case(
    group: str,
    case: Case,
    number: int,
    now: float,
    folder: Path,
    results: Results,
    say: Callable[[str], None],
) -> None:
    if case.name in results.failures:
        return
    try:
        values = case.run(folder)
    except (QueueError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        results.failures[case.name] = str(error)
        say(f"  {case.name}: {error}")
        return
    found = Found(group=group, case=case.name, round=number, load=now, values=values)
    results.found.append(found)
    shown = "  ".join(f"{name} {value:,.4g}" for name, value in list(values.items())[:4])
    say(f"  {case.name}: {shown}")


def _wait_for_calm(seconds: float) -> None:
    """Returns when the load has fallen to where percentiles count, or after so long."""
    deadline = time.monotonic() + seconds
    while load() >= LOAD_MAX and time.monotonic() < deadline:
        time.sleep(CALM_LOOK_SECONDS)
