"""`python -m tests.fuzz`: fuzzes all targets or one, or runs a target on one saved input.

Exit codes: 0 nothing was found; 1 something was, and standard error says how to see it again; 2 a
wrong call.
"""

import argparse
import sys
from pathlib import Path

from tests.fuzz.campaign import Finding, run_all
from tests.fuzz.families import NAMES, load

SECONDS = 600


def main() -> int:
    """Parses, runs, and gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes the parsers.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all targets together")
    parser.add_argument("--target", metavar="NAME", help=f"only this one: {', '.join(NAMES)}")
    parser.add_argument("--replay", metavar="FILE", type=Path, help="run a target on this input")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    arguments = parser.parse_args()
    if arguments.target is not None:
        try:
            target = load(arguments.target)
        except KeyError:
            parser.error(f"a target was expected, {arguments.target!r} came")
        if arguments.replay is not None:
            target.run(arguments.replay.read_bytes())
            return 0
    elif arguments.replay is not None:
        parser.error("--replay goes with --target")
    names = NAMES if arguments.target is None else (arguments.target,)
    code = 0
    for outcome in run_all(names, arguments.seconds, seed=arguments.seed):
        print(outcome.line(), flush=True)
        if outcome.finding is not None:
            complain(outcome.name, outcome.finding)
            code = 1
    return code


def complain(name: str, finding: Finding) -> None:
    """Tells what was found and how to see it again."""
    print(finding.told, file=sys.stderr)
    if finding.saved is not None:
        again = f"python -m tests.fuzz --target {name} --replay {finding.saved}"
        print(f"saved as {finding.saved}; to see it again: {again}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
