"""The batch kernel: its limits, the layout it writes, and that it stops before what is not whole.

What holds for any batch is in `tests/property/test_kernel_properties.py`.
"""

import mmap
from array import array
from typing import Any

import pytest

from cqrepl.kernel import batch as kernel
from cqrepl.kernel import choose
from cqrepl.kernel.batch import FindStop
from cqrepl.protocol.messages import ns_item, write_cid, write_replication_event
from wire import Splitter

pytestmark = pytest.mark.usefixtures("each_kernel")
CID = 292323922173575
CID_DOCUMENT = write_cid(CID)
INDEX = 0x451600000000
NS = 10849029994071  # too wide and too odd for any form but the one with 8 bytes
NOISE = 0xEE
META = 1 << 30


def document(body: bytes, bits: int = 0) -> bytes:
    return (len(body) | bits).to_bytes(4, "little") + body + bytes(-len(body) % 4)


def find(store: bytes, position: int = 0, end: int | None = None, **limits: int) -> kernel.Found:
    return kernel.find_excerpts(
        memoryview(store), position, len(store) if end is None else end, **limits
    )


def taken(store: bytes, found: kernel.Found) -> list[bytes]:
    places = zip(found.offsets, found.lengths, strict=True)
    return [store[offset : offset + length] for offset, length in places]


def batch(payloads: list[bytes]) -> tuple[bytes, "array[int]", "array[int]"]:
    """Payloads with noise between them, as in a file."""
    data, offsets = b"\xaa", array("q")
    for payload in payloads:
        offsets.append(len(data))
        data += payload + b"\xaa"
    return data, offsets, array("q", map(len, payloads))


def frames(payloads: list[bytes], index: int = INDEX, ns: int = NS) -> bytes:
    return b"".join(
        CID_DOCUMENT + write_replication_event(index + place, payload, ns)
        for place, payload in enumerate(payloads)
    )


def scan(data: bytes, start: int = 0, **limits: int) -> kernel.Scanned | None:
    return kernel.scan_frames(data, start, CID_DOCUMENT, **limits)


THREE = document(b"abcde") + document(b"fg") + document(b"hijk")


@pytest.mark.parametrize(
    ("word", "stop"),
    [
        (0, FindStop.NOT_READY),
        (1 << 31, FindStop.NOT_READY),
        (1 << 31 | 5, FindStop.NOT_READY),
        (3 << 30 | 5, FindStop.NOT_READY),
        (3 << 30, FindStop.END_OF_FILE),
        (4, FindStop.PAST_END),
        ((1 << 30) - 1, FindStop.PAST_END),
        ((1 << 31) - 1, FindStop.PAST_END),
    ],
)
def test_stops_before_what_is_no_whole_document(word: int, stop: FindStop) -> None:
    store = THREE + word.to_bytes(4, "little") + b"xyz"
    found = find(store)
    assert (found.position, found.stop, len(found.offsets)) == (len(THREE), stop, 3)


@pytest.mark.parametrize(
    ("last", "stop"),
    [
        (bytes(4), FindStop.NOT_READY),
        ((3 << 30).to_bytes(4, "little"), FindStop.END_OF_FILE),
        (document(b"", META), FindStop.PAST_END),
        (bytes(3), FindStop.PAST_END),
    ],
)
def test_the_last_four_bytes_are_a_header(last: bytes, stop: FindStop) -> None:
    assert find(THREE + last).stop is stop


def test_starts_at_the_next_multiple_of_4() -> None:
    assert taken(THREE, find(THREE, position=9)) == [b"fg", b"hijk"]


@pytest.mark.parametrize(
    ("limits", "count", "position", "stop"),
    [
        ({"count_max": 2}, 2, 20, FindStop.LIMIT),
        ({"count_max": 3}, 3, 28, FindStop.PAST_END),
        ({"bytes_max": 7}, 2, 20, FindStop.LIMIT),
        ({"bytes_max": 6}, 1, 12, FindStop.LIMIT),
        ({"bytes_max": 0}, 1, 12, FindStop.LIMIT),  # one is given all the same
        ({"bytes_max": 11}, 3, 28, FindStop.PAST_END),
        ({"payload_max": 4}, 0, 0, FindStop.TOO_LARGE),
        ({"payload_max": 5}, 3, 28, FindStop.PAST_END),
    ],
)
def test_limits(limits: dict[str, int], count: int, position: int, stop: FindStop) -> None:
    found = find(THREE, **limits)
    assert (len(found.offsets), found.position, found.stop) == (count, position, stop)


def test_frames_only_what_fits_whole() -> None:
    payloads = [b"a" * 10, b"b" * 300, b"c"]
    data, offsets, lengths = batch(payloads)
    whole = frames(payloads)
    ends = [len(frames(payloads[:count])) for count in range(4)]
    for room in range(len(whole) + 2):
        out = bytearray([NOISE]) * (3 + room)
        count, filled = kernel.frame_excerpts(
            memoryview(data), offsets, lengths, 0, INDEX, CID_DOCUMENT, ns_item(NS), out, 3
        )
        assert filled - 3 == ends[count] <= room
        assert count == 3 or ends[count + 1] > room
        assert bytes(out[3:filled]) == whole[: ends[count]]
        assert bytes(out[:3] + out[filled:]) == bytes([NOISE]) * (3 + room - ends[count])


