"""The native kernel against the plain one: equal in what they give, refuse and leave in buffers.

Arguments are all that 64 bits can say: positions behind the end, offsets and lengths that point
anywhere, excerpts that overlap each other or the buffer they are written to.
"""

import inspect
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock, Thread
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cqrepl.kernel import plain
from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.protocol.messages import ns_item, write_cid
from tests.property.test_kernel_properties import WIDE_NS, batch, files, framed
from tests.strategies import INT64_MAX, INT64_MIN, THOROUGH, corrupted, int64s, runs
from tests.support.kernels import Own, assert_agree, columns_of, kernel_named

FUNCTIONS = (
    "find_excerpts",
    "frame_excerpts",
    "scan_frames",
    "run_length",
    "split_run",
    "gather_payloads",
    "extend_chain",
    "number_from",
    "wide_gaps",
    "join_payloads",
    "laid_size",
    "measure_lengths",
    "lay_excerpts",
)
small = st.integers(-3, 80)
numbers = small | int64s
limits = st.just(NO_LIMIT) | numbers
wide_batches = st.lists(st.tuples(numbers, numbers), max_size=6)
near_batches = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)
batches = near_batches | wide_batches


@pytest.fixture(scope="module")
def native() -> ModuleType:
    return kernel_named("native")


@THOROUGH
@given(files | st.binary(max_size=80), small, small | st.none(), limits, limits, limits)
@example(b"", 0, 0, NO_LIMIT, NO_LIMIT, NO_LIMIT)
@example(bytes(8), INT64_MAX, 8, NO_LIMIT, NO_LIMIT, NO_LIMIT)
@example(bytes(8), 0, INT64_MAX, NO_LIMIT, NO_LIMIT, NO_LIMIT)
@example(bytes(8), 0, INT64_MIN, NO_LIMIT, NO_LIMIT, NO_LIMIT)
def test_find(
    native: ModuleType,
    store: bytes,
    position: int,
    end: int | None,
    count_max: int,
    bytes_max: int,
    payload_max: int,
) -> None:
    until = len(store) if end is None else end
    bounds = (count_max, bytes_max, payload_max)
    # at every address: only a mapping's begin is known
    for shift in range(4):
        view = memoryview(bytes(shift) + store)[shift:]
        assert_agree(native, "find_excerpts", view, position, until, *bounds)
        for alignment in (1, 2, 4):
            assert_agree(native, "find_excerpts", view, position, until, *bounds, alignment)


@THOROUGH
@given(
    st.binary(max_size=60),
    batches,
    numbers,
    int64s,
    st.binary(max_size=20),
    st.binary(max_size=10),
    st.integers(0, 300),
    numbers,
)
def test_frame(
    native: ModuleType,
    data: bytes,
    places: list[tuple[int, int]],
    start: int,
    index: int,
    cid_document: bytes,
    ns: bytes,
    room: int,
    filled: int,
) -> None:
    batch_of = (memoryview(data), *columns_of(places))
    # within the batch and the buffer as well: most other numbers are refused at once
    for begin, at in ((start, filled), (0, 0), (1, 3)):
        more = (begin, index, cid_document, ns, Own.BYTES, at)
        assert_agree(native, "frame_excerpts", *batch_of, *more, buffer=bytes(room))


@THOROUGH
@given(near_batches, st.binary(min_size=40, max_size=300))
def test_frames_written_over_their_payloads(
    native: ModuleType, places: list[tuple[int, int]], data: bytes
) -> None:
    batch_of = (Own.VIEW, *columns_of(places))
    more = (0, 1, b"cid", b"ns", Own.BYTES, 5)
    assert_agree(native, "frame_excerpts", *batch_of, *more, buffer=data)


