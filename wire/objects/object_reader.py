"""Reads the item that stands next, of any kind, as a Python value.

Theory of operation. Codes say what a value is, a block's first item says whether it is a map, a
sequence or bytes, and a type name in front is kept beside the value (`Typed`) unless it names
something that Python has: numbers, text, sets, arrays of numbers, null. A name never makes anything
be loaded. Nesting has a limit, so that bytes cannot exhaust the stack.

    item                          value
    whole number                  int         (Int8, Int16, Int32, Int64 with `keep_widths`)
    floating-point number         float       (Float32, Float64 with `keep_widths`)
    text, true, false, null       str, bool, None
    date, time, UUID, class       datetime's types or text of its own type, uuid.UUID, TypeLiteral
    block                         dict, list, bytes or History; an empty one is a list
    array of longs in place       LongArray

In a map of the same name twice the last value stays. Fields between values that have no name are a
dict among them. Source: sections 5 and 10 of the format.
"""

import array
import struct
import uuid
from collections.abc import Callable, Hashable
from typing import Final

from wire.codes import BLOCK_LENGTH, FIXED_WIDTH, FLOATS, NAME_CODES, STOP_BIT_SCALE, Code
from wire.errors import WireError
from wire.objects.compressed import uncompressed
from wire.objects.conversions import INT64_MAX, content, next_code, read_array, refuse_compressed
from wire.objects.times import python_time
from wire.objects.values import (
    TIME_OF_CODE,
    WHOLE_OF_CODE,
    Float32,
    Float64,
    History,
    Int8,
    Int16,
    Int32,
    Int64,
    LongArray,
    Typed,
    TypeLiteral,
    Whole,
)
from wire.objects.variants import COMPRESSIONS, unsupported_code
from wire.reader import Reader

NESTING_MAX: Final = 64
HISTORY_NAME: Final = "history"
HISTORY_ID: Final = -1
_WHOLE_TYPES: Final[dict[str, type[Whole]]] = {
    "byte": Int8,
    "short": Int16,
    "int": Int32,
    "long": Int64,
}
_FLOAT_TYPES: Final[dict[str, type[float]]] = {"float": Float32, "double": Float64}
_ARRAY_TYPES: Final = {"short[]": "h", "int[]": "i", "long[]": "q", "float[]": "f", "double[]": "d"}
_FLOAT_ARRAYS: Final = "fd"
_SETS: Final = frozenset({"!set"})
_TRANSPARENT: Final = frozenset({"String", "!seq", "!map", "!binary", "byte[]", "UUID", "type"})
_TIMES: Final = frozenset({"Date", "Time", "DateTime", "ZonedDateTime"})


def read_object(reader: Reader, *, keep_widths: bool = False) -> object:
    """The value that stands next.

    >>> read_object(Reader(bytes.fromhex("8204000000c161a101")))
    {'a': 1}
    >>> read_object(Reader(bytes.fromhex("b603466f6fe162")))
    Typed(name='Foo', value='b')

    Raises:
        WireError: no value stands there, or it is nested too deep.
    """
    return _Objects(keep_widths).value(reader)


def read_body(
    reader: Reader, *, keep_widths: bool = False, unpacked_max: int | None = None
) -> object:
    """The content of a document body: a dict of its fields, its only value, or a list of its
    values; None where it has none.

    Args:
        unpacked_max: bytes that all compressed values together may become; None: they are refused,
            as in all that a peer sends.

    >>> read_body(Reader(bytes.fromhex("c161a101c162e178")))
    {'a': 1, 'b': 'x'}
    """
    objects = _Objects(keep_widths, unpacked_max)
    if _is_map(reader):
        return objects.fields(reader)
    values = objects.values(reader)
    return values[0] if len(values) == 1 else values or None


def read_event(reader: Reader) -> str | None:
    """The name of the field or event that stands next, whose number may say that it is the
    history."""
    is_number = reader.peek_code() == Code.FIELD_NUMBER
    name = reader.read_name()
    return HISTORY_NAME if is_number and name == str(HISTORY_ID) else name


