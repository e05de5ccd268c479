"""The binary wire as a grammar: what the bytes are, to read and to run.

This is the specification and the judge in tests: the reader, the writer and the splitter must agree
with it. It is slow, it explains nothing when bytes do not fit, and nothing on the data path uses
it. It covers what occurs in replication messages and in the headers of queue files. Not in it:
message history, fields whose name is an object, and the codes of the delta wire.

    1. parts       header word, stop-bit number, text, long array
    2. items       every code with its operand and no meaning: text is bytes, blocks stay closed
    3. values      what is asked for (a number, a text), by whatever code it came; building takes
                   the code that Java's writer takes
    4. documents   alone, in a run, in a padded run

Messages and file headers, by name, are in `wire.grammar_structures`.
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
    Check,
    Const,
    Construct,
    Container,
    Default,
    ExprAdapter,
    ExprValidator,
    Flag,
    Float32l,
    Float64l,
    FocusedSeq,
    GreedyBytes,
    GreedyRange,
    IfThenElse,
    Int8sl,
    Int8ul,
    Int16sl,
    Int16ul,
    Int32sl,
    Int32ul,
    Int64sl,
    OneOf,
    Padding,
    Pass,
    Prefixed,
    Rebuild,
    RepeatUntil,
    Select,
    StringEncoded,
    Struct,
    Switch,
    Tell,
    Terminated,
    ValidationError,
    len_,
    obj_,
    this,
)

from wire.codes import Code

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


def require(claim: bool, reason: str) -> None:
    """Refuses the bytes, or the value that bytes are asked for, unless the claim holds."""
    if not claim:
        raise ValidationError(reason)


# ---- 1. parts ------------------------------------------------------------------------------------


def _header_word(length: Construct) -> Construct:
    """A little-endian word; bit 31, bit 30, then the length of the body in 30 bits."""
    return ByteSwapped(
        BitStruct("not_complete" / Default(Flag, False), "metadata" / Flag, "length" / length)
    )


Header = _header_word(BitsInteger(30))


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


def _text_bytes(text: str, _: object = None) -> bytes:
    units = struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))
    return b"".join(_unit_bytes(unit) for (unit,) in units)


def _text_length(this: Container) -> int:
    return len(_text_bytes(this.text))


def _text_of(data: bytes, _: object) -> str:
    forms = _UNIT.findall(data)
    require(b"".join(forms) == data, "text is UTF-8 of UTF-16 units")
    units = b"".join(struct.pack("<H", _unit_of(form)) for form in forms)
    return units.decode("utf-16-le", "surrogatepass")


def _text(data: Construct) -> Construct:
    """UTF-8 of each UTF-16 unit alone, surrogates too; U+0000 is 00, and C0 80 is taken for it."""
    return ExprAdapter(data, _text_of, _text_bytes)


def _latin1(data: Construct) -> Construct:
    return StringEncoded(data, "latin-1")


# a stop-bit length in bytes, then the bytes; length -1 is null where null can stand, "" in a name
Counted = Prefixed(StopBit, GreedyBytes)
CountedOrNull = FocusedSeq(
    "bytes",
    "length" / Rebuild(StopBit, lambda this: -1 if this.bytes is None else len(this.bytes)),
    "bytes" / IfThenElse(this.length == -1, Pass, Bytes(this.length)),
)
LongText = _text(Counted)
LongName = FocusedSeq(
    "name",
    "length" / Rebuild(StopBit, len_(this.name)),
    "name" / _latin1(Bytes(lambda this: 0 if this.length == -1 else this.length)),
)

# "used" is what the writer says is in use; all places of "capacity" are there
LongArray = Struct(
    "capacity" / ExprValidator(Rebuild(Int64sl, len_(this["values"])), obj_ > 0),
    "used" / Int64sl,
    "values" / Array(this.capacity, Int64sl),
)

# ---- 2. items ------------------------------------------------------------------------------------

FILLER_OPERANDS: Final[dict[int, Construct]] = {
    Code.PADDING: Pass,
    Code.PADDING32: Prefixed(Int32ul, GreedyBytes),
    Code.COMMENT: Counted,
}
NAME_OPERANDS: Final[dict[int, Construct]] = {
    Code.FIELD_NAME_ANY: LongName,
    Code.EVENT_NAME: LongName,
    Code.FIELD_NUMBER: StopBit,
    **{Code.FIELD_NAME0 + length: _latin1(Bytes(length)) for length in range(32)},
}
TYPE_OPERANDS: Final[dict[int, Construct]] = {Code.TYPE_PREFIX: Counted}
VALUE_OPERANDS: Final[dict[int, Construct]] = {
    **dict.fromkeys(range(0x80), Pass),  # the code is the number
    Code.BYTES_LENGTH8: Prefixed(Int8ul, GreedyBytes),
    Code.BYTES_LENGTH16: Prefixed(Int16ul, GreedyBytes),
    Code.BYTES_LENGTH32: Prefixed(Int32ul, GreedyBytes),
    Code.I64_ARRAY: LongArray,
    Code.FLOAT32: Float32l,
    Code.FLOAT64: Float64l,
    Code.FLOAT_STOP_2: StopBit,  # hundredths
    Code.FLOAT_STOP_4: StopBit,
    Code.FLOAT_STOP_6: StopBit,
    Code.UUID: Struct("most" / Int64sl, "least" / Int64sl),
    Code.UINT8: Int8ul,
    Code.UINT16: Int16ul,
    Code.UINT32: Int32ul,
    Code.INT8: Int8sl,
    Code.INT16: Int16sl,
    Code.INT32: Int32sl,
    Code.INT64: Int64sl,
    Code.SET_LOW_INT8: Int8ul,
    Code.SET_LOW_INT16: Int16ul,
    Code.INT64_0X: Int64sl,
    Code.FALSE: Pass,
    Code.TRUE: Pass,
    Code.NULL: Pass,
    Code.TIME: Counted,
    Code.DATE: Counted,
    Code.DATE_TIME: Counted,
    Code.ZONED_DATE_TIME: Counted,
    Code.STRING_ANY: CountedOrNull,
    Code.TYPE_LITERAL: CountedOrNull,
    **{Code.STRING0 + length: Bytes(length) for length in range(32)},
}


def _item(operands: dict[int, Construct]) -> Construct:
    return Struct("code" / OneOf(Byte, operands), "operand" / Switch(this.code, operands))


Filler = _item(FILLER_OPERANDS)
Fillers = Default(GreedyRange(Filler), [])
Name = _item(NAME_OPERANDS)
Scalar = _item(VALUE_OPERANDS)  # the content of a block stays unread

# what belongs to a value and stands before it: its types, and filler
Value = Struct("before" / GreedyRange(_item(FILLER_OPERANDS | TYPE_OPERANDS)), "item" / Scalar)
Field = Struct("filler" / Fillers, "name" / Name, "value" / Value)
# a body, and the content of a block, is one of these; only who asks knows which
Fields = Struct("fields" / GreedyRange(Field), "filler" / Fillers, Terminated)
Values = Struct("values" / GreedyRange(Value), "filler" / Fillers, Terminated)
RawBytes = FocusedSeq("bytes", Const(bytes([Code.U8_ARRAY])), "bytes" / GreedyBytes)
Content = Select(RawBytes, Fields, Values)  # a guess by the first byte, as a dump must make

# ---- 3. values -----------------------------------------------------------------------------------


def tagged(code: int, operand: Construct) -> Construct:
    """One code, and the meaning of its operand."""
    return FocusedSeq("operand", Const(bytes([code])), "operand" / operand)


def _only(value: object, code: int) -> Construct:
    """A code without operand that stands for one value."""

    def encode(asked: object, _: object) -> bytes:
        require(asked is value, f"code 0x{code:02X} is {value}")
        return bytes([code])

    return ExprAdapter(Const(bytes([code])), lambda _bytes, _context: value, encode)


def _saturated(value: float) -> int:
    if value != value:
        return 0
    if abs(value) < 1 << 63:
        return int(value)
    return INT64_MAX if value > 0 else INT64_MIN


def _truncated(floating: Construct) -> Construct:
    """A number that came as a float: Java's conversion to a long, and only those that survive."""

    def encode(value: int, _: object) -> int:
        (back,) = struct.unpack("<f", struct.pack("<f", value))
        require(_saturated(back) == value, "the number survives as a float")
        return value

    return ExprAdapter(floating, lambda value, _: _saturated(value), encode)