@THOROUGH
@given(runs, st.integers(0, INT64_MAX - 1000), int64s, WIDE_NS, st.data())
def test_frame_and_scan_of_real_batches(
    native: ModuleType, contents: list[bytes], index: int, cid: int, ns: int, data: st.DataObject
) -> None:
    buffer, *columns = batch(contents)
    frames = framed(contents, index, cid, ns)
    cid_document = write_cid(cid)
    more = (0, index, cid_document, ns_item(ns), Own.BYTES, 0)
    for room in (len(frames), data.draw(st.integers(0, len(frames)))):
        batch_of = (memoryview(buffer), *columns)
        assert_agree(native, "frame_excerpts", *batch_of, *more, buffer=bytes(room))
    frames = b"?" + frames
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(frames) - 1) | st.integers(0, min(60, len(frames) - 1)))
        frames = corrupted(frames, at, data.draw(st.integers(0, 255)))
    payload_max = data.draw(limits)
    for start in (1, data.draw(numbers)):
        for cut in (len(frames), data.draw(st.integers(0, len(frames)))):
            piece = frames[:cut]
            assert_agree(native, "scan_frames", piece, start, cid_document, payload_max)


@pytest.mark.parametrize("index", [INT64_MAX - 1, INT64_MAX, INT64_MIN])
def test_indexes_at_the_end_of_64_bits(native: ModuleType, index: int) -> None:
    data, *columns = batch([b"a", b"b"])
    more = (0, index, b"cid", b"ns", Own.BYTES, 0)
    assert_agree(native, "frame_excerpts", memoryview(data), *columns, *more, buffer=bytes(200))


def test_nothing_follows_the_last_index(native: ModuleType) -> None:
    last, least = (framed([b"a"], index, 5, 1 << 40 | 1) for index in (INT64_MAX, INT64_MIN))
    end, *_ = assert_agree(native, "scan_frames", last + least, 0, write_cid(5), NO_LIMIT)
    assert end == len(last)


@THOROUGH
@given(numbers, st.integers(-3, 300))
@example(INT64_MAX, 1)
@example(INT64_MAX, 2)
@example(INT64_MIN, 2)
def test_numbers(native: ModuleType, first: int, count: int) -> None:
    assert_agree(native, "number_from", first, count)


@THOROUGH
@given(batches, numbers, numbers, numbers)
@example([], INT64_MIN, INT64_MAX, INT64_MAX)
@example([(INT64_MAX, INT64_MAX)], INT64_MIN, INT64_MIN, 0)
@example([(8, 3), (16, 1), (24, 2)], 4, 36, 5)
def test_gaps(
    native: ModuleType, places: list[tuple[int, int]], start: int, stop: int, gap_max: int
) -> None:
    offsets, lengths = columns_of(places)
    for more in (array("q"), array("q", [0])):
        assert_agree(native, "wide_gaps", offsets, lengths + more, start, stop, gap_max)


@THOROUGH
@given(st.binary(max_size=60), batches)
def test_gather(native: ModuleType, data: bytes, places: list[tuple[int, int]]) -> None:
    offsets, lengths = columns_of(places)
    for more in (array("q"), array("q", [0])):
        assert_agree(native, "gather_payloads", data, offsets, lengths + more)


@THOROUGH
@given(
    st.binary(max_size=100),
    batches,
    numbers,
    st.binary(min_size=16, max_size=16) | st.binary(max_size=18),
)
def test_chain(
    native: ModuleType, data: bytes, places: list[tuple[int, int]], sequence: int, chain: bytes
) -> None:
    offsets, lengths = columns_of(places)
    for more in (array("q"), array("q", [0])):
        assert_agree(native, "extend_chain", data, offsets, lengths + more, sequence, chain)


@THOROUGH
@given(st.lists(st.binary(max_size=300), max_size=8))
def test_join(native: ModuleType, contents: list[bytes]) -> None:
    views = [memoryview(content) for content in contents]
    wide = [memoryview(bytes(8 * len(content))).cast("q") for content in contents]
    for payloads in (contents, tuple(views), [*contents, *wide]):
        data, offsets, lengths = assert_agree(native, "join_payloads", payloads)
        found = [data[at : at + length] for at, length in zip(offsets, lengths, strict=True)]
        assert found == [bytes(payload) for payload in payloads]


