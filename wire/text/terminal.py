"""Text made safe for a terminal: control characters become escapes."""

import re
from typing import Final

_UNSAFE: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def terminal_safe(text: str) -> str:
    """The text with every control character but line feed as `\\xHH`: none reaches a terminal."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02X}", text)
