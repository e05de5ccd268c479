"""The RAW wire: values without codes, in an order that both sides know.

    number          1, 2, 4 or 8 bytes, by the method's width
    text, type      stop-bit length in bytes, UTF-8; length -1 for null
    true, null      B1, BB; false is 00
    UUID            16 bytes, as in every variant of the wire
    block           32-bit length, content; a type name stands before it
    event name      stop-bit length, Latin-1; field names are left out
    bytes           stop-bit length, bytes
    date, time      stop-bit days since 1970-01-01; nanoseconds of the day in 8 bytes
    date and time   first the date, then the time; with a zone, a text

>>> writer = RawWriter()
>>> writer.int32(5)
>>> writer.text("hi")
>>> writer.data.hex(" ")
'05 00 00 00 02 68 69'
>>> reader = RawReader(writer.data)
>>> reader.whole(Int32), reader.text()
(Int32(5), 'hi')

Source: section 6.6 of the format; vectors `variants`.
"""

import struct
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeVar

from wire import stopbit
from wire.codes import FIXED_WIDTH, Code
from wire.errors import WireError
from wire.objects.times import (
    PythonTime,
    canonical,
    epoch_day,
    nanos_of_day,
    python_time,
    wire_date,
)
from wire.objects.values import Int32, Int64, TimeText, Whole
from wire.strings import decode_name, decode_text, encode_name, encode_text
from wire.writer import Writer

_W = TypeVar("_W", bound=Whole)
_NULL_LENGTH: Final = -1
_FALSE: Final = 0
_NANOS: Final = 1_000_000_000
_DAY_NANOS: Final = 86_400 * _NANOS
_UUID_BYTES: Final = 16


class RawWriter:
    """Appends values to `data`. `origin` is the file offset of its first byte."""

    def __init__(self, origin: int = 0) -> None:
        self._core = Writer(origin)

    @property
    def data(self) -> bytearray:
        """The bytes that were written."""
        return self._core.data

    def document(self, *, metadata: bool) -> AbstractContextManager[None]:
        """A document: its header word is set when the block ends."""
        return self._core.document(metadata=metadata)

    def name(self, name: str) -> None:
        """A field name: nothing."""

    def event_id(self, number: int) -> None:
        """A numbered field or event: nothing."""

    def event(self, name: str) -> None:
        """An event name."""
        self._prefixed(encode_name(name))

    def whole(self, width: type[Whole], value: int) -> None:
        """A whole number of this width."""
        self.data.extend(struct.pack(FIXED_WIDTH[width.code], width(value)))

    def int32(self, value: int) -> None:
        """A 32-bit number."""
        self.whole(Int32, value)

    def int64(self, value: int) -> None:
        """A 64-bit number."""
        self.whole(Int64, value)

    def float32(self, value: float) -> None:
        """A 32-bit float."""
        self.data.extend(struct.pack("<f", value))

    def float64(self, value: float) -> None:
        """A double."""
        self.data.extend(struct.pack("<d", value))

    def text(self, text: str | None) -> None:
        """A text or null."""
        self._prefixed(None if text is None else encode_text(text))

    def null(self) -> None:
        """No value."""
        self._prefixed(None)

    def boolean(self, value: bool | None) -> None:
        """True, false or null."""
        self.data.append(Code.NULL if value is None else Code.TRUE if value else _FALSE)

    def uuid(self, value: uuid.UUID) -> None:
        """A UUID."""
        high, low = divmod(value.int, 1 << 64)
        self.data.extend(struct.pack("<QQ", high, low))

    def type_prefix(self, name: str) -> None:
        """The type name of the value that follows."""
        self._prefixed(encode_text(name))

    @contextmanager
    def block(self) -> Iterator[None]:
        """A nested object or sequence."""
        start = len(self.data)
        self.data.extend(bytes(4))
        yield
        struct.pack_into("<i", self.data, start, len(self.data) - start - 4)

    def bytes_value(self, payload: bytes | memoryview) -> None:
        """Bytes."""
        self._prefixed(bytes(payload))

    def date(self, text: str) -> None:
        """A date, given as text."""
        self.data.extend(stopbit.encode(epoch_day(text)))

    def time(self, text: str) -> None:
        """A time of day, given as text."""
        self.int64(nanos_of_day(text))

    def date_time(self, text: str) -> None:
        """A date and time of day, given as text."""
        date, _, time = canonical(Code.DATE_TIME, text).partition("T")
        self.date(date)
        self.time(time)

    def zoned_date_time(self, text: str) -> None:
        """A date and time with a zone, given as text."""
        self.text(canonical(Code.ZONED_DATE_TIME, text))

    def _prefixed(self, encoded: bytes | None) -> None:
        self.data.extend(stopbit.encode(_NULL_LENGTH if encoded is None else len(encoded)))
        self.data.extend(encoded or b"")


