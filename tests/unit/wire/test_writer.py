"""The writer of the data path makes Java's bytes of the same calls; the rest: `test_vectors`."""

import struct

import pytest

from tests.support.vectors.calls import CORE, build_by_core
from tests.support.vectors.manifest import Vector, is_binary, load, methods
from wire import Writer

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


@pytest.mark.parametrize("file", COVERED)
def test_bytes_equal_java(file: str) -> None:
    vectors = covered(file)
    wrong = [vector["name"] for vector in vectors if build_by_core(vector).hex() != vector["hex"]]
    assert (wrong, len(vectors)) == ([], COVERED[file])


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


def test_document_pads_its_own_body() -> None:
    writer = Writer()
    with writer.document(metadata=True, pad=True):
        writer.name("a")
    assert writer.data.hex() == "04000040c1618f8f"
