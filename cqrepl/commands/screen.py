"""Redraws a block below the lines that a command says, where the output is a terminal.

A line that is said while a block is drawn takes the block's place, and the block is drawn again
below it: so both can be read. Where the output is no terminal no block is drawn, and lines go
through as they are.
"""

import os
import threading
from collections.abc import Sequence
from typing import Final, TextIO

from wire.text.terminal import one_line

_CLEAR_LINE: Final = "\r\x1b[K"
_USUAL: Final = os.terminal_size((10_000, 50))  # of what cannot tell


class Screen:
    """A stream of lines, with a block of lines that may change below them. Any thread may write.

    Args:
        stream: where it goes, as `sys.stderr`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._block: Sequence[str] = ()
        self._lock = threading.Lock()

    @property
    def is_terminal(self) -> bool:
        """True where anything can be drawn."""
        return self._stream.isatty()

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines."""
        try:
            found = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return _USUAL
        return found if found.columns and found.lines else _USUAL

    def write(self, text: str) -> int:
        """Says a line, which ends in a newline; what is drawn stays below it."""
        with self._lock:
            if self._block:
                self._stream.write(self._cleared() + text + "\n".join(self._block))
            else:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Brings out what was written."""
        self._stream.flush()

    def draw(self, lines: Sequence[str]) -> None:
        """Draws these lines in place of what was drawn before; as far as there is room."""
        columns, rows = self.size
        fitting = [one_line(line)[: columns - 1] for line in lines[: rows - 1]]
        with self._lock:
            self._stream.write(self._cleared() + "\n".join(fitting))
            self._block = fitting
            self._stream.flush()

    def clear(self) -> None:
        """Nothing is drawn any more."""
        self.draw(())

    def _cleared(self) -> str:
        """The codes that bring the cursor to where the block begins, and take the block away."""
        if len(self._block) < 2:
            return _CLEAR_LINE
        return f"\x1b[{len(self._block) - 1}A\r\x1b[J"
