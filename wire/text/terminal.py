"""Text made safe for a terminal: control characters become escapes."""

import re
from typing import Final

_LATIN_MAX: Final = 0xFF
_UNSAFE: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
# what a terminal obeys, what ends a line there, and what turns the direction of writing
_UNSAFE_IN_LINE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def terminal_safe(text: str) -> str:
    """The text with every control character but line feed as `\\xHH`: none reaches a terminal."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02X}", text)


def one_line(text: str) -> str:
    """The text as part of one line: as `terminal_safe`, with its line feeds escaped, too.

    >>> one_line("a\\nb")
    'a\\\\x0Ab'
    """
    return _UNSAFE_IN_LINE.sub(lambda match: _escape(ord(match[0])), text)


def _escape(code: int) -> str:
    return f"\\x{code:02X}" if code <= _LATIN_MAX else f"\\u{code:04X}"
