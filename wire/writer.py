"""Writes fields into document bodies, in the codes that Java chooses for the same values.

Whole numbers take a width by their value, not by their type; a few large ones go out as 32-bit
floats (any that survive the round trip), which is Java's doing and is copied so that the bytes are
equal. Values that are updated in place are aligned by padding, counted from the start of the file
(`origin`).
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from wire import stopbit
from wire.codes import SHORT_NAME_MAX, SHORT_TEXT_MAX, Code
from wire.header import HEADER_BYTES, LENGTH_MASK, META_DATA
from wire.strings import encode_name, encode_prefixed_name, encode_text

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
_LONG_BYTES = 8
_PAIR_ALIGNMENT = 16
_SHORT_PADDING_MAX = 4
_WORD = struct.Struct("<I")


class Writer:
    """Appends to `data`. `origin` is the file offset of its first byte."""

    def __init__(self, origin: int = 0) -> None:
        self.data = bytearray()
        self.origin = origin

    @property
    def position(self) -> int:
        """File offset of the next byte."""
        return self.origin + len(self.data)

    @contextmanager
    def document(self, *, metadata: bool, pad: bool = False) -> Iterator[None]:
        """A document: its header word is set when the block ends; `pad` fills the body to 4
        bytes."""
        start = len(self.data)
        self.data += bytes(HEADER_BYTES)
        yield
        if pad:
            self.padding(-len(self.data) % 4)
        length = len(self.data) - start - HEADER_BYTES
        assert length <= LENGTH_MASK
        _WORD.pack_into(self.data, start, length | (META_DATA if metadata else 0))

    @contextmanager
    def block(self) -> Iterator[None]:
        """A nested block with a 32-bit length, however short, as Java's marshallables have."""
        self.data.append(Code.BYTES_LENGTH32)
        start = len(self.data)
        self.data += bytes(_WORD.size)
        yield
        _WORD.pack_into(self.data, start, len(self.data) - start - _WORD.size)

    def name(self, name: str) -> None:
        """A field name; one that is a 32-bit decimal number goes out as that number."""
        encoded = encode_name(name)
        if len(encoded) > SHORT_NAME_MAX:
            self._prefixed(Code.FIELD_NAME_ANY, encode_prefixed_name(name))
        elif encoded.isdigit() and int(encoded) <= _INT32_MAX:
            self.data.append(Code.FIELD_NUMBER)
            self.data += stopbit.encode(int(encoded))
        else:
            self.data.append(Code.FIELD_NAME0 + len(encoded))
            self.data += encoded

    def event(self, name: str) -> None:
        """An event name."""
        self._prefixed(Code.EVENT_NAME, encode_prefixed_name(name))

    def type_prefix(self, name: str) -> None:
        """The class name or alias of the value that follows."""
        self._prefixed(Code.TYPE_PREFIX, encode_text(name))

    def text(self, text: str) -> None:
        """A text value."""
        encoded = encode_text(text)
        if len(encoded) <= SHORT_TEXT_MAX:
            self.data.append(Code.STRING0 + len(encoded))
            self.data += encoded
        else:
            self._prefixed(Code.STRING_ANY, encoded)

    def time_text(self, text: str) -> None:
        """A local time, given as text."""
        self._prefixed(Code.TIME, encode_text(text))

    def comment(self, text: str) -> None:
        """A comment, which readers skip."""
        self._prefixed(Code.COMMENT, encode_text(text))

    def integer(self, value: int) -> None:
        """A whole number of up to 64 bits, as narrow as its value allows."""
        self.data += encode_int(value)

    def hex_int(self, value: int) -> None:
        """A 64-bit number that is shown in hexadecimal; never shortened."""
        self.data += struct.pack("<Bq", Code.INT64_0X, value)

    def boolean(self, value: bool) -> None:
        """True or false."""
        self.data.append(Code.TRUE if value else Code.FALSE)

    def null(self) -> None:
        """No value."""
        self.data.append(Code.NULL)

    def bytes_literal(self, payload: bytes | memoryview) -> None:
        """Raw bytes behind a length, without the array code that ordinary byte values have."""
        self.data += block_head(len(payload))
        self.data += payload

    def padding(self, length: int) -> None:
        """`length` bytes that readers skip."""
        assert length >= 0
        if length <= _SHORT_PADDING_MAX:
            self.data += bytes([Code.PADDING]) * length
        else:
            rest = length - 1 - _WORD.size
            self.data += struct.pack("<BI", Code.PADDING32, rest) + bytes(rest)

    def align(self, alignment: int, ahead: int) -> None:
        """Padding, so that the byte `ahead` bytes further on is aligned in the file."""
        self.padding(-(self.position + ahead) % alignment)

    def bound_int64(self, value: int) -> int:
        """A 64-bit number to be updated in place; answers its file offset, a multiple of 8."""
        self.align(_LONG_BYTES, 1)
        self.data += struct.pack("<Bq", Code.INT64, value)
        return self.position - _LONG_BYTES

    def bound_int128(self, first: int, second: int) -> int:
        """Two longs to be updated in place; answers the file offset of the first, a multiple of
        16."""
        self.align(_PAIR_ALIGNMENT, 1)
        self.data += struct.pack("<Bqqqq", Code.I64_ARRAY, 2, 2, first, second)
        return self.position - 2 * _LONG_BYTES

    def int64_array(self, capacity: int) -> int:
        """An array of `capacity` longs, all 0; answers the file offset of its capacity word."""
        self.align(_LONG_BYTES, 1)
        self.data.append(Code.I64_ARRAY)
        position = self.position
        self.data += struct.pack("<qq", capacity, 0) + bytes(capacity * _LONG_BYTES)
        return position

    def _prefixed(self, code: Code, encoded: bytes) -> None:
        self.data.append(code)
        self.data += stopbit.encode(len(encoded))
        self.data += encoded


def encode_int(value: int) -> bytes:
    """The item of a whole number, in the width that Java's writer picks for the value."""
    if value >= 0:
        if value <= 0xFF:
            return struct.pack("<BB", Code.UINT8, value)
        if value <= 0x7FFF:
            return struct.pack("<Bh", Code.INT16, value)
        if value <= 0xFFFF:
            return struct.pack("<BH", Code.UINT16, value)
        if value <= 0x7FFFFFFF:
            return struct.pack("<Bi", Code.INT32, value)
        if value <= 0xFFFFFFFF:
            return struct.pack("<BI", Code.UINT32, value)
    elif value >= -0x80:
        return struct.pack("<Bb", Code.INT8, value)
    elif value >= -0x8000:
        return struct.pack("<Bh", Code.INT16, value)
    elif value >= -0x80000000:
        return struct.pack("<Bi", Code.INT32, value)
    if _survives_float32(value):
        return struct.pack("<Bf", Code.FLOAT32, value)
    return struct.pack("<Bq", Code.INT64, value)


def block_head(length: int) -> bytes:
    """Code and length of a block of raw bytes, in the smallest of the three widths."""
    if length <= 0xFF:
        return struct.pack("<BB", Code.BYTES_LENGTH8, length)
    if length <= 0xFFFF:
        return struct.pack("<BH", Code.BYTES_LENGTH16, length)
    return struct.pack("<BI", Code.BYTES_LENGTH32, length)


def _survives_float32(value: int) -> bool:
    # Java's float-to-long conversion saturates, so 2^63-1 "survives" although it is no float
    if value == _INT64_MAX:
        return True
    (back,) = struct.unpack("<f", struct.pack("<f", value))
    return bool(back == value)
