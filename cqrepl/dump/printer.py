"""Standard output and standard error of `wire-dump`.

The reader of the output may stop at any time: then the command ends quietly. On a terminal, control
characters of the payloads are escaped, and those of file names everywhere.
"""

import io
import sys
from typing import Final

import click

from cqrepl.console import exitcodes, output
from cqrepl.dump.entries import Entry, Remark
from wire.text.terminal import one_line

STDIN: Final = "-"


class Printer:
    """Prints documents in the form that was asked for, and keeps the highest exit code."""

    def __init__(self, *, as_json: bool, with_hex: bool) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        self.code = exitcodes.OK
        self.file: str | None = None  # named in each line of JSON
        self._as_json = as_json
        self._with_hex = with_hex

    def begin_input(self, path: str, *, is_first: bool) -> None:
        """Names one of several inputs."""
        if self._as_json:
            self.file = path
        else:
            self.write(f"{'' if is_first else chr(10)}==> {shown_name(path)} <==\n")

    def show(self, entry: Entry) -> None:
        """Prints a document."""
        if self._as_json:
            from cqrepl.dump.json_lines import json_line

            self.write(json_line(entry, file=self.file, with_hex=self._with_hex))
            return
        self.write(entry.text())
        if self._with_hex and not entry.document.is_last:
            self.write(entry.document.hex_text())

    def write(self, text: str) -> None:
        """Prints text as it is, or safe for a terminal."""
        output.write_text(text)

    def complain(self, path: str, reason: str, code: int) -> None:
        """One line on standard error, behind everything that was printed."""
        self.flush()
        self.code = max(self.code, code)
        click.echo(f"wire-dump: {shown_name(path)}: {one_line(reason)}", err=True)

    def remark(self, path: str, remark: Remark) -> None:
        """A remark about an input."""
        self.complain(path, remark.text, exitcodes.DAMAGED if remark.is_damage else exitcodes.OK)

    def flush(self) -> None:
        """Gives out what is buffered."""
        output.flush()


def shown_name(path: str) -> str:
    """A file name on one line, also one that holds line feeds."""
    return "standard input" if path == STDIN else one_line(path)
