"""The grammar of the other kinds of binary wire, as far as they are built otherwise.

Reading needs to know of none but RAW. `wire.grammar` is the entry and lists all parts of the
grammar.

    BINARY, BINARY_LIGHT   as everywhere else
    BINARY_FIXED           numbers keep the width of the method: `wire.grammar.numeric.FIXED`
    BINARY_NUMERIC         field names are numbers: their own, or Java's hash of the name
    FIELDLESS_BINARY       field names are left out; event names stay
    RAW                    no codes; reader and writer agree beforehand on what comes
"""

from construct import (
    Byte,
    Const,
    Construct,
    Float32l,
    Float64l,
    Int8sl,
    Int8ul,
    Int16sl,
    Int16ul,
    Int32sl,
    Int32ul,
    Int64sl,
    Int64ul,
    Mapping,
    Prefixed,
    Struct,
    Terminated,
)

from wire.grammar.parts import Counted, LongName, LongTextOrNull, StopBit, units_of
from wire.grammar.requested import EventId


def name_hash(name: str) -> int:
    """Java's hash of a name, a signed number of 32 bits."""
    total = 0
    for unit in units_of(name):
        total = total * 31 + unit
    total &= 0xFFFFFFFF
    return total - (total >> 31 << 32)


def numeric_name(name: str) -> Construct:
    """A field name on a numeric wire."""
    is_number = name.isascii() and name.isdecimal() and int(name) < 1 << 31
    return Const(int(name) if is_number else name_hash(name), EventId)


# ---- RAW -----------------------------------------------------------------------------------------

RAW_WHOLE = {
    "int8": Int8sl,
    "uint8": Int8ul,
    "int16": Int16sl,
    "uint16": Int16ul,
    "int32": Int32sl,
    "uint32": Int32ul,
    "int64": Int64sl,
}
RawBool = Mapping(Byte, {True: 0xB1, False: 0x00, None: 0xBB})
RawSingle = Float32l
RawDouble = Float64l
RawText = LongTextOrNull  # type names too
RawNull = Const(-1, StopBit)
RawUuid = Struct("most" / Int64ul, "least" / Int64ul)
RawEvent = LongName  # other names are left out
RawPayload = Counted
RawDate = StopBit  # days since 1970-01-01
RawTime = Int64sl  # nanoseconds of the day


def raw_block(*parts: Construct) -> Construct:
    """A nested object or sequence; its type name stands before it."""
    return Prefixed(Int32sl, Struct(*parts, Terminated))
