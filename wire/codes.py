"""The codes that start every item of a binary wire body, and the sizes of their operands.

Source: the code table of the format, checked against Java in the vectors under
    `tests/vectors/wire`. Bytes 0x00-0x7F are the numbers 0-127 themselves, 0xC0-0xDF a field name
    of 0-31 characters and 0xE0-0xFF a text of 0-31 bytes; they have no member here but their first
    byte.
"""

from enum import IntEnum
from typing import Final


class Code(IntEnum):
    BYTES_LENGTH8 = 0x80
    BYTES_LENGTH16 = 0x81
    BYTES_LENGTH32 = 0x82
    HISTORY_MESSAGE = 0x86
    FIELD_ANCHOR = 0x87
    ANCHOR = 0x88
    UPDATED_ALIAS = 0x89
    U8_ARRAY = 0x8A
    I64_ARRAY = 0x8D
    PADDING32 = 0x8E
    PADDING = 0x8F
    FLOAT32 = 0x90
    FLOAT64 = 0x91
    FLOAT_STOP_2 = 0x92
    FLOAT_STOP_4 = 0x94
    FLOAT_STOP_6 = 0x96
    FLOAT_SET_LOW_0 = 0x9A
    FLOAT_SET_LOW_2 = 0x9B
    FLOAT_SET_LOW_4 = 0x9C
    UUID = 0xA0
    UINT8 = 0xA1
    UINT16 = 0xA2
    UINT32 = 0xA3
    INT8 = 0xA4
    INT16 = 0xA5
    INT32 = 0xA6
    INT64 = 0xA7
    SET_LOW_INT8 = 0xA8
    SET_LOW_INT16 = 0xA9
    INT64_0X = 0xAF
    FALSE = 0xB0
    TRUE = 0xB1
    TIME = 0xB2
    DATE = 0xB3
    DATE_TIME = 0xB4
    ZONED_DATE_TIME = 0xB5
    TYPE_PREFIX = 0xB6
    FIELD_NAME_ANY = 0xB7
    STRING_ANY = 0xB8
    EVENT_NAME = 0xB9
    FIELD_NUMBER = 0xBA
    NULL = 0xBB
    TYPE_LITERAL = 0xBC
    EVENT_OBJECT = 0xBD
    COMMENT = 0xBE
    HINT = 0xBF
    FIELD_NAME0 = 0xC0
    STRING0 = 0xE0


SHORT_NAME_MAX: Final = 31
SHORT_TEXT_MAX: Final = 31

# struct formats of the numbers with a fixed width
FIXED_WIDTH: Final[dict[int, str]] = {
    Code.UINT8: "<B",
    Code.UINT16: "<H",
    Code.UINT32: "<I",
    Code.INT8: "<b",
    Code.INT16: "<h",
    Code.INT32: "<i",
    Code.INT64: "<q",
    Code.INT64_0X: "<q",
    Code.SET_LOW_INT8: "<B",
    Code.SET_LOW_INT16: "<H",
    Code.FLOAT32: "<f",
    Code.FLOAT64: "<d",
}
FLOATS: Final = frozenset({Code.FLOAT32, Code.FLOAT64})
# decimal fixed point: a stop-bit number divided by this
STOP_BIT_SCALE: Final[dict[int, int]] = {
    Code.FLOAT_STOP_2: 100,
    Code.FLOAT_STOP_4: 10_000,
    Code.FLOAT_STOP_6: 1_000_000,
}
# struct formats of the lengths of a nested block
BLOCK_LENGTH: Final[dict[int, str]] = {
    Code.BYTES_LENGTH8: "<B",
    Code.BYTES_LENGTH16: "<H",
    Code.BYTES_LENGTH32: "<I",
}
# a stop-bit length, then that many bytes
LENGTH_PREFIXED: Final = frozenset(
    {
        Code.TIME,
        Code.DATE,
        Code.DATE_TIME,
        Code.ZONED_DATE_TIME,
        Code.TYPE_PREFIX,
        Code.FIELD_NAME_ANY,
        Code.STRING_ANY,
        Code.EVENT_NAME,
        Code.TYPE_LITERAL,
        Code.COMMENT,
    }
)
# a field name may start with any of these, or with FIELD_NAME0..FIELD_NAME0+31
NAME_CODES: Final = frozenset({Code.FIELD_NAME_ANY, Code.EVENT_NAME, Code.FIELD_NUMBER})
SKIPPED: Final = frozenset({Code.PADDING, Code.PADDING32, Code.COMMENT})
