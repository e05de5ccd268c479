"""Compressed values: what unpacks to the same, and what does not end in memory."""

import gzip
import zlib

import pytest

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
