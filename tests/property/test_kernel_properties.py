"""The kernel on any batch: laid and found again, framed and scanned again, and never otherwise than
the slow way has it: the grammar for files, splitter and reader for frames."""

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cqrepl.kernel import batch as kernel
from cqrepl.kernel.batch import FindStop
from cqrepl.protocol.messages import (
    ns_item,
    read_replication_event,
    write_cid,
    write_replication_event,
)
from tests.strategies import INT64_MAX, THOROUGH, corrupted, int64s, runs
from wire import Reader, Splitter, WireError
from wire.grammar import Documents, PaddedDocuments

pytestmark = pytest.mark.usefixtures("each_kernel")
NOISE = 0xEE
EMPTY_LAID = b"\x8f"
WIDE_NS = st.integers(1 << 40, (1 << 62) - 1).map(lambda ns: ns | 1)  # always in 8 bytes
indexes = st.integers(0, INT64_MAX - 1000)
Frame = tuple[int, bytes, int, int]  # index, payload, nano time, end


def batch(contents: list[bytes]) -> tuple[bytes, "array[int]", "array[int]"]:
    data, offsets = b"\xaa", array("q")
    for content in contents:
        offsets.append(len(data))
        data += content + b"\xaa"
    return data, offsets, array("q", map(len, contents))


@THOROUGH
@given(runs, st.integers(0, 20).map(lambda n: 4 * n), st.integers(0, 9), st.sampled_from((1, 2, 4)))
@example([b""], 0, 0, 1)
@example([b"a" * 255, b"", b"b" * 65536, b"c" * 65535, b"d" * 256], 8, 3, 2)
def test_what_is_laid_is_found(
    contents: list[bytes], position: int, sequence: int, spacing: int
) -> None:
    data, offsets, lengths = batch(contents)
    size = kernel.laid_size(lengths, 0, len(contents))
    store = bytearray([NOISE]) * (position + size + 10)
    store[position : position + 4] = bytes(4)
    laid = kernel.lay_excerpts(
        data, offsets, lengths, 0, len(contents), memoryview(store), position, sequence, spacing
    )
    # nothing is published, nothing is written outside, and the next header is zero
    assert kernel.find_excerpts(memoryview(store), position, len(store)).stop is FindStop.NOT_READY
    assert store[:position] + store[position + size :] == bytes([NOISE]) * (position + 10)
    assert store[laid.position_end : laid.position_end + 8] == bytes(8)
    assert laid.position_end + 8 <= position + size

    store[position : position + 4] = laid.first_word.to_bytes(4, "little")
    found = kernel.find_excerpts(memoryview(store), position, len(store))
    bodies = [store[o : o + n] for o, n in zip(found.offsets, found.lengths, strict=True)]
    assert bodies == [content or EMPTY_LAID for content in contents]
    assert (found.position, found.stop) == (laid.position_end, FindStop.NOT_READY)
    headers = [offset - 4 for offset in found.offsets]
    assert headers[-1] == laid.position_last
    numbered = enumerate(headers, sequence)
    assert laid.marks == [(nth, header) for nth, header in numbered if nth % spacing == 0]


@THOROUGH
@given(runs, st.data())
def test_what_is_laid_in_parts_is_the_same(contents: list[bytes], data: st.DataObject) -> None:
    buffer, offsets, lengths = batch(contents)
    stores = []
    for cut in (0, data.draw(st.integers(0, len(contents) - 1))):
        store = bytearray(kernel.laid_size(lengths, 0, len(contents)) + 8)
        position = start = 0
        for stop in sorted({cut, len(contents)} - {0}):
            laid = kernel.lay_excerpts(
                buffer, offsets, lengths, start, stop - start, memoryview(store), position, 0, 1
            )
            store[position : position + 4] = laid.first_word.to_bytes(4, "little")
            position, start = laid.position_end, stop
        stores.append(store)
    assert stores[0] == stores[1]


words = st.one_of(
    st.integers(0, 12),
    st.integers(0, 12).map(lambda length: length | 1 << 30),
    st.sampled_from((1 << 31, 3 << 30, 3 << 30 | 4, (1 << 30) - 1, (1 << 32) - 1)),
).map(lambda word: word.to_bytes(4, "little"))
files = st.lists(words | st.binary(max_size=12), max_size=20).map(b"".join)


@THOROUGH
@given(files, st.sampled_from((1, 4)), st.data())
def test_finds_what_the_grammar_finds_in_any_bytes(
    store: bytes, alignment: int, data: st.DataObject
) -> None:
    end = data.draw(st.integers(0, len(store)))
    found = kernel.find_excerpts(memoryview(store), 0, end, alignment=alignment)
    grammar = PaddedDocuments if alignment == 4 else Documents
    documents = grammar.parse(store[:end]).documents
    bodies = [document.body for document in documents if not document.header.metadata]
    taken = [store[o : o + n] for o, n in zip(found.offsets, found.lengths, strict=True)]
    assert taken == bodies
    # and what stands behind the end makes no difference
    other = store[:end] + bytes(byte ^ 0xFF for byte in store[end:])
    assert kernel.find_excerpts(memoryview(other), 0, end, alignment=alignment) == found


