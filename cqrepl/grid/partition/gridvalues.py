"""The bytes of keys and values: each type has one form, and comes back as it went in.

    N F T     None, False, True
    i         a whole number: two's complement, the lowest byte first, as short as may be
    f         a float: IEEE 754, 8 bytes
    s b       a text as UTF-8; bytes
    t         a tuple: of each item the length in 4 bytes, then its bytes
    o         an object: the length of its serializer's name, the name, what the serializer made

Two keys are one key when their bytes are equal, so 1, 1.0 and True are three keys.
"""

import struct
from collections.abc import Iterable
from typing import Final, Protocol

from cqrepl.grid.errors import GridRefused

VALUE_MAX: Final = 8 << 20  # bytes of one value
KEY_MAX: Final = 64 << 10
_DEPTH_MAX: Final = 20
_FLOAT: Final = struct.Struct("<d")
_LENGTH: Final = struct.Struct("<I")
_SINGLE: Final = {None: b"N", False: b"F", True: b"T"}
_SINGLE_BACK: Final[dict[bytes, object]] = {b"N": None, b"F": False, b"T": True}


class Serializer(Protocol):
    """Writes the objects of one type, and reads them again.

    Attributes:
        name: stands with each object; all processes have the same.
        type: objects of exactly this type are written.
    """

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> type: ...

    def dumps(self, value: object) -> bytes:
        """The bytes of an object; the same ones for equal keys."""

    def loads(self, data: bytes) -> object:
        """The object of such bytes."""


class ValueCodec:
    """Keys and values to bytes, and back."""

    def __init__(self, serializers: Iterable[Serializer] = ()) -> None:
        self._by_type: dict[type, Serializer] = {}
        self._by_name: dict[str, Serializer] = {}
        for each in serializers:
            if each.name in self._by_name or each.type in self._by_type:
                raise GridRefused(
                    f"expected one serializer of a name and type, got two {each.name!r}"
                )
            if not 1 <= len(each.name.encode()) <= 255:
                raise GridRefused(f"expected a name of 1 to 255 bytes, got {each.name!r}")
            self._by_type[each.type] = each
            self._by_name[each.name] = each

    def key(self, key: object) -> bytes:
        """The bytes of a key.

        Raises:
            GridRefused: it is none that a grid can hold.
        """
        data = self.dumps(key)
        if len(data) > KEY_MAX:
            raise GridRefused(f"expected a key of at most {KEY_MAX} bytes, got {len(data)}")
        return data

    def value(self, value: object) -> bytes:
        """The bytes of a value.

        Raises:
            GridRefused: it is none that a grid can hold.
        """
        data = self.dumps(value)
        if len(data) > VALUE_MAX:
            raise GridRefused(f"expected a value of at most {VALUE_MAX} bytes, got {len(data)}")
        return data

    def dumps(self, value: object, depth: int = 0) -> bytes:
        """The bytes of a value of any length.

        Raises:
            GridRefused: a part of it has a type without a serializer.
        """
        kind = type(value)
        serializer = self._by_type.get(kind)
        if serializer is not None:
            name = serializer.name.encode()
            return b"o" + bytes((len(name),)) + name + serializer.dumps(value)
        if kind is str:
            assert isinstance(value, str)
            try:
                return b"s" + value.encode()
            except UnicodeEncodeError as error:
                raise GridRefused(f"expected a text that UTF-8 can hold, got {value!r}") from error
        if kind is int:
            assert isinstance(value, int)
            return b"i" + value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if kind is bytes or kind is bytearray:
            assert isinstance(value, bytes | bytearray)
            return b"b" + bytes(value)
        if kind is float:
            return b"f" + _FLOAT.pack(value)
        if value is None or kind is bool:
            assert value is None or isinstance(value, bool)
            return _SINGLE[value]
        if isinstance(value, tuple):
            if depth == _DEPTH_MAX:
                raise GridRefused(f"expected tuples at most {_DEPTH_MAX} deep, got deeper ones")
            parts = [self.dumps(each, depth + 1) for each in value]
            return b"t" + b"".join(_LENGTH.pack(len(each)) + each for each in parts)
        wanted = (
            "expected a text, bytes, a number, a bool, None, a tuple of those, or a type with a"
        )
        raise GridRefused(f"{wanted} serializer, got a {kind.__qualname__}")

    def loads(self, data: bytes, depth: int = 0) -> object:
        """The value of such bytes.

        Raises:
            GridRefused: they are none, or of a serializer that is not known here.
        """
        kind, rest = data[:1], data[1:]
        if kind == b"s":
            return rest.decode()
        if kind == b"i":
            return int.from_bytes(rest, "little", signed=True)
        if kind == b"b":
            return rest
        if kind == b"f" and len(rest) == _FLOAT.size:
            return _FLOAT.unpack(rest)[0]
        if kind in _SINGLE_BACK and not rest:
            return _SINGLE_BACK[kind]
        if kind == b"t" and depth < _DEPTH_MAX:
            return tuple(self.loads(each, depth + 1) for each in _items(rest))
        if kind == b"o" and rest:
            end = 1 + rest[0]
            name = rest[1:end].decode(errors="replace")
            if name in self._by_name:
                return self._by_name[name].loads(rest[end:])
            raise GridRefused(f"expected an object of a known serializer, got one of {name!r}")
        raise GridRefused(f"expected the bytes of a value, got {data[:20].hex()}")


def _items(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise GridRefused(f"expected the length of an item, got {data[at:].hex()}")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise GridRefused(f"expected an item of {length} bytes, got {len(data) - at}")
        yield data[at : at + length]
        at += length
