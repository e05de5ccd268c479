"""The spelling of one value in the text form, and the code that the spelling asks for.

    true false          the constants          "text" 'text' text    a text
    0x1f                a 64-bit number shown in hexadecimal
    12 -1               a whole number, in the narrowest code that the dump shows without a type:
                        8 or 16 bits without a sign, 32 or 64 with one
    1.5 100E3 NaN       a floating-point number, never in a code that is shown as a whole one
    12:34 2020-02-29 ...  a time of day, a date, both, or both with an offset
    !byte !short !int !long !float !double !uint8 !uint16 !uint32    numbers of these very codes

Text that looks like a number is quoted in the dump; `null` and `~` are not, and stay text.

Source: sections 6, 9.3 to 9.6 of the format.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from wire.codes import Code
from wire.errors import WireError
from wire.numbers import encode_fixed, encode_float64, to_float32
from wire.objects.body_writer import BodyWriter
from wire.objects.variants import name_number
from wire.strings import decode_name, decode_text, encode_name

FIXED_TYPES: Final = {
    "uint8": Code.UINT8,
    "uint16": Code.UINT16,
    "uint32": Code.UINT32,
    "byte": Code.INT8,
    "short": Code.INT16,
    "int": Code.INT32,
    "long": Code.INT64,
    "float": Code.FLOAT32,
    "double": Code.FLOAT64,
}
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
_SPECIAL: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_NUMBER_STARTS: Final = frozenset("0123456789+-")
_WHOLE_CODES: Final = (
    (Code.UINT8, 0, (1 << 8) - 1),
    (Code.UINT16, 0, (1 << 16) - 1),
    (Code.INT32, -(1 << 31), (1 << 31) - 1),
    (Code.UINT32, 0, (1 << 32) - 1),
    (Code.INT64, -(1 << 63), (1 << 63) - 1),
)
_SHOWN_WHOLE: Final = frozenset(
    {Code.UINT8, Code.UINT16, Code.UINT32, Code.INT8, Code.INT16, Code.INT32}
)
_TIME_CODES: Final = (Code.TIME, Code.DATE, Code.DATE_TIME, Code.ZONED_DATE_TIME)
_DIGITS_MAX: Final = 400  # of a number; no double needs more before its point
_BARE_MAX: Final = 0x7F
_INT64_SPAN: Final = 1 << 64
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL
)
_ESCAPED: Final = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    '"': '"',
    "'": "'",
    "/": "/",
    "\\": "\\",
    " ": " ",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
_LAST_CHARACTER: Final = 0x10FFFF


def write_plain(writer: BodyWriter, text: str, *, is_bare: bool = False) -> None:
    """The value that is spelled so, without quotes.

    Args:
        is_bare: numbers of 7 bits without a code.
    """
    if text in ("true", "false"):
        writer.boolean(text == "true")
    elif text in _SPECIAL:
        writer.fixed(Code.FLOAT32, float(_SPECIAL[text]))
    elif text[0] not in _NUMBER_STARTS:
        writer.text(text)
    elif _HEXADECIMAL.fullmatch(text):
        value = int(text, 16)
        writer.hex_int(value - _INT64_SPAN if value >= _INT64_SPAN >> 1 else value)
    elif len(text) > _DIGITS_MAX:
        writer.text(text)
    elif _WHOLE.fullmatch(text):
        _write_whole(writer, int(text), is_bare=is_bare)
    elif _DECIMAL.fullmatch(text):
        writer.data += _float_item(float(text))
    else:
        _write_time_or_text(writer, text)


def write_fixed(writer: BodyWriter, code: Code, text: str) -> None:
    """A number with this code.

    Raises:
        WireError: the text is no number that this code holds.
    """
    is_float = code in (Code.FLOAT32, Code.FLOAT64)
    try:
        if is_float:
            writer.fixed(code, float(_SPECIAL.get(text, text)))
        else:
            writer.fixed(code, int(text, 16 if text.startswith("0x") else 10))
    except (ValueError, struct.error) as error:
        raise WireError(f"a number of {code.name} was expected, {text[:40]!r} came") from error


def write_name(writer: BodyWriter, name: str) -> None:
    """A field name that is shown as this name.

    Raises:
        WireError: it has characters that no name can have.
    """
    if decode_name(encode_name(name)) != name:
        raise WireError(f"a name of Latin-1 characters was expected, {name[:40]!r} came")
    number = name_number(name)
    if (number is not None and str(number) != name) or _CONTROL.search(name):
        writer.event(name)
    else:
        writer.name(name)


def write_shown(write: Callable[[str], None], shown: str) -> None:
    """A comment or the name of a type: Java shows the bytes of its UTF-8 one by one."""
    with suppress(UnicodeEncodeError, WireError):  # written by hand, as the text that it is
        shown = decode_text(shown.encode("latin-1"))
    write(shown)


def unquoted(spelled: str) -> str:
    """The text in quotes.

    Raises:
        WireError: it has an escape that means nothing.
    """
    inner = spelled[1:-1]
    return inner.replace("''", "'") if spelled[0] == "'" else _ESCAPE.sub(_character, inner)


def latin_bytes(text: str) -> bytes:
    """Bytes that are shown as the characters of these numbers.

    Raises:
        WireError: a character is beyond 255.
    """
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        char = text[error.start]
        raise WireError(f"characters up to 0xFF were expected, {char!r} came") from error


def base64_bytes(text: str) -> bytes:
    """The bytes behind `!!binary`.

    Raises:
        WireError: the text is not Base64 with its padding.
    """
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise WireError(f"Base64 was expected, {text[:40]!r} came") from error


def _write_whole(writer: BodyWriter, value: int, *, is_bare: bool) -> None:
    if is_bare and 0 <= value <= _BARE_MAX:
        writer.data.append(value)
        return
    for code, least, greatest in _WHOLE_CODES:
        if least <= value <= greatest:
            writer.fixed(code, value)
            return
    raise WireError(f"a number of 64 bits was expected, {value} came")


def _float_item(value: float) -> bytes:
    item = encode_float64(value)
    if item[0] not in _SHOWN_WHOLE:
        return item
    return encode_fixed(Code.FLOAT32 if to_float32(value) == value else Code.FLOAT64, value)


def _write_time_or_text(writer: BodyWriter, text: str) -> None:
    for code in _TIME_CODES:
        try:
            writer.time(code, text)
        except WireError:
            continue
        return
    writer.text(text)


def _character(match: re.Match[str]) -> str:
    number = match[1] or match[2] or match[3]
    if number is not None and int(number, 16) <= _LAST_CHARACTER:
        return chr(int(number, 16))
    if match[4] not in _ESCAPED:
        raise WireError(f"an escape was expected, {match[0]!r} came")
    return _ESCAPED[match[4]]