def read_history(block: Reader) -> History:
    """The history that a block holds, from its first code on."""
    start = block.position
    data = bytes(block.data[start + 1 : block.end])
    try:
        sources = data[0]
        ids = struct.unpack_from(f"<{sources}i", data, 1)
        indexes = struct.unpack_from(f"<{sources}q", data, 1 + 4 * sources)
        at = 1 + 12 * sources
        times = struct.unpack_from(f"<{data[at]}q", data, at + 1)
    except (struct.error, IndexError) as error:
        raise WireError("a message history was expected, the block ends", start) from error
    block.position = start + 1 + at + 1 + 8 * len(times)
    return History(tuple(zip(ids, indexes, strict=True)), times)


def _is_map(reader: Reader) -> bool:
    code = reader.peek_code()
    if code is None:
        return False
    is_short_name = Code.FIELD_NAME0 <= code < Code.STRING0
    return is_short_name or code in NAME_CODES or code == Code.EVENT_OBJECT


class _Objects:
    """Reads one value with all that is in it."""

    def __init__(self, keep_widths: bool, unpacked_max: int | None = None) -> None:
        self._keep_widths = keep_widths
        self._unpacked_left = unpacked_max  # None: what is compressed is refused
        self._depth = 0

    def value(self, reader: Reader) -> object:
        code = next_code(reader, "a value")
        read = _READ.get(code)
        if read is not None:
            return read(self, reader)
        if code < Code.BYTES_LENGTH8:
            return self._whole(Int32, reader.read_int())
        if code >= Code.STRING0:
            return reader.read_text()
        raise unsupported_code(code, reader.position)

    def fields(self, reader: Reader) -> dict[Hashable, object]:
        found = self.fields_among(reader)
        code = reader.peek_code()
        if code is not None:
            raise WireError(f"a field name was expected, code 0x{code:02X} came", reader.position)
        return found

    def fields_among(self, reader: Reader) -> dict[Hashable, object]:
        """The fields from here to the next value without a name."""
        found: dict[Hashable, object] = {}
        while _is_map(reader):
            if reader.data[reader.position] == Code.EVENT_OBJECT:
                reader.position += 1
                name = _as_key(self._nested(reader, self.value))
            else:
                name = read_event(reader)
            found[name] = self.value(reader)
        return found

    def values(self, reader: Reader) -> list[object]:
        found: list[object] = []
        while reader.peek_code() is not None:
            found.append(self.fields_among(reader) if _is_map(reader) else self.value(reader))
        return found

    def whole_number(self, reader: Reader) -> object:
        code = next_code(reader, "a number")
        return self._whole(WHOLE_OF_CODE[code], reader.read_int())

    def floating(self, reader: Reader) -> object:
        code = next_code(reader, "a number")
        value = reader.read_float()
        if not self._keep_widths:
            return value
        return Float32(value) if code == Code.FLOAT32 else Float64(value)

    def null(self, reader: Reader) -> None:
        reader.position += 1

    def time(self, reader: Reader) -> object:
        code, start = next_code(reader, "a date or time"), reader.position
        text = reader.read_coded_text()
        try:
            return python_time(code, text or "")
        except WireError as error:
            raise WireError(error.reason, start) from error

    def uuid(self, reader: Reader) -> uuid.UUID:
        start = reader.position + 1
        reader.skip_value()
        high, low = struct.unpack_from("<QQ", reader.data, start)
        return uuid.UUID(int=high << 64 | low)

    def type_literal(self, reader: Reader) -> TypeLiteral | None:
        name = reader.read_coded_text()
        return None if name is None else TypeLiteral(name)

    def long_array(self, reader: Reader) -> LongArray:
        start = reader.read_bound_array()
        capacity, used = struct.unpack_from("<qq", reader.data, start)
        return LongArray(struct.unpack_from(f"<{capacity}q", reader.data, start + 16), used)

    def bare_bytes(self, reader: Reader) -> bytes:
        reader.position += 1
        return content(reader)

    def block(self, reader: Reader) -> object:
        block = reader.read_block()
        first = block.data[block.position] if block.position < block.end else None
        if first == Code.U8_ARRAY:
            block.position += 1
            return content(block)
        if first == Code.HISTORY_MESSAGE:
            return self._history(block)
        return self._nested(block, self._map_or_sequence)

    def typed(self, reader: Reader) -> object:
        start = reader.position
        name = reader.read_type()
        assert name is not None
        if name in COMPRESSIONS and self._unpacked_left is not None:
            found = uncompressed(name, read_array(reader), start, self._unpacked_left)
            self._unpacked_left -= len(found)
            return found
        refuse_compressed(name, start)
        value = self._nested(reader, self.value)
        try:
            return self._of_type(name, value)
        except (ValueError, OverflowError, TypeError) as error:
            raise WireError(f"a value of type {name} was expected ({error})", start) from error

    def _of_type(self, name: str, value: object) -> object:
        """The value without its type name, where Python has that type."""
        if name in _TRANSPARENT or (name in _TIMES and not isinstance(value, str)):
            return value
        if name == "!null" and value is None:
            return None
        if name in _WHOLE_TYPES and isinstance(value, int | float):
            return self._whole(_WHOLE_TYPES[name], _as_whole(value))
        if name in _FLOAT_TYPES and isinstance(value, int | float):
            return _FLOAT_TYPES[name](value) if self._keep_widths else float(value)
        if name in _ARRAY_TYPES and isinstance(value, list):
            kind = _ARRAY_TYPES[name]
            return array.array(kind, value if kind in _FLOAT_ARRAYS else map(_as_whole, value))
        if name in _SETS and isinstance(value, list):
            return {_as_key(item) for item in value}
        return Typed(name, value)

    def _history(self, block: Reader) -> History:
        history = read_history(block)
        if block.peek_code() is not None:
            raise WireError("the end of a message history was expected", block.position)
        return history

    def _map_or_sequence(self, block: Reader) -> object:
        return self.fields(block) if _is_map(block) else self.values(block)

    def _nested(self, reader: Reader, read: Callable[[Reader], object]) -> object:
        if self._depth == NESTING_MAX:
            raise WireError(
                f"at most {NESTING_MAX} nested values were expected, one more came",
                reader.position,
            )
        self._depth += 1
        try:
            return read(reader)
        finally:
            self._depth -= 1

    def _whole(self, width: type[Whole], value: int) -> int:
        marked = width(value)  # also the check of a value behind a type name
        return marked if self._keep_widths else value


