"""Values that Java has compressed: bytes behind a type name that says how.

    name     how                                                     by
    lzw      Deflate with zlib's header: Java's name for it is wrong  zlib
    gzip     Deflate with gzip's header                              zlib
    snappy   blocks of Snappy behind Xerial's header                 cramjam, in the extra `typed`
    others   are told by their name                                  nothing

No more bytes come out than are allowed, whatever the bytes say.
"""

import zlib
from typing import Final

from wire.errors import WireError

SIZE_MAX: Final = 16 << 20
_ZLIB_BITS: Final = {"lzw": 15, "gzip": 31}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16  # and two versions
_BLOCK_HEAD_BYTES: Final = 4
_BLOCK_MAX: Final = 1 << 24


def uncompressed(name: str, payload: bytes, position: int, size_max: int = SIZE_MAX) -> bytes:
    """The bytes that were compressed.

    >>> uncompressed("lzw", zlib.compress(b"abc"), 0)
    b'abc'

    Raises:
        WireError: they are not of this kind, are more than `size_max`, or what unpacks them is not
            here.
    """
    if name in _ZLIB_BITS:
        return _inflated(name, payload, position, size_max)
    if name == "snappy":
        return _snappy(payload, position, size_max)
    raise WireError(f"compression {name} is not supported", position)


def _inflated(name: str, payload: bytes, position: int, size_max: int) -> bytes:
    inflater = zlib.decompressobj(_ZLIB_BITS[name])
    try:
        found = inflater.decompress(payload, size_max + 1)
    except zlib.error as error:
        raise WireError(f"bytes compressed as {name} were expected ({error})", position) from error
    if len(found) > size_max:
        raise _too_long(name, position, size_max)
    if not inflater.eof:
        raise WireError(f"bytes compressed as {name} were expected, they break off", position)
    return found


def _snappy(payload: bytes, position: int, size_max: int) -> bytes:
    try:
        from cramjam import DecompressionError, snappy  # an extra
    except ImportError as error:
        raise WireError("compression snappy needs cramjam, the extra `typed`", position) from error
    if not payload.startswith(_XERIAL):
        raise WireError("bytes compressed as snappy were expected, others came", position)
    at, parts, size = _XERIAL_HEAD_BYTES, [], 0
    while at < len(payload):
        length = int.from_bytes(payload[at : at + _BLOCK_HEAD_BYTES], "big")
        block = payload[at + _BLOCK_HEAD_BYTES : at + _BLOCK_HEAD_BYTES + length]
        at += _BLOCK_HEAD_BYTES + length
        try:
            if len(block) != length or size + _announced(block) > size_max:
                raise _too_long("snappy", position, size_max)
            parts.append(bytes(snappy.decompress_raw(block)))
        except DecompressionError as error:
            reason = f"bytes compressed as snappy were expected ({error})"
            raise WireError(reason, position) from error
        size += len(parts[-1])
    return b"".join(parts)


def _announced(block: bytes) -> int:
    """The length that a block of Snappy says it has unpacked."""
    value = 0
    for group, byte in enumerate(block[:5]):
        value |= (byte & 0x7F) << (7 * group)
        if not byte & 0x80:
            return value
    return _BLOCK_MAX


def _too_long(name: str, position: int, size_max: int) -> WireError:
    return WireError(
        f"at most {size_max} bytes compressed as {name} were expected, more came", position
    )
