"""`wire-dump FILE...`: prints the documents of store files and captured streams.

Exit codes: 0; 2 for a wrong call or an input that cannot be read; 4 for an input that is damaged,
truncated or of another kind, after everything before the damage was printed. With several inputs,
the highest of their codes.

Whoever reads the output may stop at any time: then the command ends quietly. On a terminal, control
characters of the payloads are escaped, and those of file names everywhere.
"""

import io
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO, Final

import click

from cqrepl.dump.files import read_documents
from wire.errors import WireError
from wire.text import terminal_safe

EXIT_OK: Final = 0
EXIT_UNREADABLE: Final = 2
EXIT_DAMAGED: Final = 4
_STDIN: Final = "-"


class _OutputError(Exception):
    """Standard output takes no more."""


@click.command(name="wire-dump")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def main(files: tuple[str, ...]) -> None:
    """Print the documents of queue files, table stores and captured streams.

    Each FILE is a .cq4 or .cq4t file or a stream of framed documents, told apart by its content;
    - is standard input.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    code = EXIT_OK
    try:
        for number, path in enumerate(files):
            if len(files) > 1:
                _print(f"{chr(10) if number else ''}==> {_shown(path)} <==\n")
            code = max(code, _dump(path))
        _flush()
    except _OutputError as error:
        code = _end_of_output(error)
    sys.exit(code)


def _dump(path: str) -> int:
    """Prints one input and gives its exit code."""
    try:
        with _open(path) as file:
            for document in read_documents(file):
                _print(document.text())
    except WireError as error:
        return _complain(path, str(error), EXIT_DAMAGED)
    except IsADirectoryError:
        return _complain(path, "a file was expected, a directory came", EXIT_UNREADABLE)
    except FileNotFoundError:
        return _complain(path, "a file was expected, none is there", EXIT_UNREADABLE)
    except OSError as error:
        reason = f"a readable file was expected: {error.strerror}"
        return _complain(path, reason, EXIT_UNREADABLE)
    return EXIT_OK


def _open(path: str) -> AbstractContextManager[BinaryIO]:
    if path != _STDIN:
        return open(path, "rb")
    if sys.stdin is None:
        raise FileNotFoundError(path)  # the shell's `<&-`
    return nullcontext(sys.stdin.buffer)


def _shown(path: str) -> str:
    """A file name on one line, whatever it holds."""
    return "standard input" if path == _STDIN else terminal_safe(path).replace("\n", "\\x0A")


def _complain(path: str, reason: str, code: int) -> int:
    _flush()  # what was printed before the damage comes before the complaint
    click.echo(f"wire-dump: {_shown(path)}: {reason}", err=True)
    return code


def _print(text: str) -> None:
    if sys.stdout is None:  # the shell's `>&-`
        raise _OutputError
    try:
        sys.stdout.write(terminal_safe(text) if sys.stdout.isatty() else text)
    except OSError as error:
        raise _OutputError from error


def _flush() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise _OutputError from error


def _end_of_output(error: _OutputError) -> int:
    """Keeps the interpreter from a last flush of its own; says why unless the reader just left."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    cause = error.__cause__
    if cause is None or isinstance(cause, BrokenPipeError):
        return EXIT_OK
    click.echo(f"wire-dump: standard output: {os.strerror(getattr(cause, 'errno', 0))}", err=True)
    return EXIT_UNREADABLE