def _as_whole(value: object) -> int:
    """A number that Java writes as a float although it is whole; 2^63 stands for 2^63-1.

    Raises:
        ValueError: it is not whole.
    """
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return min(int(value), INT64_MAX)
    raise ValueError(f"a whole number was expected, {value!r:.40} came")


def _as_key(value: object) -> Hashable:
    """The value as something that a dict or a set can hold."""
    if isinstance(value, list):
        return tuple(_as_key(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _as_key(item)) for name, item in value.items())
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, array.array):
        return tuple(value)
    if isinstance(value, Typed):
        return Typed(value.name, _as_key(value.value))
    assert isinstance(value, Hashable)
    return value


_READ: Final[dict[int, Callable[[_Objects, Reader], object]]] = {
    **dict.fromkeys(set(FIXED_WIDTH) - FLOATS, _Objects.whole_number),
    **dict.fromkeys((*FLOATS, *STOP_BIT_SCALE), _Objects.floating),
    **dict.fromkeys(BLOCK_LENGTH, _Objects.block),
    **dict.fromkeys(TIME_OF_CODE, _Objects.time),
    Code.TRUE: lambda _, reader: reader.read_bool(),
    Code.FALSE: lambda _, reader: reader.read_bool(),
    Code.NULL: _Objects.null,
    Code.STRING_ANY: lambda _, reader: reader.read_text(),
    Code.UUID: _Objects.uuid,
    Code.TYPE_LITERAL: _Objects.type_literal,
    Code.TYPE_PREFIX: _Objects.typed,
    Code.I64_ARRAY: _Objects.long_array,
    Code.U8_ARRAY: _Objects.bare_bytes,
}
