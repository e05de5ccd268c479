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
from enum import IntEnum
from typing import Final, NamedTuple

from cqrepl.service.fieldwords import FieldKinds, FieldWords, Value
from cqrepl.service.fieldwords import decode_words as decode_fields
from wire import WireError

MESSAGE_MAX: Final = 32 << 20
TRANSACTION_MAX: Final = 16 << 20  # bytes of changes
MAPS_MAX: Final = 255
ABSENT: Final = 0  # as the version of an entry: there is none
PRESENT: Final = -1  # as a version that is expected: any

_NO_VALUES: Final[Mapping[str, Value]] = {}
_KINDS: Final[FieldKinds] = {
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


def grid_words(name: str, values: Mapping[str, Value] = _NO_VALUES) -> FieldWords:
    """A record, or a message; each of its fields is in the table above."""
    return FieldWords(name, values, _KINDS)


def decode_words(data: bytes | memoryview) -> FieldWords:
    """The words that these bytes are.

    Raises:
        WireError: they say nothing that can be read.
    """
    return decode_fields(data, _KINDS)


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