@THOROUGH
@given(files, st.integers(0, 40), st.integers(0, 6), st.integers(0, 40), st.integers(0, 12))
def test_limits_cut_the_same_run_short(
    store: bytes, position: int, count_max: int, bytes_max: int, payload_max: int
) -> None:
    view = memoryview(store)
    free = kernel.find_excerpts(view, position, len(store))
    cut = kernel.find_excerpts(
        view,
        position,
        len(store),
        count_max=count_max,
        bytes_max=bytes_max,
        payload_max=payload_max,
    )
    count = len(cut.offsets)
    assert (cut.offsets, cut.lengths) == (free.offsets[:count], free.lengths[:count])
    assert count <= count_max
    assert count <= 1 or sum(cut.lengths) <= bytes_max
    assert all(length <= payload_max for length in cut.lengths)
    if cut.stop not in (FindStop.LIMIT, FindStop.TOO_LARGE):
        assert cut == free
        return
    # the excerpt that was refused stands at the position, and going on gives all of them
    rest = kernel.find_excerpts(view, cut.position, len(store))
    assert cut.offsets + rest.offsets == free.offsets
    (length, *_) = rest.lengths
    assert (length > payload_max) == (cut.stop is FindStop.TOO_LARGE)
    if cut.stop is FindStop.LIMIT:
        assert count == count_max or sum(cut.lengths) + length > bytes_max


def framed(contents: list[bytes], index: int, cid: int, ns: int) -> bytes:
    data, offsets, lengths = batch(contents)
    cid_document, item = write_cid(cid), ns_item(ns)
    room = sum(kernel.frame_size(cid_document, item, length) for length in lengths)
    out = bytearray(room)
    count, filled = kernel.frame_excerpts(
        memoryview(data), offsets, lengths, 0, index, cid_document, item, out, 0
    )
    assert count == len(contents)
    return bytes(out[:filled])


@THOROUGH
@given(runs, indexes, int64s, int64s)
def test_frames_are_the_messages(contents: list[bytes], index: int, cid: int, ns: int) -> None:
    messages = [
        write_cid(cid) + write_replication_event(index + place, content, ns)
        for place, content in enumerate(contents)
    ]
    assert framed(contents, index, cid, ns) == b"".join(messages)


@THOROUGH
@given(runs, indexes, int64s, WIDE_NS)
@example([b"a" * 255, b"", b"b" * 65536, b"c" * 65535, b"d" * 256], 0, 1 << 40, (1 << 60) + 1)
def test_what_is_framed_is_scanned(contents: list[bytes], index: int, cid: int, ns: int) -> None:
    data = framed(contents, index, cid, ns)
    scanned = kernel.scan_frames(data, 0, write_cid(cid))
    assert scanned is not None
    found = zip(scanned.offsets, scanned.lengths, strict=True)
    assert [data[offset : offset + length] for offset, length in found] == contents
    assert (scanned.index_first, scanned.ns_last, scanned.end) == (index, ns, len(data))


def read_slowly(data: bytes, cid_document: bytes) -> list[Frame]:
    """The events of this handler at the start of the data, by splitter and reader."""
    splitter = Splitter(1 << 24)
    splitter.feed(data)
    frames: list[Frame] = []
    try:
        while (routing := splitter.next_document()) and (event := splitter.next_document()):
            reader = Reader(event.body)
            if data[routing.position : event.position] != cid_document or event.is_metadata:
                break
            if reader.read_name() != "re":
                break
            excerpts, ns = read_replication_event(reader)
            payload = bytes(excerpts.payload(0))
            frames.append((excerpts.index_first, payload, ns, splitter.position))
    except WireError:
        pass
    return frames


def assert_scan_agrees(data: bytes, cid_document: bytes) -> None:
    """The scan may stop early; what it gives is what the slow way gives."""
    frames = read_slowly(data, cid_document)
    scanned = kernel.scan_frames(data, 0, cid_document)
    if scanned is None:
        return
    places = zip(scanned.offsets, scanned.lengths, strict=True)
    events = [
        (scanned.index_first + nth, data[offset : offset + length])
        for nth, (offset, length) in enumerate(places)
    ]
    assert events == [frame[:2] for frame in frames[: len(events)]]
    assert frames[len(events) - 1][2:] == (scanned.ns_last, scanned.end)


@THOROUGH
@given(
    st.lists(st.binary(max_size=6), min_size=1, max_size=3),
    indexes,
    int64s,
    WIDE_NS,
    st.integers(0, 255),
)
def test_one_wrong_byte_anywhere_gives_no_wrong_event(
    contents: list[bytes], index: int, cid: int, ns: int, value: int
) -> None:
    data = framed(contents, index, cid, ns)
    for at in range(len(data)):
        assert_scan_agrees(corrupted(data, at, value), write_cid(cid))


@THOROUGH
@given(runs, indexes, st.data())
def test_payload_limit_ends_the_scan(
    contents: list[bytes], index: int, data: st.DataObject
) -> None:
    limit = data.draw(st.sampled_from([len(content) for content in contents]))
    scanned = kernel.scan_frames(
        framed(contents, index, 5, 1 << 40 | 1), 0, write_cid(5), payload_max=limit
    )
    within = [len(content) <= limit for content in contents]
    count = [*within, False].index(False)
    assert (len(scanned.offsets) if scanned else 0) == count
