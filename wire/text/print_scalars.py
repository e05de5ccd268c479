"""The form of text and payloads in the text of a document.

Theory of operation. Each function takes a value and gives the characters that Java prints for it;
where they stand on the line is the layout's business. Text is quoted by its first and last
character and by a set of characters, not by whether YAML needs it; text that holds a `'` and none
of these is not quoted at all.

Source: sections 2 and 9.3 of the format, and the vectors `strings.jsonl`.
"""

import base64
import re
from typing import Final

from wire.strings import decode_name, encode_text

_NEEDS_DOUBLE_QUOTES: Final = re.compile(
    r"""^[?%*&@`0-9+\- ',#:{}\[\]|>!\\] | [ ]\Z | [?,#:{}\[\]|>\\^\x00-\x1f\x80-\U0010ffff] | "'""",
    re.VERBOSE,
)
_ESCAPED: Final = re.compile(r"[\x00-\x1f\\\x80-\U0010ffff]")
_ESCAPED_IN_QUOTES: Final = re.compile(r"[\x00-\x1f\\\x80-\U0010ffff\"]")
_TEXT_PAYLOADS: Final = (bytes([0x0A, *range(0x20, 0x80)]), bytes([0x09, *range(0x20, 0x7F)]))
_SHORT_ESCAPES: Final = {
    "\0": "\\0",
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    "\x1b": "\\e",
    '"': '\\"',
    "\\": "\\\\",
    "\x85": "\\N",
    "\xa0": "\\_",
    "\u2028": "\\L",
    "\u2029": "\\P",
}


def quoted(text: str) -> str:
    """Text as it stands in the dump: escaped, and in the quotes that Java gives it."""
    if not text or _NEEDS_DOUBLE_QUOTES.search(text):
        return f'"{_ESCAPED_IN_QUOTES.sub(_escape, text)}"'
    if '"' in text and "'" not in text:
        return f"'{_ESCAPED.sub(_escape, text)}'"
    return _ESCAPED.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    short = _SHORT_ESCAPES.get(char)
    if short is not None:
        return short
    if char <= "\xff":
        return f"\\x{ord(char):02X}"
    units = char.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def copied(text: str) -> str:
    """Text that Java copies unescaped, as UTF-8, and shows byte by byte: comments, type names."""
    return decode_name(encode_text(text))


def payload_text(payload: bytes) -> str:
    """Raw bytes: as text where they all look like it, else in Base64."""
    if any(not payload.translate(None, allowed) for allowed in _TEXT_PAYLOADS):
        return quoted(decode_name(payload))
    return "!!binary " + base64.b64encode(payload).decode("ascii")
