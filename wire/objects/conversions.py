"""Reads the next value as the type that the caller asks for, from any code that can hold it.

Theory of operation. A writer chooses codes by value, and writers differ, so a reader must take a
number from any code that holds one:

    int64     all numbers (fractions are cut), decimal text, null and empty text (-2^63)
    int32...  whole numbers and decimal text that fit; nothing else
    float64   all numbers, decimal text, empty text (NaN)
    text      text, numbers, true and false, null (None), dates, times, type literals, bytes
    boolean   true and false
    bytes     a block that says it holds bytes, with or without a type prefix; null (None)
    literal   the content of any block; null (None)

-2^63 for "nothing" is Java's habit and is kept; what Java makes of a block or of an unassigned code
when it is asked for a number is not: that is a WireError here. Source: section 10 of the format;
vectors `decode_values`.
"""

import math
import re
from decimal import Decimal
from typing import Final

from wire.codes import BLOCK_LENGTH, FIXED_WIDTH, STOP_BIT_SCALE, Code
from wire.errors import WireError
from wire.objects.float_text import double_text
from wire.objects.values import TIME_OF_CODE
from wire.objects.variants import COMPRESSIONS, DELTA_CODES, unsupported_code
from wire.reader import Reader
from wire.strings import decode_name

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
_INT32_MIN: Final = -(1 << 31)
_WHOLE_CODES: Final = frozenset(FIXED_WIDTH) - {Code.FLOAT32, Code.FLOAT64}
_FLOAT_CODES: Final = frozenset({Code.FLOAT32, Code.FLOAT64, *STOP_BIT_SCALE})
_SHOWN_AS_TEXT: Final = frozenset({*TIME_OF_CODE, Code.TYPE_LITERAL})
_WHOLE: Final = re.compile(r"([+-]?)0*(\d{1,19})")
# what Java's Double.parseDouble takes, but for its hexadecimal form
_DOUBLE: Final = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)"
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,10})?")
_DIGITS_MAX: Final = 4000  # Python reads no longer whole number from text
_BLANK: Final = "".join(map(chr, range(0x21)))


def next_code(reader: Reader, wanted: str) -> int:
    """The code of the next item behind padding and comments.

    Raises:
        WireError: nothing is left, or it is a code of the delta wire.
    """
    code = reader.peek_code()
    if code is None:
        raise WireError(f"{wanted} was expected, the block ends", reader.position)
    if code in DELTA_CODES:
        raise unsupported_code(code, reader.position)
    return code


def read_int64(reader: Reader) -> int:
    """The next value as a 64-bit number.

    >>> read_int64(Reader(bytes.fromhex("92ba02"))), read_int64(Reader(b"\\xe31.5"))
    (3, 2)
    """
    code = next_code(reader, "a number")
    if code == Code.NULL:
        reader.position += 1
        return INT64_MIN
    if code < Code.STRING0 and code != Code.STRING_ANY:
        return reader.read_int()
    text = _number_text(reader)
    return INT64_MIN if not text else _int64_of(text, reader)


def read_whole(reader: Reader, least: int, greatest: int) -> int:
    """The next value as a whole number within these limits.

    Raises:
        WireError: it is out of them, or a fraction, or no number.
    """
    code = next_code(reader, "a whole number")
    start = reader.position
    if code in _FLOAT_CODES or code == Code.NULL:
        raise WireError(f"a whole number was expected, code 0x{code:02X} came", start)
    if code >= Code.STRING0 or code == Code.STRING_ANY:
        text = _number_text(reader)
        if not text and least < 0:
            return least  # Java's "nothing" of this width
        value = _int64_of(text, reader)
    else:
        value = read_int64(reader)
    if not least <= value <= greatest:
        raise WireError(f"a number of {least} to {greatest} was expected, {value} came", start)
    return value


def read_integer(reader: Reader, least: int | None = None, greatest: int | None = None) -> int:
    """The next value as a whole number, of which nothing is lost: not cut, not bent to fit.

    >>> read_integer(Reader(bytes.fromhex("e3313233")))
    123
    >>> read_integer(Reader(bytes.fromhex("9201")))
    Traceback (most recent call last):
    ...
    wire.errors.WireError: a whole number was expected, 0.01 came at position 0
    """
    code = next_code(reader, "a whole number")
    start = reader.position
    found: int | float | str | None
    if code >= Code.STRING0 or code == Code.STRING_ANY:
        found = reader.read_text()
        whole = found is not None and len(found) <= _DIGITS_MAX and _INTEGER.fullmatch(found)
        value = int(found) if found is not None and whole else None
    elif code in _FLOAT_CODES:
        found = reader.read_float()
        # Java writes a long as a double where that is shorter; 2^63 stands for 2^63-1
        value = min(int(found), INT64_MAX) if found.is_integer() else None
    else:
        value = found = None if code == Code.NULL else reader.read_int()
    if value is None or not (least is None or greatest is None or least <= value <= greatest):
        shown = "null" if found is None else f"{found!r:.40}"
        wanted = "a whole number" if least is None else f"a number of {least} to {greatest}"
        raise WireError(f"{wanted} was expected, {shown} came", start)
    return value


def read_double(reader: Reader) -> float:
    """As `read_float64`; an empty text is no number here."""
    if next_code(reader, "a number") == Code.STRING0:
        raise WireError("a number was expected, an empty text came", reader.position)
    return read_float64(reader)


