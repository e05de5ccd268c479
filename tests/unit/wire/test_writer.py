"""The writer of the data path makes Java's bytes of the same calls; the rest: `test_vectors`."""

import struct

import pytest

from tests.support.vectors.calls import CORE, build_by_core
from tests.support.vectors.manifest import Vector, is_binary, load, methods
from wire import Writer
from wire.writer import block_head, encode_int

FILES = (
    "bindings",
    "bytes",
    "documents",
    "fields",
    "floats",
    "ints",
    "nested",
    "objects",
    "random",
    "replication",
    "scalars",
    "strings",
    "variants",
)
# how many vectors there are that need no other method than those of `wire.Writer`
COVERED = {
    "bindings": 36,
    "bytes": 100,
    "documents": 30,
    "fields": 54,
    "floats": 0,
    "ints": 205,
    "nested": 156,
    "objects": 2,
    "random": 180,
    "replication": 116,
    "scalars": 13,
    "strings": 122,
    "variants": 21,
}


def covered(file: str) -> list[Vector]:
    return [vector for vector in load(file) if is_binary(vector) and methods(vector) <= CORE]


@pytest.mark.parametrize("file", FILES)
def test_bytes_equal_java(file: str) -> None:
    vectors = covered(file)
    wrong = [vector["name"] for vector in vectors if build_by_core(vector).hex() != vector["hex"]]
    assert (wrong, len(vectors)) == ([], COVERED[file])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0, 0xA1),
        (255, 0xA1),
        (256, 0xA5),
        (32767, 0xA5),
        (32768, 0xA2),
        (65535, 0xA2),
        (65536, 0xA6),
        (2**31 - 1, 0xA6),
        (2**31, 0xA3),
        (2**32 - 1, 0xA3),
        (2**32, 0x90),
        (2**32 + 1, 0xA7),
        (2**63 - 1, 0x90),
        (2**63 - 2, 0xA7),
        (0x451600000000, 0x90),
        (-1, 0xA4),
        (-128, 0xA4),
        (-129, 0xA5),
        (-32768, 0xA5),
        (-32769, 0xA6),
        (-(2**31), 0xA6),
        (-(2**31) - 1, 0xA7),
        (-(2**63), 0x90),
        (-(2**63) + 1, 0xA7),
    ],
)
def test_width_of_a_number_goes_by_its_value(value: int, code: int) -> None:
    assert encode_int(value)[0] == code


@pytest.mark.parametrize("length", [0, 1, 4, 5, 6, 300])
def test_padding_is_as_long_as_asked_for(length: int) -> None:
    writer = Writer()
    writer.padding(length)
    assert len(writer.data) == length


@pytest.mark.parametrize("origin", range(0, 64, 4))
def test_bound_values_are_aligned_in_the_file(origin: int) -> None:
    writer = Writer(origin=origin)
    long_at = writer.bound_int64(-2)
    pair_at = writer.bound_int128(3, 4)
    array_at = writer.int64_array(2)
    assert (long_at % 8, pair_at % 16, array_at % 8) == (0, 0, 0)
    read = [struct.unpack_from("<qq", writer.data, at - origin) for at in (pair_at, array_at)]
    assert read == [(3, 4), (2, 0)]
    assert struct.unpack_from("<q", writer.data, long_at - origin) == (-2,)
    assert writer.position == origin + len(writer.data)


@pytest.mark.parametrize(
    ("length", "head"),
    [(0, "8000"), (255, "80ff"), (256, "810001"), (65535, "81ffff"), (65536, "8200000100")],
)
def test_raw_bytes_have_the_smallest_length(length: int, head: str) -> None:
    assert block_head(length).hex() == head


def test_name_of_characters_outside_the_basic_plane_has_two_bytes_for_each() -> None:
    writer = Writer()
    writer.name("\U0001f600" * 15 + "x")
    writer.name("\U0001f600" * 16)
    assert writer.data == b"\xdf" + b"?" * 30 + b"x" + b"\xb7\x20" + b"\x3d\x00" * 16


def test_document_pads_its_own_body() -> None:
    writer = Writer()
    with writer.document(metadata=True, pad=True):
        writer.name("a")
    assert writer.data.hex() == "04000040c1618f8f"
