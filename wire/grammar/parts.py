"""The grammar of what items are made of: header word, stop-bit number, text, names, arrays.

First part of the grammar; `wire.grammar` is the entry and lists all parts.
"""

import re
import struct
from typing import Final

from construct import (
    Array,
    BitsInteger,
    BitStruct,
    Byte,
    Bytes,
    ByteSwapped,
    Const,
    Construct,
    Default,
    ExprAdapter,
    ExprValidator,
    Flag,
    FocusedSeq,
    GreedyBytes,
    IfThenElse,
    Int32sl,
    Int64sl,
    Pass,
    Prefixed,
    PrefixedArray,
    Rebuild,
    RepeatUntil,
    Struct,
    ValidationError,
    len_,
    obj_,
    this,
)

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


def require(claim: bool, reason: str) -> None:
    """Refuses the bytes, or the value that bytes are asked for, unless the claim holds."""
    if not claim:
        raise ValidationError(reason)


def tagged(code: int, operand: Construct) -> Construct:
    """One code, and the meaning of its operand."""
    return FocusedSeq("operand", Const(bytes([code])), "operand" / operand)


# ---- numbers -------------------------------------------------------------------------------------


def header_word(length: Construct) -> Construct:
    """A little-endian word; bit 31, bit 30, then the length of the body in 30 bits."""
    return ByteSwapped(
        BitStruct("not_complete" / Default(Flag, False), "metadata" / Flag, "length" / length)
    )


Header = header_word(BitsInteger(30))


def _stop_bit_value(groups: list[int], _: object) -> int:
    is_negative = len(groups) > 1 and groups[-1] == 0
    digits = groups[:-1] if is_negative else groups
    require(len(groups) <= 10, "a stop-bit number has at most 10 bytes")
    magnitude = sum((group & 0x7F) << (7 * place) for place, group in enumerate(digits))
    require(magnitude <= INT64_MAX, "a stop-bit number fits 64 bits")
    return ~magnitude if is_negative else magnitude


def _stop_bit_groups(value: int, _: object) -> list[int]:
    magnitude = ~value if value < 0 else value
    places = range(max(1, -(-magnitude.bit_length() // 7)))
    groups = [magnitude >> (7 * place) & 0x7F | 0x80 for place in places]
    return [*groups, 0] if value < 0 else [*groups[:-1], groups[-1] & 0x7F]


# 7 bits a byte, least significant first, the top bit set on all but the last. A negative number is
# its complement with the top bit on every group, and a zero byte behind.
StopBit = ExprAdapter(
    RepeatUntil(lambda byte, _list, _context: byte < 0x80, Byte), _stop_bit_value, _stop_bit_groups
)

# ---- text ----------------------------------------------------------------------------------------

# A UTF-16 unit: 1 to 3 bytes, the shortest form; U+0000 also as C0 80.
_UNIT: Final = re.compile(
    rb"[\x00-\x7F]|\xC0\x80|[\xC2-\xDF][\x80-\xBF]"
    rb"|\xE0[\xA0-\xBF][\x80-\xBF]|[\xE1-\xEF][\x80-\xBF]{2}"
)


def _unit_bytes(unit: int) -> bytes:
    if unit < 0x80:
        return bytes([unit])
    if unit < 0x800:
        return bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
    return bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])


def _unit_of(form: bytes) -> int:
    unit = form[0] & (0x7F, 0x1F, 0x0F)[len(form) - 1]
    for byte in form[1:]:
        unit = unit << 6 | byte & 0x3F
    return unit


def units_of(text: str) -> list[int]:
    """The UTF-16 units of a text: Java's idea of characters."""
    return [unit for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))]


def _text_bytes(text: str, _: object = None) -> bytes:
    return b"".join(map(_unit_bytes, units_of(text)))


def _text_of(data: bytes, _: object) -> str:
    forms = _UNIT.findall(data)
    require(b"".join(forms) == data, "text is UTF-8 of UTF-16 units")
    units = b"".join(struct.pack("<H", _unit_of(form)) for form in forms)
    return units.decode("utf-16-le", "surrogatepass")


def text_length(text: str) -> int:
    """The number of bytes that a text takes."""
    return len(_text_bytes(text))


def text_in(data: Construct) -> Construct:
    """UTF-8 of each UTF-16 unit alone, surrogates too; U+0000 is 00, and C0 80 is taken for it."""
    return ExprAdapter(data, _text_of, _text_bytes)


# a stop-bit length in bytes, then the bytes; length -1 is null where null can stand, "" in a name
Counted = Prefixed(StopBit, GreedyBytes)
CountedOrNull = FocusedSeq(
    "bytes",
    "length" / Rebuild(StopBit, lambda this: -1 if this.bytes is None else len(this.bytes)),
    "bytes" / IfThenElse(this.length == -1, Pass, Bytes(this.length)),
)
LongText = text_in(Counted)
LongTextOrNull = ExprAdapter(
    CountedOrNull,
    lambda data, _: None if data is None else _text_of(data, None),
    lambda text, _: None if text is None else _text_bytes(text),
)

# ---- names ---------------------------------------------------------------------------------------


def _latin1(data: bytes, _: object) -> str:
    return data.decode("latin-1")


def _shortened(name: str, _: object) -> bytes:
    return bytes(unit if unit < 0x100 else ord("?") for unit in units_of(name))


def _lower_halves(name: str, _: object) -> bytes:
    return bytes(unit & 0xFF for unit in units_of(name))


def name_length(name: str) -> int:
    """The number of bytes that a name takes: one for each UTF-16 unit."""
    return len(units_of(name))


def short_name_of(length: object) -> Construct:
    """A name whose length its code tells: Latin-1, with `?` for what is none."""
    return ExprAdapter(Bytes(length), _latin1, _shortened)


# a name behind its length: the lower half of each UTF-16 unit
LongName = FocusedSeq(
    "name",
    "length" / Rebuild(StopBit, lambda this: name_length(this.name)),
    "name"
    / ExprAdapter(
        Bytes(lambda this: 0 if this.length == -1 else this.length), _latin1, _lower_halves
    ),
)

# ---- arrays --------------------------------------------------------------------------------------


# "used" is what the writer says is in use; all places of "capacity" are there
LongArray = Struct(
    "capacity" / ExprValidator(Rebuild(Int64sl, len_(this["values"])), obj_ > 0),
    "used" / Int64sl,
    "values" / Array(this.capacity, Int64sl),
)
# where a message has been, and when
History = Struct(
    "count" / Rebuild(Byte, len_(this.sources)),
    "sources" / Array(this.count, Int32sl),
    "indexes" / Array(this.count, Int64sl),
    "timings" / PrefixedArray(Byte, Int64sl),
)
