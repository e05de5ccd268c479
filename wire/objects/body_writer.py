"""Writes every kind of item, in every variant of the binary wire.

A `BodyWriter` is a `Writer` with all the methods of Java's wire: a function that takes a `Writer`
can be given one. Named methods write one item each, a name and its value in turn:

>>> writer = BodyWriter()
>>> with writer.document(metadata=True):
...     writer.name("csp")
...     writer.text("/")
...     writer.name("cid")
...     writer.int64(1671070996)
>>> writer.data.hex(" ")
'0f 00 00 40 c3 63 73 70 e1 2f c3 63 69 64 a6 14 85 9a 63'

The methods named for a width (`int8` ... `int64`) choose the code by the value, as Java's do, but
on a wire of fixed width; the `fixed_...` methods never do.
"""

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from wire import stopbit
from wire.codes import BLOCK_LENGTH, Code
from wire.errors import WireError
from wire.numbers import COMPACT, COMPACT_2_20, FIXED, encode_fixed
from wire.objects.times import canonical
from wire.objects.values import History, LongArray
from wire.objects.variants import Variant, name_code, name_number
from wire.strings import encode_text
from wire.writer import Writer, block_head

_INT32_BYTES: Final = 4
_INT64_SPAN: Final = 1 << 64
_INT64_LIMIT: Final = 1 << 63
_HISTORY_ID: Final = -1
_COUNT_MAX: Final = 255
_ROUND_UNITS: Final = 1_000_000
_ROUNDED_BELOW: Final = (1 << 52) / _ROUND_UNITS  # from here on Java leaves differences as they are
_BYTE_ARRAY: Final = "byte[]"


