"""Entry point of the command `cqrepl` and of `python -m cqrepl`."""

import sys

from cqrepl.cli.main import cli
from cqrepl.console.exitcodes import USAGE
from cqrepl.kernel.errors import KernelUnavailable


def main() -> None:
    """Runs the command line."""
    try:
        cli(prog_name="cqrepl")
    except KernelUnavailable as error:
        print(f"cqrepl: {error}", file=sys.stderr)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
