"""The writer makes Java's bytes of the same calls, for every golden vector that it has calls for."""

import struct

import pytest

from tests.unit.wire.vectors import NOT_YET_WRITTEN, Vector, build, is_binary, kinds, load
from wire import Reader, Writer
from wire.writer import block_head, encode_int

FILES = (
    "ints",
    "floats",
    "strings",
    "scalars",
    "bindings",
    "replication",
    "bytes",
    "nested",
    "fields",
    "documents",
    "variants",
    "random",
)


def covered(file: str) -> list[Vector]:
    return [
        vector for vector in load(file) if is_binary(vector) and not kinds(vector) & NOT_YET_WRITTEN
    ]


@pytest.mark.parametrize("file", [file for file in FILES if file != "floats"])
def test_bytes_equal_java(file: str) -> None:
    vectors = covered(file)
    assert vectors
    wrong = [vector["name"] for vector in vectors if build(vector).hex() != vector["hex"]]
    assert wrong == []
