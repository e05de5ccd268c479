"""A line of progress on a terminal, for work that goes on without a pause."""

import sys
import time
from types import TracebackType
from typing import Final, Self

from cqrepl.console.units import format_bytes

_PAUSE_S: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"
_shown = [""]  # what `show_line` has left on the terminal


def show_line(text: str) -> None:
    """Replaces the line of progress, on a terminal only."""
    if text != _shown[0] and sys.stderr.isatty():
        sys.stderr.write(_CLEAR_LINE + text)
        sys.stderr.flush()
        _shown[0] = text


class Meter:
    """Counts excerpts and bytes; shows them twice a second where stderr is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._began = self._shown_at = time.monotonic()
        self._has_shown = False
        self.excerpts = 0
        self.bytes = 0

    def add(self, excerpts: int, byte_count: int) -> None:
        """So much more is done."""
        self.excerpts += excerpts
        self.bytes += byte_count
        if self._is_shown and (now := time.monotonic()) - self._shown_at >= _PAUSE_S:
            rate = self.excerpts / (now - self._began)
            self._draw(
                f"{self._what}: {self.excerpts:,} excerpts  {format_bytes(self.bytes)}"
                f"  {rate:,.0f}/s"
            )
            self._shown_at = now

    def hide(self) -> None:
        """Takes the line away, for another one in its place."""
        if self._has_shown:
            self._draw("")
            self._has_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hide()

    def _draw(self, text: str) -> None:
        self._has_shown = True
        sys.stderr.write(_CLEAR_LINE + text)
        sys.stderr.flush()