def read_decimal(reader: Reader) -> Decimal:
    """The next value as the decimal number that it spells, or that its double prints as.

    >>> read_decimal(Reader(bytes.fromhex("e4312e3130")))
    Decimal('1.10')
    """
    code = next_code(reader, "a decimal number")
    start = reader.position
    if code in _FLOAT_CODES:
        text: str | None = repr(reader.read_float())
    elif code < Code.STRING0 and code not in (Code.STRING_ANY, Code.NULL):
        text = str(reader.read_int())
    else:
        text = reader.read_text()
    if text is None or not _DECIMAL.fullmatch(text):
        raise WireError(f"a decimal number was expected, {text!r:.40} came", start)
    return Decimal(text)


def read_string(reader: Reader) -> str:
    """The next value as text that was written as text, or as a date, a time or a class.

    >>> read_string(Reader(bytes.fromhex("a105")))
    Traceback (most recent call last):
    ...
    wire.errors.WireError: a text was expected, code 0xA1 came at position 0
    """
    code = next_code(reader, "a text")
    start = reader.position
    found = reader.read_coded_text() if code in _SHOWN_AS_TEXT else reader.read_text()
    if found is None:
        raise WireError("a value was expected, null came", start)
    return found


def read_int32(reader: Reader) -> int:
    """The next value as a 32-bit number."""
    return read_whole(reader, _INT32_MIN, -_INT32_MIN - 1)


def read_float64(reader: Reader) -> float:
    """The next value as a double.

    >>> read_float64(Reader(bytes.fromhex("a105"))), read_float64(Reader(b"\\xe0"))
    (5.0, nan)
    """
    code = next_code(reader, "a number")
    if code < Code.STRING0 and code != Code.STRING_ANY:
        return reader.read_float()
    start = reader.position
    text = reader.read_text()
    return math.nan if not text else _double_of(text, start)


def read_text(reader: Reader) -> str | None:
    """The next value as text; None for null.

    >>> read_text(Reader(bytes.fromhex("9405"))), read_text(Reader(bytes.fromhex("80038a6162")))
    ('5.0E-4', 'ab')
    """
    code = next_code(reader, "a text")
    if code >= Code.STRING0 or code in (Code.STRING_ANY, Code.NULL):
        return reader.read_text()
    if code < Code.BYTES_LENGTH8 or code in _WHOLE_CODES:
        return str(reader.read_int())
    if code in _FLOAT_CODES:
        return double_text(reader.read_float())
    if code in (Code.TRUE, Code.FALSE):
        return "true" if reader.read_bool() else "false"
    if code in _SHOWN_AS_TEXT:
        return reader.read_coded_text()
    if code in BLOCK_LENGTH:
        payload = read_array(reader)
        return decode_name(payload)
    raise unsupported_code(code, reader.position)


def read_boolean(reader: Reader) -> bool:
    """The next value as true or false."""
    return reader.read_bool()


def read_bytes(reader: Reader) -> bytes | None:
    """The bytes that stand next; None for null."""
    type_name = reader.read_type()
    refuse_compressed(type_name, reader.position)
    if next_code(reader, "bytes") == Code.NULL:
        reader.position += 1
        return None
    return read_array(reader)


def read_literal(reader: Reader) -> bytes | None:
    """The bytes of the block that stands next, not decoded; None for null."""
    if next_code(reader, "a block") == Code.NULL:
        reader.position += 1
        return None
    return content(reader.read_block())


def content(block: Reader) -> bytes:
    """The bytes that are left of a block."""
    payload = bytes(block.data[block.position : block.end])
    block.position = block.end
    return payload


def refuse_compressed(type_name: str | None, position: int) -> None:
    """Raises where a type name says that what follows is compressed."""
    if type_name in COMPRESSIONS:
        raise WireError(f"compression {type_name} is not supported", position)


def read_array(reader: Reader) -> bytes:
    """The bytes of the block that stands next, which says that it holds bytes."""
    start = reader.position
    block = reader.read_block()
    if block.position == block.end or block.data[block.position] != Code.U8_ARRAY:
        raise WireError("a block of bytes was expected, another block came", start)
    block.position += 1
    return content(block)


def _number_text(reader: Reader) -> str:
    """A text that should spell a number; empty for null and for what is no text at all."""
    start = reader.position
    reader.skip_value()  # a text that runs past the end of its block is an error
    try:
        return Reader(reader.data, start, reader.position).read_text() or ""
    except WireError:
        return ""


def _int64_of(text: str, reader: Reader) -> int:
    whole = _WHOLE.fullmatch(text)
    if whole:
        value = int("".join(whole.groups()))
        if INT64_MIN <= value <= INT64_MAX:
            return value
    number = _double_of(text, reader.position)
    if math.isnan(number):
        return 0
    if not INT64_MIN <= number < INT64_MAX:
        return INT64_MIN if number < 0 else INT64_MAX
    below = math.floor(number)
    return below + (number - below >= 0.5)


def _double_of(text: str, position: int) -> float:
    match = _DOUBLE.fullmatch(text.strip(_BLANK))
    if match is None:
        raise WireError(f"a number was expected, text {text[:40]!r} came", position)
    sign, special, digits = match.groups()
    return float(sign + (special or digits))
