"""Reads named fields in any order.

Theory of operation. Asked for a field, `Fields` looks from where it stands to the end; what it
passes is remembered, and looked through when the end is reached. Each field is used up by reading
it, so the second of two alike answers to the second question. A value without a name, or with an
empty one, answers to any question: that is how positional messages and wires without names are
read. A number in a name's place answers to the name that it spells and to the one it is Java's hash
of. A field that is not there gives the default. Unknown fields are stepped over unread.

>>> fields = Fields(Reader(bytes.fromhex("c163a50001c162e178c161a101")))
>>> fields.int64("a"), fields.text("b"), fields.int64("c"), fields.int64("d", default=7)
(1, 'x', 256, 7)

Source: section 10 of the format; vectors `decode_fields`.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from wire.codes import BLOCK_LENGTH, Code
from wire.errors import WireError
from wire.objects import conversions
from wire.objects.conversions import next_code
from wire.objects.object_reader import HISTORY_ID, HISTORY_NAME, read_object
from wire.objects.values import Int8, Int16, Int32, UInt8, UInt16, UInt32, Whole
from wire.objects.variants import name_code, name_number
from wire.reader import Reader

_T = TypeVar("_T")
_D = TypeVar("_D")
_DELTA_NUMBERS: Final = frozenset(
    {Code.FLOAT_SET_LOW_0, Code.FLOAT_SET_LOW_2, Code.FLOAT_SET_LOW_4}
)
_DELTA_NUMBER_BYTES: Final = 2
_NAMES_SHOWN_MAX: Final = 5


def step_over(reader: Reader) -> None:
    """Steps over the next value as a whole; also over numbers of the delta wire, which cannot be
    read, but whose length is known, and over bytes that take the rest of their block."""
    code = reader.peek_code()
    if code == Code.U8_ARRAY:
        reader.position = reader.end
    elif code not in _DELTA_NUMBERS:
        reader.skip_value()
    elif reader.end - reader.position < _DELTA_NUMBER_BYTES:
        raise WireError("a number of the delta wire was expected, the block ends", reader.position)
    else:
        reader.position += _DELTA_NUMBER_BYTES


class _Field:
    """A field that was passed: its name, the number it may have instead, its value."""

    __slots__ = ("name", "number", "value")

    def __init__(self, name: str, number: int | None, value: Reader) -> None:
        self.name = name
        self.number = number
        self.value = value

    def is_called(self, name: str) -> bool:
        if self.name in ("", name):
            return True
        return self.number is not None and self.number in (name_code(name), name_number(name))


class Fields:
    """The fields of a document body or of a block.

    Args:
        reader: stands at the first field; its position moves with what is read.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._passed: list[_Field] = []

    def find(self, name: str) -> Reader | None:
        """A reader of this field's value only; None where there is none."""
        while (field := self._next()) is not None:
            if field.is_called(name):
                return field.value
            self._passed.append(field)
        for at, passed in enumerate(self._passed):
            if passed.is_called(name):
                del self._passed[at]
                return passed.value
        return None

    def check_fit(self, kind: str, names: list[str]) -> None:
        """Does nothing where these can be the fields of a message that has fields of these names.

        Raises:
            WireError: there are fields, and none is called so; or values that have no names, and
                these are not as many as its fields.
        """
        start = self._reader.position
        while (field := self._next()) is not None:
            self._passed.append(field)
        found, wanted = self._passed, ", ".join(names) or "none"
        unnamed = sum(field.name == "" for field in found)
        if unnamed and (len(found) != unnamed or unnamed != len(names)):
            raise WireError(
                f"the fields of {kind} ({wanted}) were expected, {len(found)} values came,"
                f" {unnamed} of them without a name",
                start,
            )
        if found and not any(field.is_called(name) for field in found for name in names):
            came = ", ".join(repr(field.name[:20]) for field in found[:_NAMES_SHOWN_MAX])
            raise WireError(f"a field of {kind} ({wanted}) was expected, {came} came", start)

    def next_event(self) -> tuple[str, Reader] | None:
        """Name and value of the next field or event, of any name; None at the end."""
        field = self._next()
        return None if field is None else (field.name, field.value)

    def events(self) -> Iterator[tuple[str, Reader]]:
        """Name and value of every field or event from here on.

        >>> fields = Fields(Reader(bytes.fromhex("b9036964788f05")))
        >>> [(name, conversions.read_int64(value)) for name, value in fields.events()]
        [('idx', 5)]
        """
        while (event := self.next_event()) is not None:
            yield event

    def int64(self, name: str, default: int = 0) -> int:
        """A field as a 64-bit number."""
        return self._read(name, conversions.read_int64, default)

    def int32(self, name: str, default: int = 0) -> int:
        """A field as a 32-bit number."""
        return self._read(name, conversions.read_int32, default)

    def whole(self, name: str, width: type[Whole], default: int = 0) -> int:
        """A field as a whole number of this width, such as `Int8` or `UInt16`."""
        if width not in _NARROW:
            return self.int64(name, default)
        limits = width.least, width.greatest
        return self._read(name, lambda value: conversions.read_whole(value, *limits), default)

    def float64(self, name: str, default: float = 0.0) -> float:
        """A field as a double."""
        return self._read(name, conversions.read_float64, default)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A field as text; None where it is null."""
        return self._read(name, conversions.read_text, default)

    def boolean(self, name: str, default: bool = False) -> bool:
        """A field as true or false."""
        return self._read(name, conversions.read_boolean, default)

    def bytes_value(self, name: str, default: bytes | None = None) -> bytes | None:
        """A field that holds bytes and says so; None where it is null."""
        return self._read(name, conversions.read_bytes, default)

    def literal(self, name: str, default: bytes | None = None) -> bytes | None:
        """The bytes of a field's block, not decoded; None where it is null."""
        return self._read(name, conversions.read_literal, default)

    def value(self, name: str, default: object = None, *, keep_widths: bool = False) -> object:
        """A field as the kind of value that its codes say."""
        return self._read(name, lambda value: read_object(value, keep_widths=keep_widths), default)

    def fields(self, name: str) -> "Fields | None":
        """The fields of a nested block, with or without a type name; None where there is none."""
        return self._read(name, _nested_fields, None)

    def _read(self, name: str, read: Callable[[Reader], _T], default: _D) -> _T | _D:
        value = self.find(name)
        return default if value is None else read(value)

    def _next(self) -> _Field | None:
        reader = self._reader
        code = reader.peek_code()
        if code is None:
            return None
        if code == Code.EVENT_OBJECT:
            reader.position += 1
            return _Field(_key_text(self._value()), None, self._value())
        name = reader.read_name() or ""
        if code != Code.FIELD_NUMBER:
            return _Field(name, None, self._value())
        number = int(name)
        return _Field(HISTORY_NAME if number == HISTORY_ID else name, number, self._value())

    def _value(self) -> Reader:
        start = self._reader.position
        step_over(self._reader)
        return Reader(self._reader.data, start, self._reader.position)


_NARROW: Final = frozenset({Int8, Int16, Int32, UInt8, UInt16, UInt32})


def _key_text(key: Reader) -> str:
    """A name that is an object, as text."""
    code = next_code(key, "a name")
    if code in BLOCK_LENGTH or code in (Code.TYPE_PREFIX, Code.UUID, Code.I64_ARRAY):
        return str(read_object(key))
    return conversions.read_text(key) or ""


def _nested_fields(value: Reader) -> Fields | None:
    conversions.refuse_compressed(value.read_type(), value.position)
    if next_code(value, "a block of fields") == Code.NULL:
        return None
    return Fields(value.read_block())
