"""`make bench`: this project and its peers in turn, and a verdict for each goal.

python -m tests.bench.compare [--rounds 5] [--only ROW]... [--quick] [--out DIR] [--write-docs]
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from cqrepl.bench.report import scratch
from tests.bench.compare.cases import groups
from tests.bench.compare.report import text, write_docs, write_files, write_short
from tests.bench.compare.rows import ROWS, Row, judge
from tests.bench.compare.running import Group, run_groups

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", action="append", default=[], metavar="ROW",
        help="rows whose key begins so; may be given again. Known: "
        + " ".join(row.key for row in ROWS),
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one small round, to try it")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), metavar="DIR",
                        help="for compare.json and compare.csv")  # fmt: skip
    parser.add_argument("--calm", type=float, default=120, metavar="SECONDS",
                        help="longest wait for a low load before percentiles")  # fmt: skip
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="put the table into docs/performance.md and README.md",
    )
    options = parser.parse_args()
    if options.write_docs and (options.quick or options.only):
        parser.error("--write-docs goes with neither --quick nor --only: the table is whole")
    return options


def chosen_rows(only: list[str]) -> list[Row]:
    """The rows that were asked for; all when none was."""
    return [row for row in ROWS if not only or row.key.startswith(tuple(only))]


def needed_groups(rows: list[Row], *, quick: bool) -> list[Group]:
    """Groups with no more cases than the rows need."""
    names = {name for row in rows for name in row.cases}
    found = []
    for group in groups(quick=quick):
        cases = [case for case in group.cases if case.name in names]
        if cases:
            found.append(replace(group, cases=cases))
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    options = parsed()
    rows = chosen_rows(options.only)
    if not rows:
        say(f"no row begins with {' or '.join(options.only)}")
        return 2
    rounds, calm_s = (1, 0.0) if options.quick else (options.rounds, options.calm)
    with scratch() as folder:
        results = run_groups(needed_groups(rows, quick=options.quick), folder, rounds, calm_s, say)
    judged = [judge(row, results) for row in rows]
    print(text(judged, results))
    write_files(options.out, judged, results)
    if options.write_docs:
        write_docs(PAGE, judged, results)
        write_short(README, judged)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
