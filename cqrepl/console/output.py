"""Standard output of commands that print data.

The reader of the output may stop at any time: then the command ends quietly. Control characters of
payloads never reach a terminal.
"""

import json
import os
import sys
from collections.abc import Mapping

from cqrepl.console import exitcodes
from wire.text.terminal import one_line, terminal_safe


class OutputError(Exception):
    """Standard output takes no more."""


def write_text(text: str) -> None:
    """Writes text as it is, or safe for a terminal.

    Raises:
        OutputError: nothing more can be written.
    """
    if sys.stdout is None:  # the shell's `>&-`
        raise OutputError
    try:
        sys.stdout.write(terminal_safe(text) if sys.stdout.isatty() else text)
    except OSError as error:
        raise OutputError from error


def write_error(text: str) -> None:
    """Says one line on standard error, safe for a terminal."""
    print(one_line(text), file=sys.stderr)


def json_line(fields: Mapping[str, object]) -> str:
    """A line for programs."""
    return json.dumps(fields, separators=(",", ":")) + "\n"


def write_bytes(data: bytes | memoryview) -> None:
    """Writes bytes as they are.

    Raises:
        OutputError: nothing more can be written.
    """
    if sys.stdout is None:
        raise OutputError
    try:
        sys.stdout.buffer.write(data)
    except OSError as error:
        raise OutputError from error


def flush() -> None:
    """Gives out what is buffered.

    Raises:
        OutputError: nothing more can be written.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise OutputError from error


def is_terminal() -> bool:
    """True when people read standard output as it comes."""
    return sys.stdout is not None and sys.stdout.isatty()


def end_of_output(name: str, error: OutputError) -> int:
    """The exit code; keeps the interpreter from a last flush of its own, and says why unless the
    reader just left."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    cause = error.__cause__
    if cause is None or isinstance(cause, BrokenPipeError):
        return exitcodes.OK
    write_error(f"{name}: standard output: {os.strerror(getattr(cause, 'errno', 0))}")
    return exitcodes.USAGE