def test_frames_from_the_middle_of_a_batch() -> None:
    payloads = [b"a", b"b", b"c"]
    data, offsets, lengths = batch(payloads)
    out = bytearray(1000)
    count, filled = kernel.frame_excerpts(
        memoryview(data), offsets, lengths, 1, INDEX, CID_DOCUMENT, ns_item(NS), out, 0
    )
    assert (count, bytes(out[:filled])) == (2, frames([b"b", b"c"]))


def test_scan_stops_at_every_cut() -> None:
    payloads = [b"abc", b"", b"x" * 300]
    data = frames(payloads)
    ends = [len(frames(payloads[:count])) for count in range(4)]
    for cut in range(len(data) + 1):
        whole = len([end for end in ends[1:] if end <= cut])
        scanned = scan(data[:cut])
        assert (scanned is None) == (whole == 0)
        assert scanned is None or (scanned.end, len(scanned.offsets)) == (ends[whole], whole)


def other_ways_to_go_on() -> list[tuple[str, bytes]]:
    good = write_replication_event(INDEX + 1, b"b", NS)
    head = CID_DOCUMENT
    return [
        ("another handler", write_cid(CID + 1) + good),
        ("no handler", good),
        ("index jumps", head + write_replication_event(INDEX + 2, b"b", NS)),
        ("index repeats", head + write_replication_event(INDEX, b"b", NS)),
        ("index goes back", head + write_replication_event(INDEX - 1, b"b", NS)),
        ("larger than allowed", head + write_replication_event(INDEX + 1, b"b" * 9, NS)),
        ("another form of the time", head + write_replication_event(INDEX + 1, b"b", 5)),
        ("meta-data", head + good[:3] + b"\x40" + good[4:]),
        ("not complete", head + good[:3] + b"\x80" + good[4:]),
        ("another name", head + good.replace(b"\xc2re", b"\xc2er")),
        ("an event name", head + good.replace(b"\xc2re", b"\xb9\x02re")),
        ("padding", head + good.replace(b"\xc2re", b"\x8f\xc2re")),
        ("index as INT64", head + good.replace(b"\xaf", b"\xa7", 1)),
        ("array code", head + good.replace(b"\x80\x01b", b"\x8a\x01b")),
        ("something behind the time", head + _longer_by_one(good)),
    ]


def _longer_by_one(event: bytes) -> bytes:
    longer = bytearray(event + b"\x8f")
    longer[0] += 1
    longer[8] += 1
    return bytes(longer)


@pytest.mark.parametrize(
    "more", [pytest.param(more, id=name) for name, more in other_ways_to_go_on()]
)
def test_scan_stops_before_anything_else(more: bytes) -> None:
    first = frames([b"a"])
    scanned = scan(first + more + first, payload_max=8)
    assert scanned is not None
    assert (scanned.end, list(scanned.lengths)) == (len(first), [1])
    assert scan(more, payload_max=8) is None or more.startswith(CID_DOCUMENT)


def test_scan_takes_a_longer_form_of_the_payload_length() -> None:
    event = write_replication_event(INDEX, b"abc", NS)
    longer = bytearray(event.replace(b"\x80\x03abc", b"\x82\x03\0\0\0abc"))
    longer[0] += 3
    longer[8] += 3
    scanned = scan(CID_DOCUMENT + bytes(longer))
    assert scanned is not None
    assert list(scanned.lengths) == [3]


def test_scan_of_what_the_splitter_gathered() -> None:
    splitter = Splitter(1 << 20)
    data = frames([b"a", b"b"])
    splitter.feed(data[:50])
    splitter.feed(data[50:])
    gathered, at = splitter.gathered()
    scanned = scan(bytes(gathered), at)
    assert scanned is not None
    splitter.skip_to(scanned.end)
    assert splitter.pending_bytes == 0


@pytest.mark.parametrize(
    ("payload", "laid"),
    [
        (b"", "01000000" + "8f" + "000000"),
        (b"a", "01000000" + "61" + "000000"),
        (b"ab", "02000000" + "6162" + "0000"),
        (b"abc", "03000000" + "616263" + "00"),
        (b"abcd", "04000000" + "61626364"),
    ],
)
def test_layout_of_one_excerpt(payload: bytes, laid: str) -> None:
    store = bytearray([NOISE]) * 40
    store[8:12] = bytes(4)
    data, offsets, lengths = batch([payload])
    result = kernel.lay_excerpts(
        data, offsets, lengths, 0, 1, memoryview(store), 8, sequence=5, index_spacing=4
    )
    assert store[8:12] == bytes(4)  # nothing to be seen yet
    assert (result.position_end, result.position_last, result.marks) == (16, 8, [])
    store[8:12] = result.first_word.to_bytes(4, "little")
    assert store.hex() == "ee" * 8 + laid + "00" * 8 + "ee" * 16