def _scaled(scale: int) -> Construct:
    return ExprAdapter(
        StopBit, lambda value, _: _saturated(float(value) / scale), lambda value, _: value * scale
    )


Null = _only(None, Code.NULL)
Bool = Select(_only(True, Code.TRUE), _only(False, Code.FALSE))
# The first that can hold the number is the one that Java writes: that is the whole rule.
Number = Select(
    tagged(Code.UINT8, Int8ul),
    tagged(Code.INT8, Int8sl),
    tagged(Code.INT16, Int16sl),
    tagged(Code.UINT16, Int16ul),
    tagged(Code.INT32, Int32sl),
    tagged(Code.UINT32, Int32ul),
    tagged(Code.FLOAT32, _truncated(Float32l)),
    tagged(Code.INT64, Int64sl),
    # read, never chosen
    ExprValidator(Byte, obj_ < 0x80),
    tagged(Code.INT64_0X, Int64sl),
    tagged(Code.SET_LOW_INT8, Int8ul),
    tagged(Code.SET_LOW_INT16, Int16ul),
    tagged(Code.FLOAT64, _truncated(Float64l)),
    tagged(Code.FLOAT_STOP_2, _scaled(100)),
    tagged(Code.FLOAT_STOP_4, _scaled(10_000)),
    tagged(Code.FLOAT_STOP_6, _scaled(1_000_000)),
)
Index = Select(tagged(Code.INT64_0X, Int64sl), Number)  # shown in hexadecimal, never shortened
Text = Select(
    FocusedSeq(
        "text",
        "code" / Rebuild(OneOf(Byte, range(0xE0, 0x100)), lambda this: 0xE0 + _text_length(this)),
        "text" / _text(Bytes(this.code - 0xE0)),
    ),
    tagged(Code.STRING_ANY, LongText),
)
NullText = ExprValidator(tagged(Code.STRING_ANY, CountedOrNull), lambda text, _: text is None)
TextOrNull = Select(Null, Text, NullText)
TypeName = tagged(Code.TYPE_PREFIX, LongText)


