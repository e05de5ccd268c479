"""The grammar of items: what each of the 256 codes has behind it.

Here nothing has a meaning yet: text is bytes, blocks stay closed. That is what a reader needs that
steps over what it does not know. `wire.grammar` is the entry and lists all parts.

    00-7F  numbers         80-82  blocks      86  history in a block    8A  bytes in a block
    8D     longs in place  8E 8F  padding     90-96, A0-AF  numbers, UUID
    B0 B1  false, true     B2-B5  times       B6  type of what follows  B7 B9 BA  names
    B8     text            BB     null        BC  type as a value       BD  name that is an object
    BE     comment         C0-DF  names       E0-FF  texts

Every item starts with its code. A field is a name and a value; type prefixes belong to the value.
Padding and comments may stand before any item.
"""

from typing import Final

from construct import (
    Byte,
    Bytes,
    Check,
    Construct,
    Default,
    ExprAdapter,
    Float32l,
    Float64l,
    FocusedSeq,
    GreedyBytes,
    GreedyRange,
    If,
    Int8sl,
    Int8ul,
    Int16sl,
    Int16ul,
    Int32sl,
    Int32ul,
    Int64sl,
    Int64ul,
    OneOf,
    Optional,
    Pass,
    Prefixed,
    Select,
    Struct,
    Switch,
    Terminated,
    this,
)

from wire.codes import Code
from wire.grammar.parts import (
    Counted,
    CountedOrNull,
    History,
    LongArray,
    LongName,
    StopBit,
    short_name_of,
    tagged,
)

# ---- the codes -----------------------------------------------------------------------------------

FILLER_OPERANDS: Final[dict[int, Construct]] = {
    Code.PADDING: Pass,
    Code.PADDING32: Prefixed(Int32ul, GreedyBytes),
    Code.COMMENT: Counted,
}
NAME_OPERANDS: Final[dict[int, Construct]] = {
    Code.FIELD_NAME_ANY: LongName,
    Code.EVENT_NAME: LongName,
    Code.FIELD_NUMBER: StopBit,
    **{Code.FIELD_NAME0 + length: short_name_of(length) for length in range(32)},
}
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
    Code.UUID: Struct("most" / Int64ul, "least" / Int64ul),
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
# only as the first byte of a block, which then holds nothing else
BLOCK_OPERANDS: Final[dict[int, Construct]] = {
    Code.U8_ARRAY: GreedyBytes,
    Code.HISTORY_MESSAGE: History,
}
# Of the delta wire. No plain reader takes them; numbers can be stepped over. What `ref` refers to
# is told by earlier documents.
DELTA_OPERANDS: Final[dict[int, Construct]] = {
    Code.FIELD_ANCHOR: Struct("ref" / StopBit, "name" / Counted),
    Code.ANCHOR: Struct("ref" / StopBit),  # then an object with its type
    Code.UPDATED_ALIAS: Struct("ref" / StopBit),  # then a block
    Code.FLOAT_SET_LOW_0: Byte,
    Code.FLOAT_SET_LOW_2: Byte,
    Code.FLOAT_SET_LOW_4: Byte,
}
# errors wherever they stand; HINT has a name and no use
UNASSIGNED: Final = frozenset(
    {0x83, 0x84, 0x85, 0x8B, 0x8C, 0x93, 0x95, 0x97, 0x98, 0x99, 0x9D, 0x9E, 0x9F}
    | {*range(0xAA, 0xAF), Code.HINT}
)

# ---- items, values, fields -----------------------------------------------------------------------


def item(operands: dict[int, Construct]) -> Construct:
    """A code of these, and its operand."""
    return Struct("code" / OneOf(Byte, operands), "operand" / Switch(this.code, operands))


Filler = item(FILLER_OPERANDS)
Fillers = Default(GreedyRange(Filler), [])
Name = item(NAME_OPERANDS)


def value_of(operands: dict[int, Construct], types: Construct) -> Construct:
    """A value, and what belongs to it and stands before it: its types, and filler."""
    before = GreedyRange(item(FILLER_OPERANDS | {Code.TYPE_PREFIX: types}))
    return Struct("before" / before, "item" / item(operands))


Value = value_of(VALUE_OPERANDS, types=Counted)
# What can be stepped over is a little more. Bytes that do not start their block are an error of
# the writer's; they take the rest of it.
_OVER_ONLY: Final[dict[int, Construct]] = {Code.U8_ARRAY: GreedyBytes} | {
    code: DELTA_OPERANDS[code]
    for code in (Code.FLOAT_SET_LOW_0, Code.FLOAT_SET_LOW_2, Code.FLOAT_SET_LOW_4)
}
Skippable = Select(Value, Struct("filler" / Fillers, "item" / item(_OVER_ONLY)))


def field_of(value: Construct) -> Construct:
    """A field with values of this kind: one for the name too, where the name is an object."""
    name = Select(Name, Struct("key" / tagged(Code.EVENT_OBJECT, value)))
    return Struct("filler" / Fillers, "name" / name, "value" / value)


# ---- bodies and blocks ---------------------------------------------------------------------------

RawBytes = tagged(Code.U8_ARRAY, GreedyBytes)
HistoryBlock = FocusedSeq(
    "history",
    "history" / tagged(Code.HISTORY_MESSAGE, History),
    Fillers,
    Terminated,
)


def fields_of(value: Construct) -> Construct:
    """A map: names and values in turn."""
    return Struct("fields" / GreedyRange(field_of(value)), "filler" / Fillers, Terminated)


def values_of(value: Construct) -> Construct:
    """A sequence. It starts with a value; then values with a name may stand among those without."""
    more = GreedyRange(Select(field_of(value), value))
    run = Struct("first" / Optional(value), "more" / If(lambda this: this.first is not None, more))
    values = ExprAdapter(
        run,
        lambda run, _: [] if run.first is None else [run.first, *run.more],
        lambda values, _: {"first": values[0] if values else None, "more": values[1:]},
    )
    return Struct("values" / values, "filler" / Fillers, Terminated)


def body_of(value: Construct) -> Construct:
    """The content of a body, of the kind that its first code says; an empty body is a sequence."""
    fields = fields_of(value)
    at_least_one = FocusedSeq("map", "map" / fields, Check(lambda this: this["map"].fields))
    return Select(at_least_one, values_of(value))


def content_of(value: Construct) -> Construct:
    """The content of a block, of the kind that its first byte says."""
    return Select(RawBytes, HistoryBlock, body_of(value))


Field = field_of(Value)
# only the caller knows whether a body or a block is fields or values; a dump must guess
Fields = fields_of(Value)
Values = values_of(Value)
Content = content_of(Value)
