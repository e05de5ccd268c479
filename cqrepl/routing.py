"""Computes the partition of a key, the same for ever, on every machine and in every language.

    partition = CRC-32 of the key as binary wire, modulo the number of partitions
    group     = partition, modulo the number of groups

The CRC is that of zlib, PNG and `java.util.zip.CRC32`. Binary wire has one form for a value: a text
of up to 31 bytes is E0 plus its length, then its UTF-8, in which a character beyond 16 bits is two
surrogates; a number takes the least width that holds it, for every type of column.
`tests/vectors/partitions.json` has examples.
"""

from typing import Final
from zlib import crc32

import wire
from cqrepl.console.exitcodes import BadArguments

_SHORT_MAX: Final = 31  # bytes of a text whose code has its length
_SHORT_TEXT: Final = 0xE0
_BYTE: Final = 0xA1  # of a number that fits in a byte
_BYTE_MAX: Final = 0xFF


def partition_of(key: object, partitions: int) -> int:
    """The partition of a key, from 0.

    >>> partition_of("orders", 13), partition_of(41, 13)
    (0, 9)
    """
    return crc32(key_bytes(key)) % partitions


def group_of(partition: int, groups: int) -> int:
    """The group that has a partition, from 0."""
    return partition % groups


def key_bytes(key: object) -> bytes:
    """The key as binary wire.

    Raises:
        BadArguments: binary wire has no form for it.
    """
    # the two most frequent forms, as `wire.encode` writes them, at a tenth of its time
    if type(key) is str and len(key) <= _SHORT_MAX and key.isascii():
        return bytes((_SHORT_TEXT + len(key),)) + key.encode()
    if type(key) is int and 0 <= key <= _BYTE_MAX:
        return bytes((_BYTE, key))
    try:
        return wire.encode(plain(key))
    except (wire.WireError, ValueError) as error:
        raise BadArguments(f"expected a key that binary wire can hold, found {key!r}") from error


def plain(value: object) -> object:
    """A value of a table as binary wire takes it: its byte arrays as bytes."""
    match value:
        case bytearray():
            return bytes(value)
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value
