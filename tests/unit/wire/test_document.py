"""The splitter: any segmentation gives the same documents, and memory follows what came."""

import tracemalloc
from collections.abc import Iterable, Iterator

import pytest

from tests.support.vectors.manifest import Vector, load
from wire import Splitter, WireError
from wire.header import HEADER_BYTES, META_DATA, NOT_COMPLETE

LENGTH_MAX = 1 << 20
Cut = tuple[int, bytes, int]


def documents(pieces: Iterable[bytes], length_max: int = LENGTH_MAX) -> tuple[list[Cut], int]:
    """All whole documents, and where the next one would stand or is refused."""
    splitter = Splitter(length_max)
    found: list[Cut] = []
    for piece in pieces:
        splitter.feed(piece)
        try:
            while splitter.next_is_whole:
                document = splitter.next_document()
                assert document is not None
                found.append((document.word, bytes(document.body), document.position))
        except WireError as refused:
            return found, -(refused.position or 0)
        assert splitter.next_document() is None
    return found, splitter.position


def test_vectors_are_cut_as_java_cuts_them() -> None:
    for vector in load("decode_documents", "malformed"):
        if not vector.get("padding"):
            assert_cut_as_java(vector)


def assert_cut_as_java(vector: Vector) -> None:
    """Java waits for more where we wait, and where we refuse to go on."""
    data = bytes.fromhex(vector["hex"])
    splitter = Splitter((1 << 30) - 1)
    splitter.feed(data)
    for java in vector["documents"]:
        position = splitter.position
        rest = int.from_bytes(data[position : position + HEADER_BYTES], "little")
        is_refused = len(data) - position >= HEADER_BYTES and (rest == 0 or rest & NOT_COMPLETE)
        if is_refused:
            with pytest.raises(WireError) as caught:
                splitter.next_document()
            assert caught.value.position == position
            return
        document = splitter.next_document()
        assert (document is not None) == java["present"]
        if document is not None:
            at = document.position + HEADER_BYTES
            assert (at, len(document.body)) == (java["at"], java["length"])
            assert document.is_metadata == java["meta"] != java["data"]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (0, "a zero word came at position 5"),
        (NOT_COMPLETE | 1, "header 0x80000001 says not complete at position 5"),
        (NOT_COMPLETE | META_DATA, "says not complete at position 5"),
        (NOT_COMPLETE, "says not complete at position 5"),
        (LENGTH_MAX + 1, "at most 1048576 bytes was expected, .*0x00100001 announces 1048577 at"),
        (META_DATA | LENGTH_MAX + 1, "announces 1048577 at position 5"),
        (0x3FFFFFFF, "announces 1073741823 at position 5"),
    ],
)
def test_header_that_ends_the_stream(word: int, reason: str) -> None:
    splitter = Splitter(LENGTH_MAX)
    splitter.feed(b"\x01\0\0\0x" + word.to_bytes(4, "little") + b"\x01\0\0\0x")
    assert splitter.next_document() is not None
    for _ in range(2):  # it stays refused
        with pytest.raises(WireError, match=reason) as caught:
            splitter.next_document()
        assert caught.value.position == 5 == splitter.position
    with pytest.raises(WireError, match=reason):
        _ = splitter.next_is_whole


def test_limit_may_change_between_documents() -> None:
    splitter = Splitter(1)
    splitter.feed(b"\x01\0\0\0x\x02\0\0\0yz")
    assert splitter.next_document() is not None
    with pytest.raises(WireError):
        splitter.next_document()
    splitter.length_max = 2
    document = splitter.next_document()
    assert document is not None
    assert bytes(document.body) == b"yz"


def test_empty_metadata_document_is_a_document() -> None:
    found, _ = documents([b"\0\0\0\x40" * 2])
    assert found == [(META_DATA, b"", 0), (META_DATA, b"", 4)]


def test_bodies_stay_valid() -> None:
    splitter = Splitter(LENGTH_MAX)
    splitter.feed(b"\x02\0\0\0ab\x02\0")
    first = splitter.next_document()
    splitter.feed(b"\0\0cd")
    second = splitter.next_document()
    assert first is not None
    assert second is not None
    assert (bytes(first.body), bytes(second.body)) == (b"ab", b"cd")


def test_whole_documents_can_be_taken_past_the_splitter() -> None:
    splitter = Splitter(LENGTH_MAX)
    splitter.feed(b"\x01\0\0\0a")
    splitter.feed(b"")
    splitter.feed(b"\x01\0\0\0b\x01\0\0")
    assert splitter.next_document() is not None
    data, at = splitter.gathered()
    assert bytes(data[at:]) == b"\x01\0\0\0b\x01\0\0"
    splitter.skip_to(at + 5)
    assert (splitter.position, splitter.pending_bytes) == (10, 3)
    splitter.feed(b"\0c")
    document = splitter.next_document()
    assert document is not None
    assert (bytes(document.body), document.position) == (b"c", 10)


def allocated(pieces: Iterable[bytes]) -> int:
    """Greatest number of bytes that were held at a time while these were fed."""
    splitter = Splitter((1 << 30) - 1)
    tracemalloc.start()
    try:
        for piece in pieces:
            splitter.feed(piece)
            assert splitter.next_document() is None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 2, 100])
def test_memory_follows_what_came_however_small_the_pieces(size: int) -> None:
    total = 1 << 16
    pieces = (bytes(bytearray(b"x" * size)) for _ in range(total // size))
    first = (0x3FFFFFFF).to_bytes(4, "little")

    def stream() -> Iterator[bytes]:
        yield first
        yield from pieces

    assert allocated(stream()) < 2 * total + 100_000
