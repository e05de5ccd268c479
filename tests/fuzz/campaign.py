"""Runs targets, each for its share of the time, and tells what came of each.

Theory of operation. libFuzzer ends its process, so every target has one of its own, one after the
other. Time, memory and the length of an input have limits; what passes one is a finding like any
error. The input of a finding is saved under `build/fuzz`, which git does not know.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SAVED: Final = ROOT / "build" / "fuzz"
INPUT_SECONDS: Final = 10  # for one input; the slowest take a tenth of a second
MEMORY_MIB: Final = 512
_START_SECONDS: Final = 300  # for imports and the corpus, on a slow machine
_SAVED_LINE: Final = re.compile(r"Test unit written to (\S+)")
_RUNS: Final = re.compile(r"stat::number_of_executed_units:\s+([0-9]+)")
_RATE: Final = re.compile(r"stat::average_exec_per_sec:\s+([0-9]+)")
_PROGRESS: Final = re.compile(r"^#[0-9]+\s+\w+\s+cov: ([0-9]+) ft: ([0-9]+) corp: ([0-9]+)/", re.M)
_NOISE: Final = re.compile(r"^(?:INFO: |#[0-9]+\s|stat::|NEW_FUNC|\s*NEW_FUNC).*\n", re.M)
_TOLD_LINES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An input on which a target failed; `saved` is None when it was not about an input."""

    saved: Path | None
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of fuzzing one target."""

    name: str
    executions: int
    per_second: int
    features: int
    corpus: int
    finding: Finding | None

    def line(self) -> str:
        """One line for people."""
        found = "no finding" if self.finding is None else "FINDING"
        return (
            f"{self.name:18} {self.executions:9} executions {self.per_second:6}/s "
            f"{self.features:6} features {self.corpus:5} in corpus  {found}"
        )


def run_all(names: Sequence[str], seconds: float, *, seed: int = 0) -> Iterator[Outcome]:
    """The result of each target; together they take this long, and one to two seconds each to
    start.

    Args:
        seed: of the random numbers; 0 for new ones each time.
    """
    for name in names:
        yield run_target(name, seconds / len(names), seed=seed)


def run_target(
    name: str,
    seconds: float,
    *,
    seed: int = 0,
    saved: Path = SAVED,
    input_seconds: int = INPUT_SECONDS,
    every: int = 1,
) -> Outcome:
    """Fuzzes one target, and ends early at a finding.

    Args:
        every: it starts from one seed in so many, and runs those first, whatever time there is.
    """
    saved.mkdir(parents=True, exist_ok=True)
    whole_seconds = max(1, round(seconds))  # libFuzzer knows no parts of one
    flags = [
        f"-seed={seed}",
        f"-max_total_time={whole_seconds}",
        f"-timeout={input_seconds}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={saved}/{name}-",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        command = [sys.executable, "-m", "tests.fuzz.child", name, folder, str(every), *flags]
        timeout = whole_seconds + input_seconds + _START_SECONDS
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": folder},  # so that nothing is left of what targets make
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        )
    return _outcome(name, ended.returncode, ended.stdout.decode(errors="replace"))


def _outcome(name: str, code: int, said: str) -> Outcome:
    progress = _PROGRESS.findall(said)
    _, features, kept = progress[-1] if progress else ("0", "0", "0")
    return Outcome(
        name=name,
        executions=_number(_RUNS, said),
        per_second=_number(_RATE, said),
        features=int(features),
        corpus=int(kept),
        finding=None if code == 0 else _finding(code, said),
    )


def _number(pattern: re.Pattern[str], said: str) -> int:
    found = pattern.search(said)
    return 0 if found is None else int(found[1])


def _finding(code: int, said: str) -> Finding:
    saved = _SAVED_LINE.search(said)
    told = _NOISE.sub("", said).strip().splitlines()[-_TOLD_LINES:]
    return Finding(
        saved=None if saved is None else Path(saved[1]),
        told="\n".join([f"ended with {code}", *told]),
    )
