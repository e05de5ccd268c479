"""Entry points of the commands `cqrepl`, which is `python -m cqrepl`, and `wire-dump`.

What takes time to load is imported inside, so that signals end them in order from the first moment
on.
"""

import sys
from collections.abc import Callable

from cqrepl.console.endings import end_at_once, hold_hangup
from cqrepl.console.exitcodes import INTERRUPTED, OK, USAGE
from cqrepl.console.standardstreams import (
    escape_what_is_not_encoded,
    fill_closed_streams,
)

_RUN_UNTIL_TOLD = ("source", "sink", "run")  # what they have done when they are told is all of it
_WORDS_ONLY = frozenset({"-h", "--help", "--version"})  # written by click, and by nothing of ours


def main() -> None:
    """Runs the command line of `cqrepl`."""
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "run":
        hold_hangup()
    end_at_once(OK if verb in _RUN_UNTIL_TOLD else INTERRUPTED)

    def run() -> None:
        from cqrepl.cli.main import cli

        cli(prog_name="cqrepl")

    _guarded("cqrepl", run)


def wire_dump() -> None:
    """Runs the command line of `wire-dump`."""
    end_at_once(INTERRUPTED)

    def run() -> None:
        from cqrepl.cli.wiredump import main as dump

        dump(prog_name="wire-dump")

    _guarded("wire-dump", run)


def _guarded(name: str, run: Callable[[], None]) -> None:
    fill_closed_streams()
    escape_what_is_not_encoded()
    try:
        _with_kernel(name, run)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _with_kernel(name: str, run: Callable[[], None]) -> None:
    from cqrepl.kernel.errors import KernelUnavailable

    try:
        run()
    except KernelUnavailable as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(USAGE)
    except OSError as error:
        if _WORDS_ONLY.isdisjoint(sys.argv):
            raise
        print(f"{name}: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