def _name_number(name: str, _: object) -> int:
    require(re.fullmatch("[0-9]{1,31}", name) is not None, "the name is a decimal number")
    require(int(name) < 1 << 31, "the name is a number of 32 bits")
    return int(name)


NumberName = ExprAdapter(
    tagged(Code.FIELD_NUMBER, StopBit), lambda number, _: str(number), _name_number
)
ShortName = FocusedSeq(
    "name",
    "code" / Rebuild(OneOf(Byte, range(0xC0, 0xE0)), lambda this: 0xC0 + len(this.name)),
    "name" / _latin1(Bytes(this.code - 0xC0)),
)
EventName = tagged(Code.EVENT_NAME, LongName)
FieldName = Select(NumberName, ShortName, tagged(Code.FIELD_NAME_ANY, LongName), EventName)


def block(content: Construct) -> Construct:
    """A nested block as marshallables have it: 32-bit length, however short."""
    return Select(
        tagged(Code.BYTES_LENGTH32, Prefixed(Int32ul, content)),
        tagged(Code.BYTES_LENGTH16, Prefixed(Int16ul, content)),
        tagged(Code.BYTES_LENGTH8, Prefixed(Int8ul, content)),
    )


# a block of raw bytes, without the array code; the length has the smallest width
Payload = Select(
    tagged(Code.BYTES_LENGTH8, Prefixed(Int8ul, GreedyBytes)),
    tagged(Code.BYTES_LENGTH16, Prefixed(Int16ul, GreedyBytes)),
    tagged(Code.BYTES_LENGTH32, Prefixed(Int32ul, GreedyBytes)),
)


def field(name: str, value: Construct, form: Construct = FieldName) -> Construct:
    """A value under this name; parsing takes any form of the name, building takes `form`."""
    return FocusedSeq(
        "value", Fillers, Const(name, Select(form, FieldName)), Fillers, "value" / value
    )


def event(name: str, value: Construct) -> Construct:
    """A value under this event name."""
    return field(name, value, EventName)


def typed(name: str, value: Construct) -> Construct:
    """A value behind the type of this alias."""
    return FocusedSeq("value", Const(name, TypeName), "value" / value)


# ---- 4. documents --------------------------------------------------------------------------------

# up to where a header may stand in a file
REST_OF_FOUR = Default(
    FocusedSeq("gap", "at" / Tell, "gap" / Padding(lambda this: -this.at % 4)), None
)

Document = Struct(
    "header" / _header_word(Rebuild(BitsInteger(30), len_(this._.body))),
    Check(lambda this: not this.header.not_complete),
    Check(lambda this: this.header.metadata or this.header.length > 0),  # else: nothing is here
    "body" / Bytes(this.header.length),
)
# whole documents, and what follows them: nothing, zeros, an end-of-file word, half a document
Documents = Struct("documents" / GreedyRange(Document), "rest" / GreedyBytes)
PaddedDocuments = Struct(
    "documents" / GreedyRange(FocusedSeq("document", REST_OF_FOUR, "document" / Document)),
    "rest" / GreedyBytes,
)
