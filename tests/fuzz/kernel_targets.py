"""The batch kernel beside the slow way, readers of documents and of messages.

Where the native kernel is built it runs beside the plain one, which the fuzzer looks into.
"""

from array import array
from typing import Final

from cqrepl.kernel import batch as kernel
from cqrepl.kernel import plain
from cqrepl.kernel.batch import NO_LIMIT, FindStop, Found, RunFault, Scanned
from cqrepl.protocol.messages import write_cid
from tests.fuzz.corpus import both, changed, documents, sessions, spread, stores
from tests.fuzz.families import Family
from tests.fuzz.target import SEPARATOR, Target, framed, parts_of, unframed
from tests.property.test_kernel_properties import assert_scan_agrees
from tests.property.test_runs_agree import as_run, is_run
from tests.support.kernels import Own, assert_agree, columns_of, native_kernel
from tests.support.peer import CID, excerpts, index
from wire.header import END_OF_FILE, align4, is_metadata, is_ready
from wire.objects.documents import DocumentReader

_CID_DOCUMENT: Final = write_cid(CID)
_NS_ITEM_BYTES: Final = 9
_INT64_MAX: Final = (1 << 63) - 1
_NATIVE: Final = native_kernel() or plain


def find_any(data: bytes) -> None:
    """The excerpts that the reader of padded documents finds; limits only cut the run short."""
    head, store = data[:4].ljust(4, b"\0"), data[4:]
    view, end = memoryview(store), len(store)
    found = kernel.find_excerpts(view, 0, end)
    assert excerpts_in(found, store) == judged_excerpts(store)
    assert found.stop is judged_stop(store, found.position)
    position, count_max, bytes_max, payload_max = head
    free = kernel.find_excerpts(view, position, end)
    cut = kernel.find_excerpts(
        view, position, end, count_max=count_max, bytes_max=bytes_max, payload_max=payload_max
    )
    for limits in ((NO_LIMIT, NO_LIMIT, NO_LIMIT), (count_max, bytes_max, payload_max)):
        assert_agree(_NATIVE, "find_excerpts", view, position, end, *limits)
    count = len(cut.offsets)
    assert (cut.offsets, cut.lengths) == (free.offsets[:count], free.lengths[:count])
    assert count <= count_max
    assert count <= 1 or sum(cut.lengths) <= bytes_max
    assert all(length <= payload_max for length in cut.lengths)
    if cut.stop in (FindStop.LIMIT, FindStop.TOO_LARGE):
        rest = kernel.find_excerpts(view, cut.position, end)
        assert cut.offsets + rest.offsets == free.offsets
    else:
        assert cut == free


def excerpts_in(found: Found, store: bytes) -> list[bytes]:
    places = zip(found.offsets, found.lengths, strict=True)
    return [store[offset : offset + length] for offset, length in places]


def judged_excerpts(store: bytes) -> list[bytes]:
    found: list[bytes] = []
    for document in DocumentReader(store, padding=True):
        if not is_ready(document.word):
            break
        if not is_metadata(document.word):
            found.append(bytes(document.body))
    return found


def judged_stop(store: bytes, position: int) -> FindStop:
    """The reason why no more excerpts follow, by the word that stands there."""
    assert position == align4(position)
    word = int.from_bytes(store[position : position + 4], "little")
    if position + 4 > len(store) or is_ready(word):
        return FindStop.PAST_END
    return FindStop.END_OF_FILE if word == END_OF_FILE else FindStop.NOT_READY


def scan_any(data: bytes) -> None:
    """The frames that splitter and reader find, made again byte for byte by `frame_excerpts`; and
    any parts as payloads are laid, and found again."""
    for stream in (data, framed(data)):
        assert_scan_agrees(stream, _CID_DOCUMENT)
        assert_agree(_NATIVE, "scan_frames", stream, 0, _CID_DOCUMENT, NO_LIMIT)
        scanned = kernel.scan_frames(stream, 0, _CID_DOCUMENT)
        if scanned is not None:
            assert_framed_again(stream, scanned)
    lay(parts_of(data))


def assert_framed_again(stream: bytes, scanned: Scanned) -> None:
    """Each frame is the one that we write, unless it says a length in more bytes than needed."""
    start = 0
    places = zip(scanned.offsets, scanned.lengths, strict=True)
    for index_at, (offset, length) in enumerate(places, scanned.index_first):
        end = offset + length + _NS_ITEM_BYTES
        ns_item = stream[offset + length : end]
        out = bytearray(end - start)
        count, filled = kernel.frame_excerpts(
            memoryview(stream),
            array("q", [offset]),
            array("q", [length]),
            0,
            index_at,
            _CID_DOCUMENT,
            ns_item,
            out,
            0,
        )
        assert count == 1
        assert out == stream[start:end] or filled < len(out)
        start = end
    assert start == scanned.end


def lay(contents: list[bytes]) -> None:
    """Lays these payloads into a store and finds them again."""
    data, offsets, lengths = b"".join(contents), array("q"), array("q")
    for content in contents:
        offsets.append(sum(lengths))
        lengths.append(len(content))
    size = kernel.laid_size(lengths, 0, len(contents))
    store = bytearray(b"\xee") * size
    store[:4] = bytes(4)
    laid = kernel.lay_excerpts(data, offsets, lengths, 0, len(contents), memoryview(store), 0, 0, 2)
    store[:4] = laid.first_word.to_bytes(4, "little")
    found = kernel.find_excerpts(memoryview(store), 0, size)
    assert excerpts_in(found, bytes(store)) == [content or b"\x8f" for content in contents]
    assert found.position == laid.position_end


