"""Compressed values: what unpacks to the same, and what does not end in memory."""

import gzip
import struct
import zlib

import pytest
from xxhash import xxh32_intdigest

import wire
from tests.support.requirements import require
from wire.objects.compressed import SIZE_MAX, uncompressed

TEXT = b"some bytes " * 40


def document(name: str, payload: bytes) -> bytes:
    body = wire.BodyWriter()
    body.name("data")
    body.bytes_value(payload, name)
    return bytes(body.data)


def xerial(*blocks: bytes) -> bytes:
    head = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    return head + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def test_deflate_under_both_its_names() -> None:
    for name, payload in (("lzw", zlib.compress(TEXT)), ("gzip", gzip.compress(TEXT))):
        assert wire.decode(document(name, payload), unpack=True) == {"data": TEXT}


def test_snappy() -> None:
    try:
        from cramjam import snappy
    except ImportError:
        require("cramjam", "cramjam is not installed")
    blocks = [bytes(snappy.compress_raw(TEXT)), bytes(snappy.compress_raw(b"end"))]
    assert wire.decode(document("snappy", xerial(*blocks)), unpack=True) == {"data": TEXT + b"end"}
    lies = b"\xff\xff\xff\xff\x0f" + blocks[0][1:]  # 4 GiB, it says
    for payload in (b"nothing", xerial(b"\x05nothing"), xerial(lies), xerial(blocks[0])[:-3]):
        with pytest.raises(wire.WireError, match="snappy"):
            wire.decode(document("snappy", payload), unpack=True)


def java_blocks(*parts: bytes, method: int = 0x26) -> bytes:
    """The blocks that lz4-java's `LZ4BlockOutputStream` writes, by default of level 6."""
    lz4 = pytest.importorskip("cramjam", reason="it packs and unpacks LZ4").lz4
    out = b""
    for part in (*parts, b""):
        data = part if method & 0xF0 == 0x10 else bytes(lz4.compress_block(part, store_size=False))
        data = data if part else b""
        check = xxh32_intdigest(part, 0x9747B28C) & 0x0FFFFFFF if part else 0
        out += struct.pack("<8sBIII", b"LZ4Block", method, len(data), len(part), check) + data
    return out


def test_lz4_as_frames_and_as_blocks_of_java() -> None:
    try:
        from cramjam import lz4
    except ImportError:
        require("cramjam", "cramjam is not installed")
    frame = bytes(lz4.compress(TEXT))
    for payload in (frame, java_blocks(TEXT), java_blocks(TEXT[:9], TEXT[9:], method=0x16)):
        assert wire.decode(document("lz4", payload), unpack=True) == {"data": TEXT}
    assert uncompressed("lz4", java_blocks(), 0) == b""
    blocks = java_blocks(TEXT)
    lies = blocks[:13] + b"\xff\xff\xff\x7f" + blocks[17:]
    for broken in (b"", b"x", frame[:9], frame[:-3], blocks[:-3], blocks[:40], lies, b"LZ4Block"):
        with pytest.raises(wire.WireError, match="compressed as lz4 were expected"):
            wire.decode(document("lz4", broken), unpack=True)
    for at in range(8, len(blocks) - 21):
        changed = bytearray(blocks)
        changed[at] ^= 0x55
        with pytest.raises(wire.WireError, match="lz4"):
            uncompressed("lz4", bytes(changed), 0)


def test_no_more_lz4_comes_out_than_is_allowed() -> None:
    lz4 = pytest.importorskip("cramjam", reason="it packs and unpacks LZ4").lz4
    for payload in (bytes(lz4.compress(bytes(5000))), java_blocks(bytes(5000))):
        assert uncompressed("lz4", payload, 0, 5000) == bytes(5000)
        with pytest.raises(wire.WireError, match="at most 4999 bytes compressed as lz4"):
            uncompressed("lz4", payload, 0, 4999)


@pytest.mark.parametrize("payload", [b"", b"nothing", zlib.compress(TEXT)[:-6]])
def test_bytes_that_are_none_of_it(payload: bytes) -> None:
    with pytest.raises(wire.WireError, match="compressed as lzw were expected"):
        wire.decode(document("lzw", payload), unpack=True)


def test_no_more_comes_out_than_is_allowed() -> None:
    assert uncompressed("lzw", zlib.compress(bytes(SIZE_MAX)), 0) == bytes(SIZE_MAX)
    with pytest.raises(wire.WireError, match="at most 16777216 bytes compressed as gzip"):
        uncompressed("gzip", gzip.compress(bytes(SIZE_MAX + 1)), 0)
    many = [wire.Typed("lzw", zlib.compress(bytes(SIZE_MAX // 4 + 1)))] * 4
    with pytest.raises(wire.WireError, match="compressed as lzw were expected, more came"):
        wire.decode(wire.encode(many), unpack=True)
    with pytest.raises(wire.WireError, match="compression zstd is not supported"):
        wire.decode(document("zstd", b"x"), unpack=True)


def test_nothing_is_unpacked_unasked() -> None:
    with pytest.raises(wire.WireError, match="compression lzw is not supported"):
        wire.decode(document("lzw", zlib.compress(TEXT)))
    with pytest.raises(wire.WireError, match="compression lzw is not supported"):
        wire.loads(wire.dumps(wire.Typed("lzw", zlib.compress(TEXT))))