@THOROUGH
@given(st.lists(numbers, max_size=5), small, small)
def test_laid_size(native: ModuleType, lengths: list[int], start: int, count: int) -> None:
    for part in ((start, count), (0, len(lengths))):
        assert_agree(native, "laid_size", array("q", lengths), *part)
        assert_agree(native, "measure_lengths", array("q", lengths), *part)


@THOROUGH
@given(
    st.binary(max_size=60),
    batches,
    st.tuples(numbers, numbers),
    st.integers(0, 400),
    numbers,
    st.integers(-(1 << 62), 1 << 62) | small,
    numbers,
)
def test_lay(
    native: ModuleType,
    data: bytes,
    places: list[tuple[int, int]],
    part: tuple[int, int],
    room: int,
    position: int,
    sequence: int,
    spacing: int,
) -> None:
    batch_of = (data, *columns_of(places))
    for start_count in (part, (1, 2), (0, len(places))):
        for at, every in ((position, spacing), (8, 1 + spacing % 3)):
            more = (*start_count, Own.VIEW, at, sequence, every)
            assert_agree(native, "lay_excerpts", *batch_of, *more, buffer=b"\xee" * room)


@THOROUGH
@given(near_batches, st.binary(min_size=80, max_size=400))
def test_excerpts_laid_over_themselves(
    native: ModuleType, places: list[tuple[int, int]], data: bytes
) -> None:
    batch_of = (Own.VIEW, *columns_of(places))
    more = (0, len(places), Own.VIEW, 8, 0, 2)
    assert_agree(native, "lay_excerpts", *batch_of, *more, buffer=data)


COUNT = 20_000  # so many that the GIL is released on the way


def test_large_batches_in_files(native: ModuleType) -> None:
    data, offsets, lengths = batch([bytes([nth % 251]) * (nth % 97) for nth in range(COUNT)])
    (size,) = assert_agree(native, "laid_size", lengths, 0, COUNT)
    batch_of = (data, offsets, lengths)
    more = (0, COUNT, Own.VIEW, 0, 0, 256)
    assert_agree(native, "lay_excerpts", *batch_of, *more, buffer=bytes(size))
    store = bytearray(size)
    first_word, *_ = native.lay_excerpts(*batch_of, 0, COUNT, memoryview(store), 0, 0, 256)
    store[:4] = first_word.to_bytes(4, "little")
    bounds = (NO_LIMIT, NO_LIMIT, NO_LIMIT)
    _, _, found, _ = assert_agree(native, "find_excerpts", memoryview(store), 0, size, *bounds)
    assert len(found) == COUNT
    assert_agree(native, "gather_payloads", *batch_of)


def test_large_batches_in_frames(native: ModuleType) -> None:
    contents = [bytes([nth % 251]) * (nth % 97) for nth in range(COUNT)]
    data, *columns = batch(contents)
    ns = 1 << 40 | 1
    frames = framed(contents, 7, 5, ns)
    scanned = assert_agree(native, "scan_frames", frames, 0, write_cid(5), NO_LIMIT)
    assert len(scanned[3]) == COUNT
    more = (0, 7, write_cid(5), ns_item(ns), Own.BYTES, 0)
    room = bytes(len(frames))
    assert_agree(native, "frame_excerpts", memoryview(data), *columns, *more, buffer=room)


# ---------------------------------------------------------------- the native module itself


# never long enough to let other threads run, or all of it needs Python's objects
QUICK = (
    "join_payloads",
    "laid_size",
    "measure_lengths",
    "number_from",
    "run_length",
    "split_run",
    "wide_gaps",
)


