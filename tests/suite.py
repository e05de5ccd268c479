"""Runs the phases of one tier of the tests, one after the other, and tells at the end what failed.

    python -P tests/suite.py test|all|packages|long
    python -P tests/suite.py total TIER...

`test` and `all` have no test in common, and together they are all that a change has to pass. A
test lands in one of them by its path: see `QUICK`, `SLOW` and `SMOKES`. What bears the mark `long`
is in `long` alone.

A phase that fails keeps no other from running. At the end there is a line for each phase, and for
each file of tests that took long there (two run at a time), what failed with its causes, the
commands that repeat it, and a line that counts tests, and each phase that is no run of tests as
one. The exit code is 1 when anything failed. `total` adds up what the tiers have counted; one that
did not end counts as failed.

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
SUMMARIES: Final = ROOT / "build" / "summaries"
WORTH_SECONDS: Final = 20.0  # of the tests of one file, to be named
BIN: Final = Path(sys.executable).parent
# a change is judged by the same examples as the one before; `make test-long` takes others
SEEDED: Final = "--hypothesis-seed=1"
# three processes on two cores: half of what tests take is waiting, for disks and other processes
SPREAD: Final = ("-n", "3", "--dist", "worksteal")
SHORT: Final = ("-m", "not long", SEEDED, *SPREAD)

# `test` takes all of these folders
QUICK: Final = (
    "tests/unit",
    "tests/net",
    "tests/planted",
    "tests/test_crate_layers.py",
    "tests/test_docs.py",
    "tests/test_tidy.py",
)
# but for these files, each of which takes long or starts processes
SLOW: Final = (
    "tests/net/test_audits.py",
    "tests/net/test_back_copy_fence.py",
    "tests/net/test_disk_full.py",
    "tests/net/test_dump_proxy.py",
    "tests/net/test_elections.py",
    "tests/net/test_epochs.py",
    "tests/net/test_grid_postgres.py",
    "tests/net/test_hand.py",
    "tests/net/test_kept_lanes.py",
    "tests/net/test_late_cycles.py",
    "tests/net/test_late_queues.py",
    "tests/net/test_left_sinks.py",
    "tests/net/test_looks.py",
    "tests/net/test_on_divergence.py",
    "tests/net/test_pauses.py",
    "tests/net/test_promotion.py",
    "tests/net/test_promotion_meanwhile.py",
    "tests/net/test_promotion_schedules.py",
    "tests/net/test_promotion_torn.py",
    "tests/net/test_relay.py",
    "tests/net/test_resting.py",
    "tests/net/test_schedules.py",
    "tests/net/test_source_pauses.py",
    "tests/net/test_stalled_peers.py",
    "tests/net/test_whose_copy.py",
    "tests/net/test_word_watch.py",
)
# and of everything else it takes these: a little of the laboratory, of processes, Java and Spark
SMOKES: Final = (
    "tests/laboratory/test_seeds.py::test_every_promise_is_kept",
    "tests/commands/test_demo.py::test_demo_says_identical",
    "tests/commands/test_source_and_sink.py::test_until_caught_up_and_once",
    "tests/interop/test_network_java.py::test_stream",
    "tests/interop/test_queue_java.py::test_java_and_we_take_turns_on_one_queue",
    "tests/spark/test_read.py::test_splits_of_one_queue_are_read_each_once",
)
# coverage is taken where it says most. It triples the time, and finds no fault: `long` has it
COVERED: Final = ("tests/unit", "tests/net")
# apart: the system counts what a process had grown to when it started the fuzzer as the fuzzer's
FUZZED: Final = "tests/fuzz"
# beside nothing else: it measures how long processes wait for each other, and Java gives up after
# 15 s; its processes are forked from one that has run no other test
ALONE: Final = "tests/interop/test_concurrent_writers.py"
# kernel tests take each kernel anyway; these once more, as they lay files and frames with it
QUICK_ON_BOTH: Final = ("tests/unit/queue", "tests/unit/protocol")
# the rest of tests/net is in `long`: most of it is decided above the kernel
ON_BOTH: Final = (
    "tests/net/test_back_copy.py",
    "tests/net/test_levels.py",
    "tests/net/test_excerpt_path.py",
    "tests/net/test_lineage.py",
    "tests/net/test_live.py",
    "tests/net/test_live_acks.py",
    "tests/net/test_live_pumps.py",
    "tests/net/test_marks_above_ends.py",
    "tests/net/test_passed_on.py",
    "tests/net/test_loopback.py",
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
        """The command line that a user types to run it again."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        program, *rest = self.words
        return " ".join([*settings, os.path.relpath(program) if "/" in program else program, *rest])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a phase; `again` is empty when nothing failed, `causes` are lines for people.
    The files that took longest come with their seconds."""

    phase: Phase
    seconds: float
    passed: int
    failed: int
    again: str
    causes: Sequence[str]
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


def without(names: Sequence[str]) -> list[str]:
    """Options of pytest that leave these tests out."""
    return [f"--deselect={name}" for name in names]


def rest() -> list[str]:
    """Everything in tests/ that neither `test` nor a phase of its own takes whole."""
    taken = [ROOT / name for name in (*QUICK, FUZZED)]
    beside = [path for path in (ROOT / "tests").iterdir() if path not in taken]
    holding = [path for path in beside if path.is_dir() and any(path.rglob("test_*.py"))]
    files = [path for path in beside if path.match("test_*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in (*holding, *files))


def test_phases() -> list[Phase]:
    """The phases that a change has to pass before any other: ten minutes."""
    phases = [
        *(made(target) for target in ("lint", "types", "layers")),
        tests("quick tests", *SHORT, *without(SLOW), *QUICK, *SMOKES),
    ]
    if has_native():
        phases.append(tests("the plain kernel", *SHORT, *QUICK_ON_BOTH, CQREPL_KERNEL="python"))
    return phases


def all_phases() -> list[Phase]:
    """All else that a change has to pass."""
    phases = [
        made("native"),
        tests("fuzzing", *SHORT, FUZZED),
        tests("writers beside Java", "-m", "not long", SEEDED, ALONE),
        tests("everything else", *SHORT, *without((*SMOKES, ALONE)), *SLOW, *rest()),
    ]
    if has_native():
        words = (*SHORT, *without(SLOW), *ON_BOTH)
        phases.append(tests("the plain kernel", *words, CQREPL_KERNEL="python"))
    return phases


def long_phases() -> list[Phase]:
    """With the long runs, and examples that no run before had."""
    more = {
        "CQREPL_CONCURRENT_COUNT": "50000",
        "CQREPL_CONCURRENT_KILL_S": "30",
        "CQREPL_CRASH_SHARE": "1",
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
    return [
        tests("everything", "--timeout", "3600", **more),
        tests("unit and net", *SHORT, "--cov", "--cov-report=", *COVERED),
        Phase(name="coverage", words=(sys.executable, "-P", "tests/coverage_floor.py")),
        tests(
            "the plain kernel",
            *SPREAD,
            *QUICK_ON_BOTH,
            *ON_BOTH,
            "tests/net",
            CQREPL_KERNEL="python",
        ),
        Phase(name="planted mistakes", words=(sys.executable, "-m", "tests.planted")),
        made("fuzz-native", "SECONDS=600"),
    ]


def package_phases() -> list[Phase]:
    """The phases that fuzz the crate and try the built packages, as on a machine of their own."""
    return [made("fuzz-native", "SECONDS=24"), made("wheel")]


TIERS: Final = {
    "test": test_phases,
    "all": all_phases,
    "packages": package_phases,
    "long": long_phases,
}


def has_native() -> bool:
    """True when the native kernel is built here."""
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
    passed, failed, again, causes, slowest = 0, 0, "", [], []
    if TALLY.exists():
        tally = json.loads(TALLY.read_text())
        passed, failed, again = tally["passed"], tally["failed"], tally["again"]
        causes, slowest = tally["causes"], tally["slowest"]
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
        causes=causes,
        slowest=slowest,
    )


def run_tier(tier: str) -> int:
    """Runs all phases of a tier; the exit code."""
    summary = SUMMARIES / f"{tier}.json"
    summary.unlink(missing_ok=True)
    outcomes = [run(phase) for phase in TIERS[tier]()]
    print()
    for outcome in outcomes:
        print("\n".join([outcome.line(), *outcome.slow_lines()]))
    commands = [outcome.again for outcome in outcomes if outcome.failed]
    if commands:
        print("\nWhat failed:\n")
        print("\n".join(line for outcome in outcomes for line in outcome.causes))
        print("\nTo repeat what failed:\n")
        print("\n".join(commands))
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    summary.parent.mkdir(parents=True, exist_ok=True)
    summary.write_text(json.dumps({"passed": passed, "failed": failed}))
    print(f"\nof this tier: {passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def total(tiers: Sequence[str]) -> int:
    """Adds up what tiers have counted; the exit code."""
    passed = failed = 0
    for tier in tiers:
        summary = SUMMARIES / f"{tier}.json"
        counted = {"passed": 0, "failed": 1}
        if summary.exists():
            counted = json.loads(summary.read_text())
        passed, failed = passed + counted["passed"], failed + counted["failed"]
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def main() -> int:
    """The exit code of what the words on the command line ask for."""
    match sys.argv[1:]:
        case ["total", *tiers]:
            return total(tiers)
        case [tier] if tier in TIERS:
            return run_tier(tier)
    print(f"expected total TIER..., or one of {', '.join(TIERS)}, got {sys.argv[1:]}")
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
