"""Any bytes whatsoever have a text, and it takes time in proportion to their number."""

import struct
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wire.text.print_documents import document_text, dump_text

BODY_BYTES = 1 << 17
SECONDS_MAX = 8  # CPU time, twenty times what is needed; a step for each pair of items takes longer
ITEMS = (
    b"\xbb",
    b"\x80\0",
    b"\x80\x02\xb6\0",
    b"\xbd",
    b"\xbd\xe1a",
    b"\xb6\x01a",
    b"\xbe\x01\n",
    b"\xbe\0",
    b"\xc1a\xa1\x01",
    b"\x8d" + struct.pack("<qq", 0, 5),
    b"\x83",
    b"\x86\0\0",
)

codes = st.integers(0x80, 0xFF).map(lambda code: bytes([code]))
fragments = st.one_of(codes, st.sampled_from(ITEMS), st.binary(max_size=9))


@st.composite
def bodies(draw: st.DrawFn, depth: int = 3) -> bytes:
    """Bytes that look like items now and then, nested and cut off as well."""
    parts = draw(st.lists(fragments, max_size=8))
    if depth and draw(st.booleans()):
        inner = draw(bodies(depth=depth - 1))
        claimed = max(0, len(inner) + draw(st.sampled_from((0, 0, 0, -1, 1, 1000))))
        parts.insert(draw(st.integers(0, len(parts))), b"\x82" + struct.pack("<I", claimed) + inner)
    return b"".join(parts)


@given(st.binary(max_size=400), st.booleans())
@example(b"\x01\0\0\x80\xb5", True)
@example(b"\x04\0\0\0\xb6\x80\0\0", False)
def test_any_bytes_have_a_text(data: bytes, padding: bool) -> None:
    assert isinstance(dump_text(data, padding=padding), str)


@given(st.lists(bodies(), max_size=4), st.integers(0, 3), st.booleans())
def test_any_documents_have_a_text(contents: list[bytes], kind: int, padding: bool) -> None:
    words = [struct.pack("<I", len(body) | kind << 30) for body in contents]
    data = b"".join(word + body for word, body in zip(words, contents, strict=True))
    text = dump_text(memoryview(data), padding=padding)
    # what is printed can be written and read again
    assert text.encode().decode() == text


@given(bodies(), st.integers(0, 40), st.booleans())
def test_any_body_ends_its_line(body: bytes, offset: int, fold_unused: bool) -> None:
    text = document_text(body, len(body), offset=offset, fold_unused=fold_unused)
    assert text.startswith("--- !!data")
    assert text.endswith("\n")


@pytest.mark.parametrize("item", ITEMS)
def test_time_is_bounded_by_the_number_of_bytes(item: bytes) -> None:
    body = item * (BODY_BYTES // len(item))
    start = time.process_time()
    document_text(body, len(body), offset=4)
    assert time.process_time() - start < SECONDS_MAX
