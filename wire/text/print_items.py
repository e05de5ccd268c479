"""The text of the items of one document body.

Theory of operation. A body, and likewise the inside of a nested block, is a run of items; names,
types and comments are items of their own. So rendering is one loop over codes: each code has a
method that reads its operand, hands the spelling to the layout (`wire.text.print_layout`) and gives
the position behind it. A block opens a map or a sequence by its first byte and runs the same loop.

Where Java's dump gives up, so does this one (`WireError`): unassigned codes, lengths that leave
their block, text that is not UTF-8, UUIDs, a small number where a name must come. One reason is
ours: nesting deeper than `NESTING_MAX`. At the end of a block Java reads a byte as -1 and a length
as 0; these habits are kept, since a payload may end in any code.

Source: section 9.3 of the format, and the vectors under `tests/vectors/wire`.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from wire import stopbit
from wire.codec import NATIVE
from wire.codes import BLOCK_LENGTH, FIXED_WIDTH, NAME_CODES, STOP_BIT_SCALE, Code
from wire.errors import WireError
from wire.objects.float_text import float_text
from wire.objects.time_text import date_text, date_time_text, time_text, zoned_text
from wire.objects.values import TIME_OF_CODE, TypeLiteral
from wire.strings import decode_name, decode_text
from wire.text.print_layout import Layout
from wire.text.print_scalars import copied, payload_text, quoted

NESTING_MAX: Final = 64

_BYTE_AT_END: Final = "-1"  # what Java reads for a byte at the end of a block
_NULL_TEXT: Final = '!!null ""'
_HISTORY_ID: Final = -1
_HISTORY_NAME: Final = "history"
_BYTES_TYPE: Final = "byte[]"
_BOUND_VALUES_MAX: Final = 2  # an array of so few entries, all in use, is a bound value or a pair
_SMALL_NUMBERS: Final = range(0x80)
_SHORT_NAMES: Final = range(Code.FIELD_NAME0, Code.STRING0)
_SHORT_TEXTS: Final = range(Code.STRING0, 0x100)
_MAP_STARTS: Final = frozenset({*NAME_CODES, Code.EVENT_OBJECT, *_SHORT_NAMES})
_CONTROL: Final = bytes(range(0x20))
_TIMES: Final[dict[int, Callable[[str], str]]] = {
    Code.TIME: time_text,
    Code.DATE: date_text,
    Code.DATE_TIME: date_time_text,
    Code.ZONED_DATE_TIME: zoned_text,
}
_CONSTANTS: Final[dict[int, str]] = {
    **{number: str(number) for number in _SMALL_NUMBERS},
    Code.FALSE: "false",
    Code.TRUE: "true",
    Code.NULL: _NULL_TEXT,
}
_VALUES: Final[dict[int, bool | None]] = {Code.FALSE: False, Code.TRUE: True, Code.NULL: None}
_TYPE_OF_NUMBER: Final[dict[int, str]] = {Code.INT8: "byte", Code.INT16: "short"}
_TYPE_OF_EACH: Final = _TYPE_OF_NUMBER | {
    Code.UINT8: "uint8",
    Code.UINT16: "uint16",
    Code.UINT32: "uint32",
    Code.INT32: "int",
    Code.INT64: "long",
    Code.FLOAT32: "float",
    Code.FLOAT64: "double",
}
# enums that Java's dump knows: it drops a constant that is not one of theirs
_ENUMS: Final = {
    "WireType": (
        *("TEXT", "BINARY", "BINARY_LIGHT", "DEFAULT_ZERO_BINARY", "RAW", "CSV"),
        *("FIELDLESS_BINARY", "COMPRESSED_BINARY", "JSON", "JSON_ONLY", "YAML", "YAML_ONLY"),
        "READ_ANY",
    ),
    "TimeUnit": (
        *("NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"),
    ),
}
# types that Java's dump resolves by these names; any other makes one item with its value, which
# shows only where the item is the key of an event: there the value of the event follows as key
_KNOWN_TYPES: Final = frozenset(
    (
        *("!set", "!oset", "!seq", "!map", "!omap", "!bitset", "!binary", "!null", "set", "map"),
        *("byte", "short", "int", "long", "float", "double", "char", "void", "type", "String"),
        *("Byte", "Short", "Integer", "Long", "Float", "Double", "Char", "Character", "Class"),
        *("int8", "int16", "int32", "int64", "float32", "float64", "Float32", "Float64", "UUID"),
        *("short[]", "int[]", "long[]", "float[]", "double[]", "char[]", "boolean[]", "String[]"),
        *("LocalDate", "LocalTime", "LocalDateTime", "ZonedDateTime", "Date", "DateTime", "Time"),
        *("List", "Map", "Set", "CharSequence"),
    )
)


def render_items(body: bytes | memoryview, *, fold_unused: bool, is_typed: bool = False) -> str:
    """The text of a whole body.

    Args:
        fold_unused: give only the count of the unused zeros at the end of an array (Java does not).
        is_typed: each number of a fixed width says which one (Java says so of few).

    Raises:
        WireError: the body cannot be rendered.
    """
    if NATIVE is not None:
        text = NATIVE.render_items(body, fold_unused, is_typed)
        if text is not NotImplemented:
            return str(text)
    return plainly_rendered(body, fold_unused=fold_unused, is_typed=is_typed)


def plainly_rendered(body: bytes | memoryview, *, fold_unused: bool, is_typed: bool = False) -> str:
    """The same by the printer in plain Python alone, which is the reference."""
    layout = Layout()
    print_items(body, layout, fold_unused=fold_unused, is_typed=is_typed)
    return layout.text()


class ItemLayout(Protocol):
    """Takes the items of a body one after the other, each as its text and as what it says."""

    def scalar(self, text: str, value: object) -> None:
        """A complete value."""

    def name(self, quoted: str, name: str) -> None:
        """The name of the value that comes next."""

    def type_prefix(self, shown: str, name: str) -> None:
        """The type of the value that comes next."""

    def comment(self, text: str) -> None:
        """A comment on the rest of this line."""

    def set_leaf(self, leaf: bool) -> None:
        """Puts the next items on one line, or each on its own."""

    def event_key(self) -> AbstractContextManager[None]:
        """Around the item that names an event by an object."""

    def sequence(self) -> AbstractContextManager[None]:
        """Around the items of a sequence."""

    def map(self, *, may_fold: bool = True) -> AbstractContextManager[None]:
        """Around the names and values of a map."""


def print_items(
    body: bytes | memoryview,
    layout: ItemLayout,
    *,
    fold_unused: bool = False,
    is_typed: bool = False,
) -> None:
    """Hands the items of a whole body to a layout; arguments and errors as `render_items`."""
    renderer = _Renderer(body, layout, fold_unused)
    renderer.types = _TYPE_OF_EACH if is_typed else _TYPE_OF_NUMBER
    renderer.refuse_small_number(0, len(body))
    renderer.items(0, len(body))


class _Renderer:
    def __init__(self, body: bytes | memoryview, layout: ItemLayout, fold_unused: bool) -> None:
        self._body = body
        self._fold_unused = fold_unused
        self._depth = 0
        self.types = _TYPE_OF_NUMBER
        self.layout = layout

    def items(self, at: int, end: int) -> None:
        while at < end:
            at = self._item(at, end)

    def refuse_small_number(self, at: int, end: int) -> None:
        """Raises where Java's dump takes no number: at the start of a document, and for a key."""
        if at < end and self._body[at] in _SMALL_NUMBERS:
            raise WireError("a name or a coded value was expected, a small number came", at)

    def _item(self, at: int, end: int) -> int:
        code = self._body[at]
        return _RENDERERS[code](self, code, at + 1, end)

    def _item_if_any(self, at: int, end: int) -> int:
        return self._item(at, end) if at < end else at

    # --- operands -------------------------------------------------------------------------------

    def _take(self, at: int, count: int, end: int) -> bytes:
        if count < 0 or count > end - at:
            raise WireError(f"{count} bytes were expected, the block has {end - at} left", at)
        return bytes(self._body[at : at + count])

    def _unpack(self, form: str, at: int, end: int) -> tuple[int | float, ...]:
        values: tuple[int | float, ...] = struct.unpack(
            form, self._take(at, struct.calcsize(form), end)
        )
        return values

    def _prefixed(self, at: int, end: int) -> tuple[bytes | None, int]:
        """The bytes behind a stop-bit length, none for length -1; and the position behind them."""
        if at == end:
            return b"", at  # Java reads a length of 0 at the end of a block
        length, at = stopbit.decode(self._body, at, end)
        if length == -1:
            return None, at
        return self._take(at, length, end), at + length

    def _prefixed_text(self, at: int, end: int) -> tuple[str, int]:
        raw, at = self._prefixed(at, end)
        if raw is None:
            raise WireError("a text was expected, null came", at)
        return decode_text(raw), at

    # --- numbers and constants ------------------------------------------------------------------

    def _number(self, code: int, at: int, end: int) -> int:
        form = FIXED_WIDTH[code]
        if at == end and form == "<B":
            self.layout.scalar(_BYTE_AT_END, int(_BYTE_AT_END))
            return at
        (value,) = self._unpack(form, at, end)
        if code in self.types:
            self.layout.type_prefix(self.types[code], self.types[code])
        self.layout.scalar(float_text(value) if isinstance(value, float) else str(value), value)
        return at + struct.calcsize(form)

    def _hexadecimal(self, code: int, at: int, end: int) -> int:
        value = int.from_bytes(self._take(at, 8, end), "little")
        self.layout.scalar(f"0x{value:x}", value)
        return at + 8

    def _decimal(self, code: int, at: int, end: int) -> int:
        value, at = stopbit.decode(self._body, at, end)
        number = float(value) / STOP_BIT_SCALE[code]
        self.layout.scalar(float_text(number), number)
        return at

    def _constant(self, code: int, at: int, end: int) -> int:
        self.layout.scalar(_CONSTANTS[code], code if code in _SMALL_NUMBERS else _VALUES[code])
        return at

    # --- text -----------------------------------------------------------------------------------

    def _text(self, code: int, at: int, end: int) -> int:
        text, at = self._text_operand(code, at, end)
        self.layout.scalar(_NULL_TEXT if text is None else quoted(text), text)
        return at

    def _text_operand(self, code: int, at: int, end: int) -> tuple[str | None, int]:
        if code in _SHORT_TEXTS:
            stop = at + code - Code.STRING0
            return decode_text(self._take(at, stop - at, end)), stop
        raw, at = self._prefixed(at, end)
        return None if raw is None else decode_text(raw), at

    def _time(self, code: int, at: int, end: int) -> int:
        raw, at = self._prefixed(at, end)
        if raw is None:
            self.layout.scalar(_NULL_TEXT, None)
        else:
            text = decode_text(raw)
            self.layout.scalar(_TIMES[code](text), TIME_OF_CODE[code](text))
        return at

    def _type_literal(self, code: int, at: int, end: int) -> int:
        raw, at = self._prefixed(at, end)
        if raw is None:
            self.layout.scalar(_NULL_TEXT, None)
        else:
            name = decode_text(raw)
            self.layout.scalar(f"!type {quoted(name)}", TypeLiteral(name))
        return at

    # --- what stands around values --------------------------------------------------------------

    def _padding(self, code: int, at: int, end: int) -> int:
        return at

    def _long_padding(self, code: int, at: int, end: int) -> int:
        (count,) = struct.unpack("<I", self._take(at, 4, end))
        if count > end - at - 4:
            raise WireError(f"{count} bytes of padding were expected, the block ends", at)
        return at + 4 + int(count)

    def _comment(self, code: int, at: int, end: int) -> int:
        text, at = self._prefixed_text(at, end)
        self.layout.comment(copied(text))
        return at

    def _name(self, code: int, at: int, end: int) -> int:
        raw, at = self._prefixed(at, end)
        name = decode_name(raw or b"")
        self.layout.name(quoted(name), name)
        return at

    def _short_name(self, code: int, at: int, end: int) -> int:
        length = code - Code.FIELD_NAME0
        raw = self._take(at, length, end)
        if raw.translate(None, _CONTROL) != raw:
            raise WireError("a name was expected, a control character came in it", at)
        name = decode_name(raw)
        self.layout.name(quoted(name), name)
        return at + length

    def _numbered_name(self, code: int, at: int, end: int) -> int:
        number, at = stopbit.decode(self._body, at, end)
        name = _HISTORY_NAME if number == _HISTORY_ID else str(number)
        self.layout.name(quoted(name), name)
        return at

    def _event_object(self, code: int, at: int, end: int) -> int:
        with self._nested(at), self.layout.event_key():
            if at < end and self._body[at] == Code.TYPE_PREFIX:
                at = self._item(at, end)
            self.refuse_small_number(at, end)
            return self._item_if_any(at, end)

    def _type_prefix(self, code: int, at: int, end: int) -> int:
        name, at = self._type_name(at, end)
        while name not in _KNOWN_TYPES and at < end and self._body[at] == Code.TYPE_PREFIX:
            name, at = self._type_name(at + 1, end)
        return at if name in _KNOWN_TYPES else self._typed_value(name, at, end)

    def _type_name(self, at: int, end: int) -> tuple[str, int]:
        name, at = self._prefixed_text(at, end)
        self.layout.type_prefix(copied(name), name)
        return name, at

    def _typed_value(self, name: str, at: int, end: int) -> int:
        """The value of a type that Java's dump treats in a way of its own."""
        if at == end:
            return at
        code = self._body[at]
        if name == _BYTES_TYPE and code in BLOCK_LENGTH:
            start, stop = self._block_bounds(code, at + 1, end)
            if start < stop and self._body[start] == Code.U8_ARRAY:
                payload = bytes(self._body[start + 1 : stop])
                self.layout.scalar(quoted(decode_name(payload)), payload)
                return stop
        if name in _ENUMS and (code in _SHORT_TEXTS or code == Code.STRING_ANY):
            constant, stop = self._text_operand(code, at + 1, end)
            if constant is not None and constant.upper() not in _ENUMS[name]:
                return stop
        return self._item(at, end)

    # --- blocks and arrays ----------------------------------------------------------------------

    @contextmanager
    def _nested(self, at: int) -> Iterator[None]:
        if self._depth == NESTING_MAX:
            raise WireError(f"at most {NESTING_MAX} nested blocks were expected, one more came", at)
        self._depth += 1
        yield
        self._depth -= 1

    def _block_bounds(self, code: int, at: int, end: int) -> tuple[int, int]:
        if at == end and code == Code.BYTES_LENGTH8:
            return at, at  # the byte at the end again
        form = BLOCK_LENGTH[code]
        (length,) = self._unpack(form, at, end)
        start = at + struct.calcsize(form)
        stop = start + int(length)
        if stop > end:
            raise WireError(f"a block of {length} bytes was expected, {end - start} came", at)
        return start, stop

    def _block(self, code: int, at: int, end: int) -> int:
        start, stop = self._block_bounds(code, at, end)
        first = self._body[start] if start < stop else None
        if first == Code.U8_ARRAY:
            payload = bytes(self._body[start + 1 : stop])
            self.layout.scalar(payload_text(payload), payload)
        elif first == Code.HISTORY_MESSAGE:
            self.items(self._history(first, start + 1, stop), stop)
        elif first == Code.I64_ARRAY:
            raise WireError("a map or a sequence was expected, an array came", start)
        else:
            with self._nested(at):
                with self.layout.map() if first in _MAP_STARTS else self.layout.sequence():
                    self.items(start, stop)
        return stop

    def _history(self, code: int, at: int, end: int) -> int:
        sources, at = self._count(at, end)
        ids = self._unpack(f"<{sources}i", at, end)
        indexes = self._unpack(f"<{sources}Q", at + 4 * sources, end)
        timings, at = self._count(at + 12 * sources, end)
        times = self._unpack(f"<{timings}q", at, end)
        with self.layout.map(may_fold=False):
            self.layout.name("sources", "sources")
            with self.layout.sequence():
                for source, index in zip(ids, indexes, strict=True):
                    self.layout.scalar(str(source), source)
                    self.layout.scalar(f"0x{index:x}", index)
            self.layout.name("timings", "timings")
            with self.layout.sequence():
                for time in times:
                    self.layout.scalar(str(time), time)
        return at + 8 * timings

    def _count(self, at: int, end: int) -> tuple[int, int]:
        return (0, at) if at == end else (self._body[at], at + 1)

    def _array(self, code: int, at: int, end: int) -> int:
        capacity, used = (int(word) for word in self._unpack("<qq", at, end))
        at += 16
        size = 8 * max(capacity, 0)
        if size > end - at:
            raise WireError(f"an array of {capacity} was expected, the block ends", at)
        entries = self._body[at : at + size]
        with self.layout.sequence():
            if capacity == used and capacity <= _BOUND_VALUES_MAX:
                self._entries(entries)
            else:
                self.layout.comment(f"length: {capacity}, used: {used}")
                self._partly_used(entries, used if 0 <= used < capacity else max(capacity, 0))
        return at + size

    def _partly_used(self, entries: bytes | memoryview, used: int) -> None:
        """The used entries one on a line, then the unused ones on one line or as a count."""
        if self._fold_unused:
            shown = (len(bytes(entries[8 * used :]).rstrip(b"\0")) + 7) // 8 + used
            self._entries(entries[: 8 * shown])
            if 8 * shown < len(entries):
                self.layout.comment(f"{len(entries) // 8 - shown} more, all 0")
            return
        self._entries(entries[: 8 * used])
        if 8 * used < len(entries):
            self.layout.set_leaf(True)
            self._entries(entries[8 * used :])
            self.layout.set_leaf(False)

    def _entries(self, entries: bytes | memoryview) -> None:
        for (entry,) in struct.iter_unpack("<q", entries):
            self.layout.scalar(str(entry), entry)

    def _unassigned(self, code: int, at: int, end: int) -> int:
        raise WireError(f"a code was expected, 0x{code:02X} came, which has no meaning", at - 1)


