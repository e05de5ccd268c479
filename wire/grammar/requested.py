"""The grammar of values that are asked for: by any code that holds one, built as Java does.

Numbers are in `wire.grammar.numeric`, dates and times in `wire.grammar.temporal`. `wire.grammar` is
the entry and lists all parts of the grammar.
"""

import re

from construct import (
    Byte,
    Bytes,
    Const,
    Construct,
    ExprAdapter,
    ExprValidator,
    FocusedSeq,
    GreedyBytes,
    GreedyRange,
    Int8ul,
    Int16ul,
    Int32ul,
    OneOf,
    Prefixed,
    Rebuild,
    Select,
    Terminated,
    this,
)

from wire.codes import Code
from wire.grammar.items import VALUE_OPERANDS, Fillers, HistoryBlock, RawBytes
from wire.grammar.parts import (
    CountedOrNull,
    LongName,
    LongText,
    StopBit,
    name_length,
    require,
    short_name_of,
    tagged,
    text_in,
    text_length,
)

# ---- scalars -------------------------------------------------------------------------------------


def _only(value: object, code: int) -> Construct:
    """A code without operand that stands for one value."""

    def encode(asked: object, _: object) -> bytes:
        require(asked is value, f"code 0x{code:02X} is {value}")
        return bytes([code])

    return ExprAdapter(Const(bytes([code])), lambda _bytes, _context: value, encode)


Null = _only(None, Code.NULL)
Bool = Select(_only(True, Code.TRUE), _only(False, Code.FALSE))
Text = Select(
    FocusedSeq(
        "text",
        "code"
        / Rebuild(OneOf(Byte, range(0xE0, 0x100)), lambda this: 0xE0 + text_length(this.text)),
        "text" / text_in(Bytes(this.code - 0xE0)),
    ),
    tagged(Code.STRING_ANY, LongText),
)
NullText = ExprValidator(tagged(Code.STRING_ANY, CountedOrNull), lambda text, _: text is None)
TextOrNull = Select(Null, Text, NullText)
TypeName = tagged(Code.TYPE_PREFIX, LongText)
NullType = ExprValidator(tagged(Code.TYPE_LITERAL, CountedOrNull), lambda text, _: text is None)
TypeLiteral = Select(tagged(Code.TYPE_LITERAL, LongText), Null, NullType)
Comment = tagged(Code.COMMENT, LongText)
# the halves in this order, each little-endian: not the order of the printed form
Uuid = tagged(Code.UUID, VALUE_OPERANDS[Code.UUID])

# ---- names ---------------------------------------------------------------------------------------


def _name_number(name: str, _: object) -> int:
    require(re.fullmatch("[0-9]{1,31}", name) is not None, "the name is a decimal number")
    require(int(name) < 1 << 31, "the name is a number of 32 bits")
    return int(name)


NumberName = ExprAdapter(
    tagged(Code.FIELD_NUMBER, StopBit), lambda number, _: str(number), _name_number
)
ShortName = FocusedSeq(
    "name",
    "code" / Rebuild(OneOf(Byte, range(0xC0, 0xE0)), lambda this: 0xC0 + name_length(this.name)),
    "name" / short_name_of(this.code - 0xC0),
)
EventName = tagged(Code.EVENT_NAME, LongName)
EventId = tagged(Code.FIELD_NUMBER, StopBit)
FieldName = Select(NumberName, ShortName, tagged(Code.FIELD_NAME_ANY, LongName), EventName)


def named(name: str, form: Construct = FieldName) -> Construct:
    """This name; parsing takes any form of it, building takes `form`.

    What a form loses of a name is no difference: characters above 255, zeros before a number.
    """
    accepted = (name, form.parse(form.build(name)))
    return Rebuild(ExprValidator(Select(form, FieldName), lambda found, _: found in accepted), name)


def field(name: str, value: Construct, form: Construct = FieldName) -> Construct:
    """A value under this name; parsing takes any form of the name, building takes `form`."""
    return FocusedSeq("value", Fillers, named(name, form), Fillers, "value" / value)


def event(name: str, value: Construct) -> Construct:
    """A value under this event name."""
    return field(name, value, EventName)


# ---- blocks --------------------------------------------------------------------------------------


def block(content: Construct) -> Construct:
    """A nested block as marshallables have it: 32-bit length, however short."""
    return Select(
        tagged(Code.BYTES_LENGTH32, Prefixed(Int32ul, content)),
        tagged(Code.BYTES_LENGTH16, Prefixed(Int16ul, content)),
        tagged(Code.BYTES_LENGTH8, Prefixed(Int8ul, content)),
    )


def smallest_block(content: Construct) -> Construct:
    """A block as bytes have it: the smallest length that can say how long it is."""
    return Select(
        tagged(Code.BYTES_LENGTH8, Prefixed(Int8ul, content)),
        tagged(Code.BYTES_LENGTH16, Prefixed(Int16ul, content)),
        tagged(Code.BYTES_LENGTH32, Prefixed(Int32ul, content)),
    )


Payload = smallest_block(GreedyBytes)  # raw bytes, without the array code: `bytesLiteral`
ByteArray = smallest_block(RawBytes)  # bytes that say so
MessageHistory = smallest_block(HistoryBlock)
HistoryEvent = FocusedSeq("history", Const(-1, EventId), "history" / MessageHistory)


def typed(name: str, value: Construct) -> Construct:
    """A value behind the type of this alias."""
    return FocusedSeq("value", Const(name, TypeName), "value" / value)


def array_of(number: Construct) -> Construct:
    """An array as Java's writer has it: a block of numbers, each as narrow as its value allows."""
    return block(FocusedSeq("values", "values" / GreedyRange(number), Fillers, Terminated))
