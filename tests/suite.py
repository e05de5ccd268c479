"""Runs the phases of `make test`, one after the other, and tells at the end what failed.

    python -P tests/suite.py test|long|ci

A phase that fails keeps no other from running. At the end there is a line for each phase, and for
each file of tests that took long there (two run at a time), the commands that repeat what failed,
and a line `N passed, N failed` that counts tests, and each phase that is no run of tests as one.
The exit code is 1 when anything failed.

A run of tests writes what it counted to the file that CQREPL_TALLY names (see `conftest`).
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TALLY: Final = ROOT / "build" / "tally.json"
SUMMARY: Final = ROOT / "build" / "summary.txt"
WORTH_SECONDS: Final = 20.0  # of the tests of one file, to be named
BIN: Final = Path(sys.executable).parent
# a change is judged by the same examples as the one before; `make test-long` takes others
SEEDED: Final = "--hypothesis-seed=1"
# two processes: tests that wait for another process leave a core to tests that do not
SPREAD: Final = ("-n", "2", "--dist", "worksteal")
SHORT: Final = ("-m", "not long", SEEDED, *SPREAD)

# coverage is taken where it is cheap and says most; what starts processes runs without
COVERED: Final = ("tests/unit", "tests/net")
# apart: the system counts what a process had grown to when it started the fuzzer as the fuzzer's
FUZZED: Final = "tests/fuzz"
# kernel tests take each kernel anyway; these once more, as they lay files and frames with it
ON_BOTH: Final = (
    "tests/unit/queue",
    "tests/unit/protocol",
    "tests/net",
    "tests/commands/test_queue_processes.py",
    "tests/faults/test_back_copy_lock.py",
    "tests/faults/test_crash.py",
    "tests/faults/test_full_disk.py",
    "tests/faults/test_lock_holders.py",
    "tests/faults/test_power_cuts.py",
    "tests/interop/test_queue_java.py",
    "tests/interop/test_golden_replication.py",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One step: a program, and what it wants in its environment."""

    name: str
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def again(self) -> str:
        """What a user types to run it again."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        program, *rest = self.words
        return " ".join([*settings, os.path.relpath(program) if "/" in program else program, *rest])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a phase; `again` is empty when nothing failed. The files that took longest come
    with their seconds."""

    phase: Phase
    seconds: float
    passed: int
    failed: int
    again: str
    slowest: Sequence[tuple[str, float]]

    def line(self) -> str:
        """One line for people."""
        verdict = "FAILED" if self.failed else "ok"
        return f"{self.phase.name:20} {self.seconds:6.0f} s  {verdict}"

    def slow_lines(self) -> list[str]:
        """A line for each file that takes a part of the phase worth looking at."""
        return [
            f"    {name:50} {seconds:6.0f} s"
            for name, seconds in self.slowest
            if seconds >= WORTH_SECONDS
        ]


def made(target: str, *settings: str) -> Phase:
    """A target of the Makefile."""
    return Phase(name=target, words=("make", "--no-print-directory", target, *settings))


def tests(name: str, *words: str, **environment: str) -> Phase:
    """A run of pytest."""
    return Phase(name=name, words=(str(BIN / "pytest"), *words), environment=environment)


def apart() -> list[str]:
    """Everything in tests/ that has no phase of its own."""
    ours = [ROOT / name for name in (*COVERED, FUZZED)]
    beside = [path for path in (ROOT / "tests").iterdir() if path not in ours]
    holding = [path for path in beside if path.is_dir() and any(path.rglob("test_*.py"))]
    files = [path for path in beside if path.match("test_*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in (*holding, *files))


def test_phases() -> list[Phase]:
    """What a change has to pass."""
    coverage = ("--cov", "--cov-report=")
    phases = [
        *(made(target) for target in ("lint", "types", "layers", "native")),
        tests("unit and net", *SHORT, *coverage, *COVERED),
        Phase(name="coverage", words=(sys.executable, "-P", "tests/coverage_floor.py")),
        tests("fuzzing", *SHORT, FUZZED),
        tests("everything else", *SHORT, *apart()),
    ]
    if has_native():
        phases.append(tests("the plain kernel", *SHORT, *ON_BOTH, CQREPL_KERNEL="python"))
    return phases


def long_phases() -> list[Phase]:
    """With the long runs, and examples that no run before had."""
    more = {
        "CQREPL_CONCURRENT_COUNT": "50000",
        "CQREPL_CONCURRENT_KILL_S": "30",
        "CQREPL_CRASH_STATES": "4000",
        "CQREPL_DAMAGED_FILES": "2000",
        "CQREPL_DAMAGED_FILES_JAVA": "400",
        "CQREPL_FUZZ_SECONDS": "30",
        "CQREPL_KILL_CALL_EVERY": "3",
        "CQREPL_KILL_POINTS": "1000",
        "CQREPL_LABORATORY_DRAW": str(random.SystemRandom().randrange(1 << 32)),
        "CQREPL_LABORATORY_SEEDS": "600",
        "CQREPL_NETWORK_SECONDS": "1800",
        "CQREPL_STATEFUL_EXAMPLES": "10000",
    }
    return [tests("everything", "--timeout", "3600", **more), made("fuzz-native", "SECONDS=600")]


def ci_phases() -> list[Phase]:
    """What a commit has to pass on a machine of its own."""
    return [made("fuzz-native", "SECONDS=24"), made("wheel"), *test_phases()]


PHASES: Final = {"test": test_phases, "long": long_phases, "ci": ci_phases}


def has_native() -> bool:
    """Whether the native kernel is built here."""
    command = [sys.executable, "-c", "import cqrepl._native"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def run(phase: Phase) -> Outcome:
    """Runs one phase to its end."""
    print(f"\n--- {phase.name}: {phase.again}", flush=True)
    TALLY.parent.mkdir(exist_ok=True)
    TALLY.unlink(missing_ok=True)
    environment = {**os.environ, "CQREPL_TALLY": str(TALLY), **phase.environment}
    started = time.monotonic()
    code = subprocess.run(phase.words, cwd=ROOT, env=environment, check=False).returncode
    passed, failed, again, slowest = 0, 0, "", []
    if TALLY.exists():
        tally = json.loads(TALLY.read_text())
        passed, failed, again = tally["passed"], tally["failed"], tally["again"]
        slowest = tally["slowest"]
    elif code == 0:
        passed = 1
    if code and not failed:  # no test failed, and still it did
        failed = 1
    return Outcome(
        phase=phase,
        seconds=time.monotonic() - started,
        passed=passed,
        failed=failed,
        again=(again or phase.again) if failed else "",
        slowest=slowest,
    )


def main() -> int:
    """Runs all phases of a kind; the exit code."""
    outcomes = [run(phase) for phase in PHASES[sys.argv[1]]()]
    print()
    for outcome in outcomes:
        print("\n".join([outcome.line(), *outcome.slow_lines()]))
    commands = [outcome.again for outcome in outcomes if outcome.failed]
    if commands:
        print("\nTo repeat what failed:\n")
        print("\n".join(commands))
    failed = sum(outcome.failed for outcome in outcomes)
    summary = f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed"
    SUMMARY.write_text(f"{summary}\n")  # `make` speaks after a failure; .ci/run says it once more
    print(f"\n{summary}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
