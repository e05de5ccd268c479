"""Reads fields out of one document body.

A body is a run of items; each starts with a code byte. A map is names and values in turn, a
sequence is values only, and only the caller's question tells a map from a sequence. The reader
stands at an item, reads or skips it, and never looks at or past `end`, even if the bytes claim
greater lengths.
"""

import re
import struct
from collections.abc import Callable

from wire import stopbit
from wire.codes import (
    BLOCK_LENGTH,
    FIXED_WIDTH,
    FLOATS,
    LENGTH_PREFIXED,
    NAME_CODES,
    SKIPPED,
    STOP_BIT_SCALE,
    Code,
)
from wire.errors import WireError
from wire.strings import decode_name, decode_text

# taken in one step: a peer may send a document of millions of them
_PADDING_RUN = re.compile(b"\x8f+")
_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)
_LONG_BYTES = 8
_ARRAY_HEAD_BYTES = 2 * _LONG_BYTES  # capacity, used
_NULLABLE = frozenset({Code.STRING_ANY, Code.TYPE_LITERAL})  # length -1 says null


class Reader:
    """Stands at one item of `data` and moves on as items are read.

    Args:
        data: any bytes-like object; kept, never copied.
        position: where the first item starts.
        end: first byte that is not part of the body; the end of `data` when left out.
    """

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        assert 0 <= position <= self.end <= len(data)

    def peek_code(self) -> int | None:
        """Code of the next item that is no padding and no comment; None at the end."""
        while self.position < self.end:
            code = self.data[self.position]
            if code not in SKIPPED:
                return code
            self._skip_filler(code)
        return None

    def read_name(self) -> str | None:
        """The field, event or number name that stands next; None when the next item is no name."""
        code = self.peek_code()
        if code is None:
            return None
        if Code.FIELD_NAME0 <= code < Code.STRING0:
            return decode_name(self._take(1, code - Code.FIELD_NAME0))
        if code not in NAME_CODES:
            return None
        start = self.position
        number, self.position = stopbit.decode(self.data, start + 1, self.end)
        if code == Code.FIELD_NUMBER:
            return str(number)
        if number < 0:  # -1 stands for "none", and is read as an empty name
            self._check_null_length(number, start)
            return ""
        return decode_name(self._take(0, number))

    def read_type(self) -> str | None:
        """The type prefix that stands next; None when there is none."""
        if self.peek_code() != Code.TYPE_PREFIX:
            return None
        return self._prefixed_text()

    def read_int(self) -> int:
        """A 64-bit number of any width; float codes are truncated towards zero."""
        start, code = self._next("a number")
        if code < Code.BYTES_LENGTH8:
            self.position = start + 1
            return code
        layout = FIXED_WIDTH.get(code)
        if layout is not None:
            (value,) = struct.unpack(layout, self._take(1, struct.calcsize(layout)))
            return _truncate(value) if code in FLOATS else int(value)
        scale = STOP_BIT_SCALE.get(code)
        if scale is None:
            raise WireError(f"a number was expected, code 0x{code:02X} came", start)
        value, self.position = stopbit.decode(self.data, start + 1, self.end)
        return _truncate(float(value) / scale)  # as Java has it: first a double, then the division

    def read_float(self) -> float:
        """A number of any code as a double."""
        start, code = self._next("a number")
        if code in FLOATS:
            layout = FIXED_WIDTH[code]
            (value,) = struct.unpack(layout, self._take(1, struct.calcsize(layout)))
            return float(value)
        scale = STOP_BIT_SCALE.get(code)
        if scale is None:
            return float(self.read_int())
        number, self.position = stopbit.decode(self.data, start + 1, self.end)
        return float(number) / scale

    def read_text(self) -> str | None:
        """A text; None where a null stands."""
        start, code = self._next("a text")
        if code == Code.NULL:
            self.position = start + 1
            return None
        if code >= Code.STRING0:
            return decode_text(self._take(1, code - Code.STRING0), start)
        if code != Code.STRING_ANY:
            raise WireError(f"a text was expected, code 0x{code:02X} came", start)
        return self._prefixed_text()

    def read_coded_text(self) -> str | None:
        """The text behind a code and a length, such as a date or a type literal; None for null."""
        start, code = self._next("a text behind a length")
        if code not in LENGTH_PREFIXED:
            raise WireError(f"a text behind a length was expected, code 0x{code:02X} came", start)
        return self._prefixed_text()

    def read_bool(self) -> bool:
        """True or false."""
        start, code = self._next("true or false")
        if code not in (Code.TRUE, Code.FALSE):
            raise WireError(f"true or false was expected, code 0x{code:02X} came", start)
        self.position = start + 1
        return code == Code.TRUE

    def read_block(self) -> "Reader":
        """A reader over the content of the nested block that stands next."""
        start, code = self._next("a block")
        layout = BLOCK_LENGTH.get(code)
        if layout is None:
            raise WireError(f"a block was expected, code 0x{code:02X} came", start)
        (length,) = struct.unpack(layout, self._take(1, struct.calcsize(layout)))
        inner = self.position
        self._advance(length)
        return Reader(self.data, inner, self.position)

    def read_fields(self) -> "dict[str, Reader]":
        """Every named value up to the end, each under its name; of two alike the first is kept."""
        fields: dict[str, Reader] = {}
        while self.peek_code() is not None:
            start = self.position
            name = self.read_name()
            if name is None:
                raise WireError(
                    f"a field name was expected, code 0x{self.data[start]:02X} came", start
                )
            value = self.position
            self.skip_value()
            fields.setdefault(name, Reader(self.data, value, self.position))
        return fields

    def read_bound_int64(self) -> int:
        """Position of the 8 bytes of a 64-bit number that is updated in place."""
        start, code = self._next("a 64-bit number in place")
        if code != Code.INT64:
            raise WireError(f"a 64-bit number was expected, code 0x{code:02X} came", start)
        self._take(1, _LONG_BYTES)
        return start + 1

    def read_bound_array(self) -> int:
        """Position of an in-place array of longs: capacity, used, then the values."""
        start, code = self._next("an array of longs")
        if code != Code.I64_ARRAY:
            raise WireError(f"an array of longs was expected, code 0x{code:02X} came", start)
        head = self._take(1, _ARRAY_HEAD_BYTES)
        (capacity,) = struct.unpack_from("<q", head)
        if capacity <= 0:
            raise WireError(f"an array of longs says it has {capacity} places", start)
        self._advance(capacity * _LONG_BYTES)
        return start + 1

    def skip_value(self) -> None:
        """Steps over the next value as a whole, with its type prefixes; looks into nothing, so
        that not even the text in it need be valid."""
        start, code = self._next("a value")
        while code == Code.TYPE_PREFIX:
            self._skip_prefixed()
            start, code = self._next("a value behind its type")
        if code < Code.BYTES_LENGTH8:
            self.position = start + 1
        elif code >= Code.STRING0:
            self._take(1, code - Code.STRING0)
        elif code in BLOCK_LENGTH:
            self.read_block()
        elif code in FIXED_WIDTH:
            self._take(1, struct.calcsize(FIXED_WIDTH[code]))
        elif code in _SKIP:
            _SKIP[code](self)
        elif code in LENGTH_PREFIXED and code not in NAME_CODES:
            self._skip_prefixed()
        else:
            raise WireError(f"a value was expected, code 0x{code:02X} came", start)

    def _next(self, wanted: str) -> tuple[int, int]:
        code = self.peek_code()
        if code is None:
            raise WireError(f"{wanted} was expected, the block ends", self.position)
        return self.position, code

    def _skip_filler(self, code: int) -> None:
        if code == Code.PADDING:
            run = _PADDING_RUN.match(self.data, self.position, self.end)
            assert run is not None
            self.position = run.end()
        elif code == Code.PADDING32:
            (length,) = struct.unpack("<I", self._take(1, 4))
            self._advance(length)
        else:
            self._skip_prefixed()

    def _prefixed_text(self) -> str | None:
        start = self.position
        length = self._prefixed_length()
        return None if length is None else decode_text(self._take(0, length), start)

    def _skip_prefixed(self) -> None:
        self._advance(self._prefixed_length() or 0)

    def _prefixed_length(self) -> int | None:
        """Length of the text behind the code, and moves to it; None for a null."""
        start = self.position
        length, self.position = stopbit.decode(self.data, start + 1, self.end)
        if length >= 0:
            return length
        self._check_null_length(length, start)
        if self.data[start] not in _NULLABLE:
            raise WireError("a text was expected, length -1 says null", start)
        return None

    def _check_null_length(self, length: int, start: int) -> None:
        if length != -1:
            raise WireError(f"length {length} is negative", start)

    def _skip_stop_bit(self) -> None:
        _, self.position = stopbit.decode(self.data, self.position + 1, self.end)

    def _skip_one(self) -> None:
        self.position += 1

    def _skip_uuid(self) -> None:
        self._take(1, 2 * _LONG_BYTES)

    def _skip_array(self) -> None:
        self.read_bound_array()

    def _advance(self, length: int) -> None:
        if length > self.end - self.position:
            raise WireError(
                f"{length} bytes were announced, {self.end - self.position} are left",
                self.position,
            )
        self.position += length

    def _take(self, skip: int, length: int) -> bytes:
        """The next `length` bytes behind `skip` more, and moves past them."""
        self._advance(skip + length)
        return bytes(self.data[self.position - length : self.position])


_SKIP: dict[int, Callable[[Reader], None]] = {
    Code.NULL: Reader._skip_one,
    Code.TRUE: Reader._skip_one,
    Code.FALSE: Reader._skip_one,
    Code.UUID: Reader._skip_uuid,
    Code.I64_ARRAY: Reader._skip_array,
    Code.FLOAT_STOP_2: Reader._skip_stop_bit,
    Code.FLOAT_STOP_4: Reader._skip_stop_bit,
    Code.FLOAT_STOP_6: Reader._skip_stop_bit,
}


def _truncate(value: float) -> int:
    """Java's conversion of a double to a long: towards zero, saturating, NaN is 0."""
    if value != value:
        return 0
    if value >= _INT64_MAX:
        return _INT64_MAX
    if value <= _INT64_MIN:
        return _INT64_MIN
    return int(value)