def large_calls(native: ModuleType) -> dict[str, Callable[[], object]]:
    """A call of each function that handles many excerpts."""
    data, offsets, lengths = batch([b"x" * 60] * COUNT)
    frames = framed([b"x" * 60] * COUNT, 0, 5, 1 << 40 | 1)
    store = bytearray(native.laid_size(lengths, 0, COUNT))
    view, out = memoryview(store), bytearray(len(frames))
    lay = (data, offsets, lengths, 0, COUNT, view, 0, 0, 256)
    store[:4] = native.lay_excerpts(*lay)[0].to_bytes(4, "little")
    frame = (memoryview(data), offsets, lengths, 0, 0, b"cid", b"ns", out, 0)
    bounds = (NO_LIMIT, NO_LIMIT, NO_LIMIT)
    return {
        "lay_excerpts": lambda: native.lay_excerpts(*lay),
        "find_excerpts": lambda: native.find_excerpts(view, 0, len(store), *bounds),
        "frame_excerpts": lambda: native.frame_excerpts(*frame),
        "scan_frames": lambda: native.scan_frames(frames, 0, write_cid(5), NO_LIMIT),
        "gather_payloads": lambda: native.gather_payloads(data, offsets, lengths),
        "extend_chain": lambda: native.extend_chain(data, offsets, lengths, 0, bytes(16)),
    }


@pytest.fixture
def no_switching() -> Iterator[None]:
    """Threads run only when the one that runs lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("no_switching")
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in QUICK])
def test_other_threads_run_while_a_large_batch_is_handled(native: ModuleType, name: str) -> None:
    call = large_calls(native)[name]
    gate, ran = Lock(), Event()

    def run() -> None:
        with gate:
            ran.set()

    with gate:
        thread = Thread(target=run)
        thread.start()
    tries = 0
    while not ran.is_set() and tries < 2000:
        call()
        tries += 1
    assert ran.is_set()
    thread.join()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_have_the_same_names(native: ModuleType, name: str) -> None:
    def names(module: ModuleType) -> list[str]:
        return list(inspect.signature(getattr(module, name)).parameters)

    assert names(native) == names(plain)


def test_each_class_names_the_module_that_it_is_in(native: ModuleType) -> None:
    classes = {name: value for name, value in vars(native).items() if isinstance(value, type)}
    assert classes.keys() >= {"AtomicWords", "Pen", "LiveControl", "SourceLane", "SinkLane"}
    for name, value in classes.items():
        assert (value.__module__, value.__qualname__) == (native.__name__, name)


def test_the_stub_says_what_is_there(native: ModuleType) -> None:
    settings = str(Path(__file__).parents[2] / "pyproject.toml")
    command = [sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", settings]
    command.append(native.__name__)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


WRONG: list[tuple[str, Callable[[ModuleType], Any]]] = [
    ("no buffer", lambda kernel: kernel.find_excerpts(5, 0, 0, 0, 0, 0)),
    ("no number", lambda kernel: kernel.find_excerpts(memoryview(b""), "0", 0, 0, 0, 0)),
    ("too few", lambda kernel: kernel.find_excerpts(memoryview(b""))),
    ("no payloads", lambda kernel: kernel.join_payloads(["text"])),
    ("no bytes", lambda kernel: kernel.scan_frames(5, 0, b"", 0)),
    (
        "read-only",
        lambda kernel: kernel.lay_excerpts(
            b"a", array("q", [0]), array("q", [1]), 0, 1, memoryview(bytes(40)), 0, 0, 1
        ),
    ),
]


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in WRONG])
def test_arguments_of_another_type(native: ModuleType, call: Callable[[ModuleType], Any]) -> None:
    for kernel in (native, plain):
        with pytest.raises((TypeError, AttributeError)):
            call(kernel)


def test_arrays_of_another_width_are_refused(native: ModuleType) -> None:
    with pytest.raises(BufferError):
        native.gather_payloads(b"abc", array("i", [0]), array("i", [1]))
    with pytest.raises(BufferError):
        native.find_excerpts(memoryview(bytes(64))[::2], 0, 8, 1, 1, 1)
