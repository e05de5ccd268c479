"""The search for a shorter run shows what it has, and can be stopped; no run leaves its disks."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cqrepl.testing import shortener
from cqrepl.testing.experiment import NOTHING
from cqrepl.testing.laboratory import Outcome, run_experiment
from cqrepl.testing.plan import RunPlan
from cqrepl.testing.rundisks import LEFT_AFTER_SECONDS, PREFIX, folder_of_a_run
from tests.laboratory.test_planted import acknowledged_before_it_is_stored

FAILS = (1, 30.0)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    acknowledged_before_it_is_stored(monkeypatch)
    seed, seconds = FAILS
    plan = RunPlan.of(seed, seconds, both_ways=False, rare=False)
    return run_experiment(plan, NOTHING)


def test_it_shows_each_run_that_is_shorter(failing: Outcome) -> None:
    shown: list[Outcome] = []
    best = shortener.shortened(failing, 12, shown.append)
    assert shown
    assert shown[-1] is best
    assert {each.check for each in shown} == {failing.check}
    counts = [len(each.plan.faults) for each in shown]
    assert counts == sorted(counts, reverse=True)


def test_it_ends_with_the_best_when_it_is_stopped(
    failing: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Outcome] = []

    def show(best: Outcome) -> None:
        shown.append(best)

        def stopped(*_: object, **__: object) -> Outcome:
            raise KeyboardInterrupt

        monkeypatch.setattr(shortener, "run_experiment", stopped)

    assert shortener.shortened(failing, 12, show) is shown[0]
    assert len(shown) == 1


def test_what_a_killed_run_has_left_goes_with_the_next(tmp_path: Path) -> None:
    left, young, locked = (tmp_path / f"{PREFIX}{name}" for name in ("left", "young", "locked"))
    long_ago = time.time() - LEFT_AFTER_SECONDS - 60
    for folder in (left, young, locked):
        (folder / "host1").mkdir(parents=True)
        os.utime(folder, (long_ago, long_ago) if folder is not young else None)
    lock = os.open(locked, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with folder_of_a_run(tmp_path) as own:
            assert own.parent == tmp_path
            assert not left.exists()
            assert young.exists()
            assert locked.exists()
    finally:
        os.close(lock)
    assert not own.exists()


def test_a_run_that_is_told_to_end_leaves_no_disks() -> None:
    words = [sys.executable, "-P", "-m", "cqrepl.testing", "--seed", "1", "--seconds", "100000"]
    process = subprocess.Popen([*words, "--whole"], stdout=subprocess.DEVNULL)
    found: list[Path] = []
    until = time.monotonic() + 60
    while not found and time.monotonic() < until:
        link = Path(f"/proc/{process.pid}/cwd").resolve()
        found = [link] if link.name.startswith(PREFIX) else []
        time.sleep(0.05)
    assert found
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert not found[0].exists()
