"""Values that Java has compressed: bytes behind a type name that says how.

    name     how                                                     by
    lzw      Deflate with zlib's header: Java's name for it is wrong  zlib
    gzip     Deflate with gzip's header                              zlib
    snappy   blocks of Snappy behind Xerial's header                 cramjam, in the extra `typed`
    lz4      a frame of LZ4, or the blocks of lz4-java's streams      cramjam
    others   are told by their name                                  nothing

No more bytes come out than are allowed, whatever the bytes say.
"""

import struct
import zlib
from typing import Final

from wire.errors import WireError

SIZE_MAX: Final = 16 << 20
_ZLIB_BITS: Final = {"lzw": 15, "gzip": 31}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16  # and two versions
_BLOCK_HEAD_BYTES: Final = 4
_BLOCK_MAX: Final = 1 << 24
_LZ4_FRAME: Final = b"\x04\x22\x4d\x18"
_LZ4_BLOCK: Final = b"LZ4Block"
# behind the name: method and level, bytes as they are here, bytes unpacked, checksum of those
_LZ4_BLOCK_HEAD: Final = struct.Struct("<8sBIII")
_LZ4_METHODS: Final = {0x10: "stored", 0x20: "packed"}
_LZ4_SEED: Final = 0x9747B28C
_LZ4_CHECKED: Final = 0x0FFFFFFF
_LZ4_GROWTH_MAX: Final = 255  # no byte of LZ4 becomes more


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
    if name == "lz4":
        return _lz4(payload, position, size_max)
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


def _lz4(payload: bytes, position: int, size_max: int) -> bytes:
    try:
        from cramjam import DecompressionError, lz4  # an extra
    except ImportError as error:
        raise WireError("compression lz4 needs cramjam, the extra `typed`", position) from error
    if payload.startswith(_LZ4_BLOCK):
        return _lz4_blocks(payload, position, size_max)
    if not payload.startswith(_LZ4_FRAME):
        raise WireError("bytes compressed as lz4 were expected, others came", position)
    room = bytearray(min(size_max, _LZ4_GROWTH_MAX * len(payload)))
    try:
        return bytes(room[: lz4.decompress_into(payload, room)])
    except DecompressionError as error:
        if len(room) == size_max and "whole buffer" in str(error):
            raise _too_long("lz4", position, size_max) from error
        raise _broken_lz4(position) from error


def _lz4_blocks(payload: bytes, position: int, size_max: int) -> bytes:
    """The bytes in the blocks that lz4-java's `LZ4BlockOutputStream` writes; an empty one ends
    them."""
    from cramjam import DecompressionError, lz4
    from xxhash import xxh32_intdigest

    at, size = 0, 0
    parts: list[bytes] = []
    while True:
        block = payload[at : at + _LZ4_BLOCK_HEAD.size]
        if len(block) < _LZ4_BLOCK_HEAD.size:
            raise _broken_lz4(position)
        magic, method, length, unpacked, checksum = _LZ4_BLOCK_HEAD.unpack(block)
        at += _LZ4_BLOCK_HEAD.size
        kind = _LZ4_METHODS.get(method & 0xF0)
        data = payload[at : at + length]
        at += length
        if magic != _LZ4_BLOCK or kind is None or len(data) != length:
            raise _broken_lz4(position)
        if unpacked == 0:
            return b"".join(parts)
        size += unpacked
        if size > size_max:
            raise _too_long("lz4", position, size_max)
        if unpacked > _LZ4_GROWTH_MAX * length:
            raise _broken_lz4(position)
        try:
            part = data if kind == "stored" else bytes(lz4.decompress_block(data, unpacked))
        except DecompressionError as error:
            raise _broken_lz4(position) from error
        if len(part) != unpacked or xxh32_intdigest(part, _LZ4_SEED) & _LZ4_CHECKED != checksum:
            raise _broken_lz4(position)
        parts.append(part)


def _broken_lz4(position: int) -> WireError:
    return WireError("bytes compressed as lz4 were expected, they are damaged", position)


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
