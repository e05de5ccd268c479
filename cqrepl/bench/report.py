"""Rounds, one case after the other in each, and what is said of them in the end.

The cases take turns (A B C, A B C, ...), so that what changes on the machine meanwhile changes for
all of them.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.bench.machine import facts_text, load, machine_facts
from cqrepl.bench.sample import Sample, Summary, summaries
from cqrepl.console import output
from cqrepl.console.units import format_size, plural

Case = Callable[[Path], Sequence[Sample]]
_VERSION: Final = 1
_LONG: Final = 999.5  # from here on three digits are not enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The sample that one round gave, and the load before it."""

    number: int
    load: float
    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """All rounds of a benchmark."""

    what: str
    loads: tuple[float, float]
    rounds: list[Round]

    @property
    def samples(self) -> list[Sample]:
        """The samples of all rounds, in order."""
        return [each.sample for each in self.rounds]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone, with all that is in it, however the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="cqrepl-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_rounds(what: str, cases: Sequence[Case], rounds: int) -> BenchRun:
    """Runs every case once in each round, each in an empty folder of its own."""
    load_before = load()
    found: list[Round] = []
    for number in range(1, rounds + 1):
        for case in cases:
            with scratch() as folder:
                now = load()
                for sample in case(folder):
                    found.append(Round(number=number, load=now, sample=sample))
                    _say(f"round {number} of {rounds}: {_line(sample)}")
    return BenchRun(what=what, loads=(load_before, load()), rounds=found)


def write_run(run: BenchRun, options: dict[str, object], *, as_json: bool) -> None:
    """Prints a run: a table of medians, or one line of JSON with all rounds."""
    output.write_text(json_text(run, options) if as_json else text(run))
    output.flush()


def json_text(run: BenchRun, options: dict[str, object]) -> str:
    """The run as one line of JSON."""
    machine = machine_facts() | {"load_before": run.loads[0], "load_after": run.loads[1]}
    rounds = [
        {"round": each.number, "load": each.load, **_named(each.sample), **each.sample.values}
        for each in run.rounds
    ]
    medians = [
        {
            **_named(each),
            "medians": each.medians,
            "least": each.least,
            "greatest": each.greatest,
        }
        for each in summaries(run.samples)
    ]
    fields = {"v": _VERSION, "bench": run.what, "machine": machine, "options": options}
    return json.dumps({**fields, "rounds": rounds, "medians": medians}) + "\n"


def text(run: BenchRun) -> str:
    """The run for people: facts, and a table with a line for each case."""
    found = summaries(run.samples)
    rounds = max(each.number for each in run.rounds)
    head = (
        f"{facts_text(machine_facts())}\n"
        f"{run.what}, medians of {plural(rounds, 'round')}, "
        f"load {run.loads[0]:.1f} before and {run.loads[1]:.1f} after\n\n"
    )
    names = list(found[0].medians)
    rows = [["size", "case", *(heading(name) for name in names)]]
    rows += [
        [format_size(each.size), each.case, *(number(each.medians[name]) for name in names)]
        for each in found
    ]
    return head + table(rows)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be; all but the second, which holds words, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place == 1 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def heading(name: str) -> str:
    """A value's name for people: what it is, and its unit.

    >>> heading("excerpts_per_s"), heading("p99.9_us"), heading("sink_cpu_ns")
    ('excerpts/s', 'p99.9 us', 'sink cpu ns')
    """
    for unit, written in (("mb/", "MB/"), ("mib", "MiB"), ("gib", "GiB"), ("_", " ")):
        name = name.replace("_per_", "/").replace(unit, written)
    return name


def number(value: float) -> str:
    """A number with three digits that count, or more where it is long anyway.

    >>> number(1234567.8), number(12.345), number(0.01234), number(0.0)
    ('1,234,568', '12.3', '0.0123', '0')
    """
    return f"{value:,.0f}" if abs(value) >= _LONG or value == 0 else f"{value:.3g}"


def _named(of: Sample | Summary) -> dict[str, object]:
    return {"case": of.case, "size": of.size}


def _line(sample: Sample) -> str:
    name, value = next(iter(sample.values.items()))
    return f"{format_size(sample.size)}, {sample.case}: {number(value)} {heading(name)}"


def _say(line: str) -> None:
    """Tells people who wait; programs that read the output are not bothered."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"cqrepl bench: {line}", file=sys.stderr, flush=True)