_Method = Callable[[_Renderer, int, int, int], int]


def _table() -> list[_Method]:
    table: list[_Method] = [_Renderer._unassigned] * 256
    for codes, renderer in (
        (BLOCK_LENGTH, _Renderer._block),
        ((Code.HISTORY_MESSAGE,), _Renderer._history),
        ((Code.I64_ARRAY,), _Renderer._array),
        ((Code.PADDING,), _Renderer._padding),
        ((Code.PADDING32,), _Renderer._long_padding),
        (FIXED_WIDTH, _Renderer._number),
        ((Code.INT64_0X,), _Renderer._hexadecimal),
        (STOP_BIT_SCALE, _Renderer._decimal),
        (_CONSTANTS, _Renderer._constant),
        (_TIMES, _Renderer._time),
        ((Code.TYPE_PREFIX,), _Renderer._type_prefix),
        ((Code.FIELD_NAME_ANY, Code.EVENT_NAME), _Renderer._name),
        ((Code.FIELD_NUMBER,), _Renderer._numbered_name),
        ((Code.TYPE_LITERAL,), _Renderer._type_literal),
        ((Code.EVENT_OBJECT,), _Renderer._event_object),
        ((Code.COMMENT,), _Renderer._comment),
        (_SHORT_NAMES, _Renderer._short_name),
        ((Code.STRING_ANY, *_SHORT_TEXTS), _Renderer._text),
    ):
        for code in codes:
            table[code] = renderer
    return table


_RENDERERS: Final = _table()
