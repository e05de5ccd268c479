"""Faults put into the crate on purpose, in a copy that is built with its own target: the laboratory
finds each."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan
from tests.support.schedules import schedule

ROOT = Path(__file__).parents[2]
BUILD_SECONDS = 1200
SWITCH = "CQREPL_PLANTED"  # names the fault that a built crate shows
_JUDGED = "from tests.laboratory.test_planted_crate import *; print(check_of({}))"


@dataclass(frozen=True, kw_only=True)
class InCrate:
    """One fault.

    Args:
        name: of the fault.
        file: below the sources of the crate.
        text: stands there exactly once.
        wrong: stands there instead; `PLANTED` in it is true while this fault is shown.
        check: the laboratory's, which finds it.
    """

    name: str
    file: str
    text: str
    wrong: str
    check: str


IN_CRATE = (
    InCrate(
        name="runs-joined-over-a-gap",
        file="live/sink_lane.rs",
        text="if next.index != head.index + runs.count as i64 {",
        wrong="if next.index != head.index + runs.count as i64 && !PLANTED {",
        check="altered",
    ),
)


def frozen_sink() -> RunPlan:
    """Excerpts of several cycles wait in a socket, and are taken at once."""
    faults = (
        Fault(3.623, Kind.STALL, 2, SOURCE, 1.5),
        Fault(6.340, Kind.FREEZE, 2, SOURCE, 1.5),
        Fault(8.901, Kind.FREEZE, 2, SOURCE, 2.5),
    )
    return schedule(*faults, seed=5, rate=60.0, roll_cycle="TEST_SECONDLY")


def check_of(plan: RunPlan) -> str | None:
    """The check that a run breaks."""
    return run(plan).check


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with a crate that has all of the faults, each behind a switch."""
    if shutil.which("cargo") is None:
        pytest.skip("expected cargo, to build the crate with; it is not here")
    tree = tmp_path_factory.mktemp("crate")
    for name in ("cqrepl", "wire", "tests", "native"):
        ignored = shutil.ignore_patterns("__pycache__", "target")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for each in IN_CRATE:
        path = tree / "native" / "kernel" / "src" / each.file
        source = path.read_text()
        assert source.count(each.text) == 1, each.name
        shown = f'std::env::var_os("{SWITCH}").is_some_and(|name| name == "{each.name}")'
        path.write_text(source.replace(each.text, each.wrong.replace("PLANTED", shown)))
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "-p", "cqrepl-kernel"],
        cwd=tree / "native",
        env={**os.environ, "CARGO_TARGET_DIR": str(tree / "target")},
        check=True,
        capture_output=True,
        timeout=BUILD_SECONDS,
    )
    [kernel] = (tree / "cqrepl").glob("_native*.so")
    shutil.copyfile(tree / "target" / "release" / "libcqrepl_kernel.so", kernel)
    return tree


def broken(tree: Path, name: str, plan: str) -> str:
    """The check that a run with this fault breaks, in a process of its own; "None" for none."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _JUDGED.format(plan)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), SWITCH: name, "CQREPL_KERNEL": "native"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.long
@pytest.mark.timeout(BUILD_SECONDS + 600)
@pytest.mark.parametrize("each", IN_CRATE, ids=lambda each: each.name)
def test_it_is_found(built: Path, each: InCrate) -> None:
    assert broken(built, "none", "frozen_sink()") == "None", "the crate itself keeps its promises"
    assert broken(built, each.name, "frozen_sink()") == each.check