def test_gathers_payloads_side_by_side() -> None:
    data, offsets, lengths = batch([b"a", b"", b"ccc"])
    assert kernel.gather_payloads(data, offsets, lengths) == (b"accc", array("q", [0, 1, 1, 4]))
    assert kernel.gather_payloads(b"", array("q"), array("q")) == (b"", array("q", [0]))


OUTSIDE = [(8, 3), (-1, 2), (2, -1), (1 << 62, 1), (0, (1 << 63) - 1), (9, 2)]  # of 10 bytes


@pytest.mark.parametrize(("offset", "length"), OUTSIDE)
def test_excerpts_outside_of_the_data_are_refused(offset: int, length: int) -> None:
    data, offsets, lengths = bytes(10), array("q", [0, offset]), array("q", [1, length])
    with pytest.raises(ValueError, match="within the data"):
        kernel.gather_payloads(data, offsets, lengths)
    store = bytearray(100)
    with pytest.raises(ValueError, match="within the data"):
        kernel.lay_excerpts(data, offsets, lengths, 0, 2, memoryview(store), 0, 0, 1)
    assert store == bytes(100)
    if length < 100:
        with pytest.raises(ValueError, match="within the data"):
            kernel.frame_excerpts(
                memoryview(data), offsets, lengths, 0, 0, b"cid", b"ns", bytearray(200), 0
            )


@pytest.mark.parametrize("filled", [0, 200, (1 << 63) - 1])
def test_a_length_below_0_is_no_room(filled: int) -> None:
    for length in (-1, -(1 << 63)):
        offsets, lengths = array("q", [0]), array("q", [length])
        with pytest.raises(ValueError, match="within the data"):
            kernel.frame_excerpts(
                memoryview(bytes(10)), offsets, lengths, 0, 0, b"", b"", bytearray(200), filled
            )


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (0, 0), (0, -1), (0, 4), (3, 1), (4, 1)])
def test_parts_of_a_batch_that_there_are_not(start: int, count: int) -> None:
    data, offsets, lengths = batch([b"a", b"b", b"c"])
    with pytest.raises(ValueError, match="a part of the batch"):
        kernel.lay_excerpts(
            data, offsets, lengths, start, count, memoryview(bytearray(99)), 0, 0, 1
        )
    if count:
        with pytest.raises(ValueError, match="a part of the batch"):
            kernel.laid_size(lengths, start, count)


def test_arrays_of_different_lengths_are_no_batch() -> None:
    data, offsets, lengths = batch([b"a", b"b"])
    with pytest.raises(ValueError, match="a part of the batch"):
        kernel.gather_payloads(data, offsets, lengths[:1])
    for start in (0, -1):
        with pytest.raises(ValueError, match="a part of the batch"):
            kernel.frame_excerpts(
                memoryview(data), offsets, lengths[: 1 - start], start, 0, b"", b"", bytearray(9), 0
            )


@pytest.mark.parametrize(
    ("position", "spacing"), [(-4, 1), (2, 1), (72, 1), (1 << 62, 1), (0, 0), (0, -1)]
)
def test_excerpts_are_laid_whole_or_not_at_all(position: int, spacing: int) -> None:
    data, offsets, lengths = batch([b"a", b"b", b"c"])
    store = bytearray(100)  # 32 are needed
    with pytest.raises(ValueError, match="expected"):
        kernel.lay_excerpts(data, offsets, lengths, 0, 3, memoryview(store), position, 0, spacing)
    assert store == bytes(100)


def test_positions_outside_are_refused() -> None:
    for position, end in ((-1, 0), (-4, 8), (0, 9), (0, 1 << 62)):
        with pytest.raises(ValueError, match="within the buffer"):
            find(bytes(8), position, end)
    with pytest.raises(ValueError, match="within the buffer"):
        scan(frames([b"a"]), -1)
    data, offsets, lengths = batch([b"a"])
    with pytest.raises(ValueError, match="within the buffer"):
        kernel.frame_excerpts(memoryview(data), offsets, lengths, 0, 0, b"", b"", bytearray(99), -1)


def test_a_body_longer_than_a_header_can_tell() -> None:
    large: Any = memoryview(mmap.mmap(-1, (1 << 30) + 200))  # no page of it is touched
    offsets, lengths = array("q", [0]), array("q", [1 << 30])
    with pytest.raises(ValueError, match="a header can tell"):
        kernel.lay_excerpts(large, offsets, lengths, 0, 1, large, 0, 0, 1)
    with pytest.raises(ValueError, match="a header can tell"):
        kernel.frame_excerpts(large, offsets, lengths, 0, 0, b"", b"", large, 0)


def test_no_index_has_more_than_64_bits() -> None:
    data, offsets, lengths = batch([b"a", b"b"])
    for index in ((1 << 63) - 1, 1 << 63, -(1 << 63) - 1):
        with pytest.raises(OverflowError):
            kernel.frame_excerpts(
                memoryview(data), offsets, lengths, 0, index, b"", b"", bytearray(99), 0
            )


def test_name_of_the_kernel_and_its_stops(each_kernel: str) -> None:
    assert each_kernel == choose.NAME
    assert [stop.value for stop in FindStop] == [0, 1, 2, 3, 4]
