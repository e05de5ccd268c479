"""`python -m wire`: prints the documents on standard input and does nothing else.

The text is that of `wire.dump_text`. On a terminal, control characters are escaped.
"""

import argparse
import os
import sys

from wire.text.print_documents import dump_text
from wire.text.terminal import terminal_safe


def main() -> int:
    """Reads standard input, prints, and gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m wire", description="Prints the binary wire documents on standard input."
    )
    parser.add_argument(
        "--padding",
        action="store_true",
        help="documents start at multiples of 4, as in a queue file",
    )
    arguments = parser.parse_args()
    text = dump_text(sys.stdin.buffer.read(), padding=arguments.padding)
    if sys.stdout.isatty():
        text = terminal_safe(text)
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # the reading program has closed the pipe: the interpreter must not flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