def runs_any(data: bytes) -> None:
    """Bytes that may be a run are taken where they are one, and only there; what a store holds is
    taken up to where the run ends."""
    count, longest = (data[0] % 8, data[1]) if len(data) > 1 else (0, 0)
    for run in (data[2:], as_run([part or b"\x8f" for part in parts_of(data[2:])])):
        view = memoryview(run)
        for excerpts_in_run in (count, len(parts_of(data[2:]))):
            split = (view, 0, len(run), excerpts_in_run, longest)
            fault, offsets, lengths = kernel.split_run(*split)
            assert_agree(_NATIVE, "split_run", *split)
            assert (fault is RunFault.WHOLE) == is_run(run, excerpts_in_run, longest)
            assert len(offsets) == len(lengths)
        found = kernel.find_excerpts(view, 0, len(run))
        batch = (view, found.offsets, found.lengths)
        for start in range(len(found.offsets)):
            taken = kernel.run_length(*batch, start, count_max=NO_LIMIT, bytes_max=longest + 99)
            assert_agree(_NATIVE, "run_length", *batch, start, NO_LIMIT, longest + 99)
            if taken:
                last = start + taken - 1
                end = found.offsets[last] + found.lengths[last]
                assert is_run(run[found.offsets[start] - 4 : end], taken, NO_LIMIT)


def agree_any(data: bytes) -> None:
    """Every function with arguments of any kind: both kernels give, refuse and write the same."""
    numbers, buffer, places = (*parts_of(data), b"", b"", b"")[:3]
    start, count, position, other, third, room, *_ = _numbers(numbers, 6)
    offsets, lengths = _numbers(places)[::2], _numbers(places)[1::2]
    columns = columns_of(list(zip(offsets, lengths, strict=False)))
    batch = (memoryview(buffer), *columns)
    out = bytes(room % 400)
    assert_agree(_NATIVE, "find_excerpts", batch[0], position, start, count, other, third)
    assert_agree(_NATIVE, "scan_frames", buffer, start, numbers[:4], other)
    assert_agree(_NATIVE, "gather_payloads", *batch)
    assert_agree(_NATIVE, "extend_chain", *batch, position, out[:16].ljust(16, b"\0"))
    assert_agree(_NATIVE, "laid_size", columns[1], start, count)
    for source, written in ((batch[0], out), (Own.VIEW, buffer)):
        ran = (source, *columns, start)
        more = (position, numbers[:5], numbers[5:], Own.BYTES, other)
        assert_agree(_NATIVE, "frame_excerpts", *ran, *more, buffer=written)
        if -(1 << 62) < other < 1 << 62:  # a sequence; sums of it are not looked at
            laid = (count, Own.VIEW, position, other, third)
            assert_agree(_NATIVE, "lay_excerpts", *ran, *laid, buffer=written)


def _numbers(data: bytes, count: int = 0) -> list[int]:
    """Two bytes for each: near 0, or near one of the ends of 64 bits."""
    data = data.ljust(2 * count, b"\0")
    pairs = array("h", data[: len(data) & ~1])
    ends = {0x7F: _INT64_MAX - 0x7FFF, -0x80: -_INT64_MAX - 1 + 0x8000}
    return [number + ends.get(number >> 8, 0) for number in pairs]


def _arguments() -> list[bytes]:
    return [
        SEPARATOR.join(array("h", part).tobytes() for part in parts)
        for parts in (
            ([0, 3, 0, 0, 1, 200], [3, 99, 98, 0, 5, 7, 8], [0, 3, 2, 2, 4, 0]),
            ([14, 0, 0, 9, 9, 0], [3, 99, 98, 0, 5, 7, 0], []),
            ([1, 1, 8, 5, 4, 40], [3, 3, 3], [0x7FFF, 1, 1, 3]),
        )
    ]


def _frames() -> list[bytes]:
    runs = [[b"a"], [b"", b"bc"], [b"x" * 255, b"y" * 256], [b"q" * 40] * 5]
    return [excerpts(index(0), *payloads) for payloads in runs]


def _runs() -> list[bytes]:
    parts = ([b"a", b"bc", b"def"], [b"x" * 9] * 3, [b"q" * 40, b"r"])
    return [as_run(list(each)) for each in parts] + [SEPARATOR.join(each) for each in parts]


_frame_seeds = both(_frames, spread(sessions, 20, length_max=1500))
TARGETS: Final[Family] = {
    "runs": Target(
        run=runs_any,
        seeds=changed(
            both(_runs, spread(stores, 30, length_max=600)), lambda run: b"\x03\xff" + run
        ),
        tokens=(SEPARATOR, b"\0\0\0\x80", b"\0\0\0\xc0", b"\x05\0\0\0", b"\0\0\0\x40"),
        length_max=700,
    ),
    "find-excerpts": Target(
        run=find_any,
        seeds=changed(
            both(spread(documents, 200, length_max=400), spread(stores, 60, length_max=2040)),
            lambda store: b"\0\x03\xff\x20" + store,
        ),
        tokens=(b"\0\0\0\0", b"\0\0\0\x80", b"\0\0\0\xc0", b"\x05\0\0\0", b"\0\0\0\x40"),
    ),
    "kernels-agree": Target(
        run=agree_any,
        seeds=_arguments,
        tokens=(SEPARATOR, b"\xff\x7f", b"\0\x80", b"\xff\xff", b"\4\0\0\0", b"\0\0\0\xc0"),
        length_max=256,
    ),
    "scan-frames": Target(
        run=scan_any,
        seeds=both(_frame_seeds, changed(_frame_seeds, unframed)),
        tokens=(SEPARATOR, b"\0" + _CID_DOCUMENT[4:], b"\x01" + _CID_DOCUMENT[4:], b"\xc2re\x82"),
        length_max=1536,
    ),
}