class BodyWriter(Writer):
    """Appends items to `data`.

    Args:
        variant: the kind of wire; RAW has a writer of its own.
        legacy: choose number codes as the releases around 2.20 do.
        origin: file offset of the first byte.
    """

    def __init__(
        self,
        variant: Variant = Variant.BINARY_LIGHT,
        *,
        legacy: bool = False,
        origin: int = 0,
    ) -> None:
        super().__init__(origin)
        if variant is Variant.RAW:
            raise WireError("a wire with codes was expected, RAW came: use wire.RawWriter")
        self.variant = variant
        fixed = variant is Variant.BINARY_FIXED
        self._numbers = FIXED if fixed else COMPACT_2_20 if legacy else COMPACT

    # --- names ----------------------------------------------------------------------------------

    def name(self, name: str) -> None:
        """A field name: a number where it is one or the wire has no other names."""
        if self.variant is Variant.BINARY_NUMERIC:
            number = name_number(name)
            self.event_id(name_code(name) if number is None else number)
        elif self.variant is not Variant.FIELDLESS_BINARY:
            super().name(name)

    def no_name(self) -> None:
        """The name of a field that has none: an empty one, on a numeric wire too."""
        if self.variant is not Variant.FIELDLESS_BINARY:
            self.data.append(Code.FIELD_NAME0)

    def key(self, name: str, code: int) -> None:
        """A field that has a name and a number; a numeric wire takes the number."""
        if self.variant is Variant.BINARY_NUMERIC:
            self.event_id(code)
        else:
            self.name(name)

    def event_id(self, number: int) -> None:
        """A numbered field or event."""
        self.data.append(Code.FIELD_NUMBER)
        self.data += stopbit.encode(number)

    def event_object(self) -> None:
        """Announces a field whose name is the next item, and its value the one after."""
        self.data.append(Code.EVENT_OBJECT)

    # --- numbers --------------------------------------------------------------------------------

    def integer(self, value: int) -> None:
        """A whole number of up to 64 bits."""
        self.int64(value)

    def int8(self, value: int) -> None:
        """A Java `byte`."""
        self.data += self._numbers.whole(Code.INT8, value)

    def uint8(self, value: int) -> None:
        """A number of 8 bits without a sign."""
        self.data += self._numbers.whole(Code.UINT8, value)

    def int16(self, value: int) -> None:
        """A Java `short`."""
        self.data += self._numbers.whole(Code.INT16, value)

    def uint16(self, value: int) -> None:
        """A number of 16 bits without a sign."""
        self.data += self._numbers.whole(Code.UINT16, value)

    def int32(self, value: int) -> None:
        """A Java `int`."""
        self.data += self._numbers.whole(Code.INT32, value)

    def uint32(self, value: int) -> None:
        """A number of 32 bits without a sign."""
        self.data += self._numbers.whole(Code.UINT32, value)

    def int64(self, value: int) -> None:
        """A Java `long`."""
        self.data += self._numbers.whole(Code.INT64, value)

    def float64(self, value: float) -> None:
        """A Java `double`."""
        self.data += self._numbers.float64(value)

    def float32(self, value: float) -> None:
        """A Java `float`."""
        self.data += self._numbers.float32(value)

    def number(self, width: Code, value: float) -> None:
        """A number by the method of this width: `number(Code.INT8, 5)` is `int8(5)`."""
        _NUMBER_WRITERS[width](self, value)

    def fixed(self, code: Code, value: float) -> None:
        """A number with this code, also where a shorter one would do.

        >>> writer = BodyWriter()
        >>> writer.fixed(Code.INT32, 5)
        >>> writer.data.hex()
        'a605000000'
        """
        self.data += encode_fixed(code, value)

    # --- text, times, identities ----------------------------------------------------------------

    def optional_text(self, text: str | None) -> None:
        """A text, or null."""
        if text is None:
            self.null()
        else:
            self.text(text)

    def time(self, code: Code, text: str) -> None:
        """A date or time of this kind, given as text; it goes out as Java prints it."""
        self._prefixed(code, encode_text(canonical(code, text)))

    def uuid(self, value: uuid.UUID) -> None:
        """A UUID: two longs, each of them little-endian."""
        self.data += struct.pack("<BQQ", Code.UUID, value.int >> 64, value.int % _INT64_SPAN)

    def type_literal(self, name: str | None) -> None:
        """A class as a value, or null."""
        if name is None:
            self.null()
        else:
            self._prefixed(Code.TYPE_LITERAL, encode_text(name))

    # --- bytes ----------------------------------------------------------------------------------

    def bytes_value(self, payload: bytes | memoryview | None, type_name: str | None = None) -> None:
        """Bytes that say they are bytes, or null; maybe under a type name."""
        if payload is None:
            self.null()
            return
        if type_name is not None:
            self.type_prefix(type_name)
        self.data += block_head(len(payload) + 1)
        self.data.append(Code.U8_ARRAY)
        self.data += payload

    def raw_bytes(self, payload: bytes | memoryview) -> None:
        """A Java `byte[]` object."""
        self.bytes_value(payload, _BYTE_ARRAY)

    # --- blocks ---------------------------------------------------------------------------------

    @contextmanager
    def sized_block(self, code: Code) -> Iterator[None]:
        """A nested block with a length of 8, 16 or 32 bits.

        Raises:
            WireError: the content is too long for it; the block is taken back.
        """
        start = len(self.data)
        layout = BLOCK_LENGTH[code]
        content = start + 1 + struct.calcsize(layout)
        self.data += bytes([code]) + bytes(struct.calcsize(layout))
        yield
        length = len(self.data) - content
        try:
            struct.pack_into(layout, self.data, start + 1, length)
        except struct.error as error:
            del self.data[start:]
            raise WireError(
                f"a block of {code.name} was expected, it has {length} bytes"
            ) from error

    def marshallable(self, type_name: str | None = None) -> AbstractContextManager[None]:
        """An object, whose fields are written inside; maybe under a type name.

        >>> writer = BodyWriter()
        >>> with writer.marshallable("Foo"):
        ...     writer.name("a")
        ...     writer.int32(1)
        >>> writer.data.hex()
        'b603466f6f8204000000c161a101'
        """
        if type_name is not None:
            self.type_prefix(type_name)
        return self.block()

    def sequence(self) -> AbstractContextManager[None]:
        """A run of values without names."""
        return self.block()

    def array(self, values: Iterable[float], width: Code = Code.INT64) -> None:
        """An array of numbers of this width, each as narrow as its value allows."""
        write = _NUMBER_WRITERS[width]
        with self.block():
            for value in values:
                write(self, value)

    def int64_deltas(self, values: Sequence[int]) -> None:
        """An array of longs: the first as it is, each further one as what it is more than the
        first."""
        self.array([*values[:1], *(_wrapped(value - values[0]) for value in values[1:])])

    def float64_deltas(self, values: Sequence[float]) -> None:
        """An array of doubles, as `int64_deltas`; differences are rounded to 6 decimals."""
        rest = (_rounded(value - values[0]) for value in values[1:])
        self.array([*values[:1], *rest], Code.FLOAT64)

    # --- in place, history -------------------------------------------------------------

    def bound_int32(self, value: int) -> int:
        """A 32-bit number to be updated in place; answers its file offset, a multiple of 4."""
        self.align(_INT32_BYTES, 1)
        self.data += struct.pack("<Bi", Code.INT32, value)
        return self.position - _INT32_BYTES

    def long_array(self, array: LongArray) -> int:
        """An array of longs in place; answers the file offset of its capacity word."""
        position = self.int64_array(array.capacity)
        at = position - self.origin
        struct.pack_into(f"<q{array.capacity}q", self.data, at + 8, array.used, *array.values)
        return position

    def history(self, history: History) -> None:
        """The history of a message, in a block of 8-bit length."""
        if max(len(history.sources), len(history.timings)) > _COUNT_MAX:
            raise WireError(f"a history of at most {_COUNT_MAX} entries was expected")
        with self.sized_block(Code.BYTES_LENGTH8):
            self.data += bytes([Code.HISTORY_MESSAGE, len(history.sources)])
            self.data += b"".join(struct.pack("<i", source) for source, _ in history.sources)
            self.data += b"".join(struct.pack("<q", index) for _, index in history.sources)
            self.data.append(len(history.timings))
            self.data += struct.pack(f"<{len(history.timings)}q", *history.timings)

    def history_event(self, history: History) -> None:
        """The history under the event number that is reserved for it."""
        self.event_id(_HISTORY_ID)
        self.history(history)


def _wrapped(value: int) -> int:
    return (value + _INT64_LIMIT) % _INT64_SPAN - _INT64_LIMIT


def _rounded(value: float) -> float:
    if not abs(value) < _ROUNDED_BELOW:
        return value
    return int(value * _ROUND_UNITS + (0.5 if value >= 0 else -0.5)) / _ROUND_UNITS


_NUMBER_WRITERS: Final[dict[Code, Callable[..., None]]] = {
    Code.INT8: BodyWriter.int8,
    Code.INT16: BodyWriter.int16,
    Code.INT32: BodyWriter.int32,
    Code.INT64: BodyWriter.int64,
    Code.FLOAT32: BodyWriter.float32,
    Code.FLOAT64: BodyWriter.float64,
}
