"""The words of a grid, in its log and to its clients: a name, and fields with values.

Each is the body of a binary wire document: an event name, then a block of fields. A field that is
not known is passed over, so a later version may add some. Many changes, keys or entries go in one
field of bytes (`pack_changes` and so on), as a field each would cost ten times as much.

The records of a log:

    opened    a host has come to lead: epoch, leader, grid, partitions, groups
    tx        one transaction: part, tx, final, maps, changes, and the two lists
    outcome   the two lists alone: committed, rolled
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from wire import Reader, WireError, Writer

Scalar = int | str | bytes
MESSAGE_MAX: Final = 32 << 20
TRANSACTION_MAX: Final = 16 << 20  # bytes of changes
MAPS_MAX: Final = 255
ABSENT: Final = 0  # as the version of an entry: there is none
PRESENT: Final = -1  # as a version that is expected: any

_KINDS: Final[Mapping[str, type[int] | type[str] | type[bytes]]] = {
    "after": bytes,  # a key
    "ask": int,
    "at": str,  # a token
    "changes": bytes,
    "committed": bytes,
    "count": int,
    "entries": bytes,
    "epoch": int,
    "final": int,  # 1: no loader has a say
    "grid": str,  # id of the group's log, drawn when its first record was written
    "groups": int,
    "index": int,
    "key": bytes,
    "leader": int,
    "lock": int,
    "map": str,
    "maps": str,  # names, with blanks between
    "mode": str,
    "outcome": str,
    "part": int,
    "partitions": int,
    "read": str,  # names of the maps of `reads`
    "reads": bytes,
    "rolled": bytes,
    "settings": str,
    "timeout": int,  # ms
    "tx": int,
    "value": bytes,
    "version": int,
    "where": str,
    "why": str,
}


@dataclass(frozen=True, slots=True)
class GridWords:
    """A record, or a message."""

    name: str
    values: Mapping[str, Scalar] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The value of a field that holds a number; 0 where it is not there."""
        value = self.values.get(name, 0)
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        """The same of a text; empty where it is not there."""
        value = self.values.get(name, "")
        return value if isinstance(value, str) else ""

    def data(self, name: str) -> bytes:
        """The same of bytes."""
        value = self.values.get(name, b"")
        return value if isinstance(value, bytes) else b""

    def encoded(self) -> bytes:
        """Its bytes."""
        writer = Writer()
        writer.event(self.name)
        with writer.block():
            for name, value in self.values.items():
                assert isinstance(value, _KINDS[name]), name
                writer.name(name)
                if isinstance(value, bytes):
                    writer.bytes_literal(value)
                elif isinstance(value, str):
                    writer.text(value)
                else:
                    writer.integer(value)
        return bytes(writer.data)


def decode_words(data: bytes | memoryview) -> GridWords:
    """The words that these bytes are.

    Raises:
        WireError: they say nothing that can be read.
    """
    reader = Reader(data)
    name = reader.read_name()
    if not name:
        raise WireError("expected words of a grid, got none")
    values: dict[str, Scalar] = {}
    for key, value in reader.read_block().read_fields().items():
        kind = _KINDS.get(key)
        if kind is int:
            values[key] = value.read_int()
        elif kind is str:
            values[key] = value.read_text() or ""
        elif kind is bytes:
            block = value.read_block()
            values[key] = bytes(block.data[block.position : block.end])
    return GridWords(name, values)


# ---- many things in one field ---------------------------------------------------------------


class MapOp(IntEnum):
    """The kinds of changes."""

    PUT = 1
    REMOVE = 2
    CLEAR = 3  # all of a map in the partition; without key and value


class Change(NamedTuple):
    """One change of a transaction."""

    op: MapOp
    map: str
    key: bytes = b""
    value: bytes = b""


class Read(NamedTuple):
    """An entry that a transaction has read, or expects.

    Args:
        version: of the entry then; `ABSENT`, or `PRESENT` for any.
    """

    map: str
    key: bytes
    version: int


class GridEntry(NamedTuple):
    """The value of a key.

    Args:
        version: index of the record that has put it there.
    """

    value: bytes
    version: int


_CHANGE: Final = struct.Struct("<BBII")
_READ: Final = struct.Struct("<BIq")
_ROW: Final = struct.Struct("<IIq")
_NUMBER: Final = struct.Struct("<Q")


def pack_changes(changes: Sequence[Change]) -> tuple[str, bytes]:
    """The names of the maps, and the changes."""
    maps: dict[str, int] = {}
    parts: list[bytes] = []
    for op, name, key, value in changes:
        nth = maps.setdefault(name, len(maps))
        parts += (_CHANGE.pack(op, nth, len(key), len(value)), key, value)
    return " ".join(maps), b"".join(parts)


def unpack_changes(maps: str, data: bytes) -> list[Change]:
    """The changes.

    Raises:
        WireError: they are none.
    """
    names, found, at = maps.split(), [], 0
    try:
        while at < len(data):
            op, nth, key_size, value_size = _CHANGE.unpack_from(data, at)
            at += _CHANGE.size
            middle, end = at + key_size, at + key_size + value_size
            _check_end(end, data)
            found.append(Change(MapOp(op), names[nth], data[at:middle], data[middle:end]))
            at = end
    except (struct.error, IndexError, ValueError) as error:
        raise WireError(f"expected changes, got other bytes at {at} of {len(data)}") from error
    return found


def pack_reads(reads: Iterable[Read]) -> tuple[str, bytes]:
    """The names of the maps, and the reads."""
    maps: dict[str, int] = {}
    parts: list[bytes] = []
    for name, key, version in reads:
        nth = maps.setdefault(name, len(maps))
        parts += (_READ.pack(nth, len(key), version), key)
    return " ".join(maps), b"".join(parts)


def unpack_reads(maps: str, data: bytes) -> list[Read]:
    """The reads.

    Raises:
        WireError: they are none.
    """
    names, found, at = maps.split(), [], 0
    try:
        while at < len(data):
            nth, key_size, version = _READ.unpack_from(data, at)
            at += _READ.size
            _check_end(at + key_size, data)
            found.append(Read(names[nth], data[at : at + key_size], version))
            at += key_size
    except (struct.error, IndexError) as error:
        raise WireError(f"expected reads, got other bytes at {at} of {len(data)}") from error
    return found


def pack_rows(rows: Iterable[tuple[bytes, GridEntry]]) -> bytes:
    """Keys with their entries."""
    parts: list[bytes] = []
    for key, (value, version) in rows:
        parts += (_ROW.pack(len(key), len(value), version), key, value)
    return b"".join(parts)


def unpack_rows(data: bytes) -> Iterator[tuple[bytes, GridEntry]]:
    """The same, back.

    Raises:
        WireError: they are none.
    """
    at = 0
    while at < len(data):
        if at + _ROW.size > len(data):
            raise WireError(f"expected a row, got {len(data) - at} bytes")
        key_size, value_size, version = _ROW.unpack_from(data, at)
        at += _ROW.size
        middle, end = at + key_size, at + key_size + value_size
        _check_end(end, data)
        yield data[at:middle], GridEntry(data[middle:end], version)
        at = end


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Transactions by their numbers."""
    return b"".join(map(_NUMBER.pack, numbers))


def unpack_numbers(data: bytes) -> list[int]:
    """The same, back; what is behind the last whole number is passed over."""
    whole = len(data) - len(data) % _NUMBER.size
    return [each for (each,) in _NUMBER.iter_unpack(data[:whole])]


def _check_end(end: int, data: bytes) -> None:
    if end > len(data):
        raise WireError(f"expected {end} bytes, got {len(data)}")