class RawReader:
    """Reads values in the order that they were written in.

    Args:
        data: any bytes-like object; kept, never copied.
        position: where the first value starts.
        end: first byte that is not part of the body; the end of `data` when left out.
    """

    def __init__(
        self, data: bytes | bytearray | memoryview, position: int = 0, end: int | None = None
    ) -> None:
        self.data = memoryview(data)
        self.position = position
        self.end = len(data) if end is None else end

    def event(self) -> str:
        """An event name."""
        return decode_name(self._prefixed() or b"")

    def whole(self, width: type[_W]) -> _W:
        """A whole number of this width."""
        layout = FIXED_WIDTH[width.code]
        (value,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return width(value)

    def float32(self) -> float:
        """A 32-bit float."""
        (value,) = struct.unpack("<f", self._take(4))
        return float(value)

    def float64(self) -> float:
        """A double."""
        (value,) = struct.unpack("<d", self._take(8))
        return float(value)

    def text(self) -> str | None:
        """A text, or a type name; None for null."""
        start = self.position
        encoded = self._prefixed()
        return None if encoded is None else decode_text(encoded, start)

    def boolean(self) -> bool | None:
        """True or false; None for null."""
        start = self.position
        code = self._take(1)[0]
        if code not in _BOOLEANS:
            raise WireError(f"true, false or null was expected, byte 0x{code:02X} came", start)
        return _BOOLEANS[code]

    def uuid(self) -> uuid.UUID:
        """A UUID."""
        high, low = struct.unpack("<QQ", self._take(_UUID_BYTES))
        return uuid.UUID(int=high << 64 | low)

    def block(self) -> "RawReader":
        """A reader of a nested object or sequence."""
        start = self.position
        (length,) = struct.unpack("<i", self._take(4))
        if length < 0:
            raise WireError(f"length {length} is negative", start)
        self._take(length)
        return RawReader(self.data, self.position - length, self.position)

    def bytes_value(self) -> bytes | None:
        """Bytes; None for null."""
        return self._prefixed()

    def date(self) -> PythonTime | TimeText:
        """A date."""
        return python_time(Code.DATE, wire_date(self._stop_bit()))

    def time(self) -> PythonTime | TimeText:
        """A time of day."""
        return python_time(Code.TIME, self._time_of_day())

    def date_time(self) -> PythonTime | TimeText:
        """A date and time of day."""
        date = wire_date(self._stop_bit())
        return python_time(Code.DATE_TIME, f"{date}T{self._time_of_day()}")

    def zoned_date_time(self) -> PythonTime | TimeText:
        """A date and time with a zone."""
        return python_time(Code.ZONED_DATE_TIME, self.text() or "")

    def _time_of_day(self) -> str:
        start = self.position
        nanos = self.whole(Int64)
        if not 0 <= nanos < _DAY_NANOS:
            raise WireError(f"nanoseconds of a day were expected, {int(nanos)} came", start)
        minutes, rest = divmod(nanos, 60 * _NANOS)
        second, fraction = divmod(rest, _NANOS)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}.{fraction:09d}"

    def _stop_bit(self) -> int:
        number, self.position = stopbit.decode(self.data, self.position, self.end)
        return number

    def _prefixed(self) -> bytes | None:
        start = self.position
        length = self._stop_bit()
        if length < _NULL_LENGTH:
            raise WireError(f"length {length} is negative", start)
        return None if length == _NULL_LENGTH else self._take(length)

    def _take(self, length: int) -> bytes:
        if length > self.end - self.position:
            raise WireError(
                f"{length} bytes were expected, {self.end - self.position} are left", self.position
            )
        self.position += length
        return bytes(self.data[self.position - length : self.position])


_BOOLEANS: Final[dict[int, bool | None]] = {Code.TRUE: True, _FALSE: False, Code.NULL: None}
