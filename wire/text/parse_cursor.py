"""A place in a text: what stands there, and where that is for an error.

Theory of operation. A value without quotes ends where another item could begin; between brackets
that is sooner than on a line of its own. The dump leaves out the quotes around text that has both
kinds of them in it, so text may begin with a quote that nothing closes.

Source: section 9.5 of the format.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from wire.errors import WireError
from wire.text.parse_values import unquoted
from wire.text.print_scalars import quoted

_DOUBLE_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_SINGLE_QUOTED: Final = re.compile(r"'(?:[^'\n]|'')*'")
# a colon ends a name where it stands before a blank, a number sign starts a comment behind one
_PLAIN_IN_LINE: Final = re.compile(
    r"(?:[^ \t\r\n:#]|:(?![ \t\r\n]|\Z)|(?<=[^ \t\r\n])#|[ \t]+(?=[^ \t\r\n:#]|:[^ \t\r\n]))+"
)
_PLAIN_IN_FLOW: Final = re.compile(
    r"(?:[^ \t\r\n:#,\[\]{}]|:(?![ \t\r\n,\[\]{}]|\Z)|(?<=[^ \t\r\n])#"
    r"|[ \t]+(?=[^ \t\r\n:#,\[\]{}]|:[^ \t\r\n,\[\]{}]))+"
)
_BEHIND_QUOTED: Final = re.compile(
    r":(?=[ \t\r\n,\]}]|\Z)|[ \t\r]*(?:[,\]}\n]|\Z)|[ \t]*[ \t]#|[ \t]*:"
)
_NO_VALUE: Final = frozenset("?&*@`%|>:,]}")


def place_error(text: str, at: int, reason: str) -> WireError:
    """An error that names the line and the column of a character, both from 1."""
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return WireError(f"line {line}, column {column}: {reason}")


class Cursor:
    """Steps from one place of a text to another; nothing behind `end` is seen."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self.at = start
        self._end = end

    def ahead(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match of the pattern here; None where it finds nothing."""
        return pattern.match(self._text, self.at, self._end)

    def char(self) -> str:
        """The character here; nothing at the end."""
        return self._text[self.at] if self.at < self._end else ""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Steps over what the pattern finds here."""
        match = pattern.match(self._text, self.at, self._end)
        if match is not None:
            self.at = match.end()
        return match

    def column(self) -> int:
        """The number of characters before this one on its line."""
        return self.at - self._text.rfind("\n", 0, self.at) - 1

    def is_line_start(self) -> bool:
        """True when only blanks stand before this on its line."""
        line = self._text.rfind("\n", 0, self.at) + 1
        return not self._text[line : self.at].strip(" \t\r")

    def fail(self, expected: str, at: int | None = None) -> WireError:
        """An error: what was expected, here or there, and what came."""
        at = self.at if at is None else at
        rest = self._text[at : min(self._end, at + 20)].partition("\n")[0].rstrip()
        came = repr(rest) if rest else "the end of the line" if at < self._end else "the end"
        return place_error(self._text, at, f"{expected} was expected, {came} came")

    @contextmanager
    def located(self, at: int) -> Iterator[None]:
        """Gives an error of the writer the place of what it could not write."""
        try:
            yield
        except WireError as error:
            raise place_error(self._text, at, error.reason) from error

    def spelled(self, *, flow: bool) -> tuple[str, bool]:
        """A text without its quotes, and whether it is known to be one: it had some."""
        start, char = self.at, self.char()
        for quote, pattern in (('"', _DOUBLE_QUOTED), ("'", _SINGLE_QUOTED)):
            if char != quote:
                continue
            match = self.match(pattern)
            if match is not None and _BEHIND_QUOTED.match(self._text, self.at, self._end):
                with self.located(start):
                    return unquoted(match[0]), True
            self.at = start
        plain = (
            None if char in _NO_VALUE else self.match(_PLAIN_IN_FLOW if flow else _PLAIN_IN_LINE)
        )
        if plain is None:
            raise self.fail("a value")
        if char and char in "\"'":  # the dump has no quotes around text that has both in it
            if quoted(plain[0]) != plain[0]:
                raise self.fail("a closing quote", start)
            return plain[0], True
        return plain[0], False
