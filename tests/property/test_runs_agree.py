"""Runs in both kernels: what is split, and what is refused and why, is the same; and what the plain
kernel refuses is what the format forbids."""

import struct
from array import array
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cqrepl.kernel import plain
from cqrepl.kernel.batch import NO_LIMIT, RunFault
from tests.strategies import INT64_MAX, INT64_MIN, THOROUGH, corrupted, int64s
from tests.support.kernels import assert_agree, columns_of, kernel_named
from wire.header import META_DATA, NOT_COMPLETE

numbers = st.integers(-3, 80) | int64s
limits = st.just(NO_LIMIT) | numbers
excerpts = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def native() -> ModuleType:
    return kernel_named("native")


def as_run(payloads: list[bytes]) -> bytes:
    """The bytes of a store file from the first header to the end of the last payload."""
    laid = b"".join(
        struct.pack("<I", len(each)) + each + bytes(-len(each) % 4) for each in payloads
    )
    return laid[: len(laid) - -len(payloads[-1]) % 4]


def columns(payloads: list[bytes], shift: int = 0) -> tuple["array[int]", "array[int]"]:
    at, places = shift, []
    for each in payloads:
        places.append((at + 4, len(each)))
        at += 4 + len(each) + -len(each) % 4
    return columns_of(places)


@THOROUGH
@given(excerpts, st.integers(0, 5), st.integers(0, 5))
def test_a_run_is_split_into_what_it_was_made_of(
    native: ModuleType, payloads: list[bytes], before: int, behind: int
) -> None:
    run = as_run(payloads)
    data = b"\xee" * before + run + b"\xee" * behind
    end = before + len(run)
    fault, offsets, lengths = assert_agree(
        native, "split_run", data, before, end, len(payloads), NO_LIMIT
    )
    assert (fault, offsets, lengths) == (RunFault.WHOLE, *columns(payloads, before))
    whole = (data, offsets, lengths, 0, NO_LIMIT, NO_LIMIT)
    assert assert_agree(native, "run_length", *whole) == (len(payloads),)


@THOROUGH
@given(excerpts, st.data())
def test_damaged_runs(native: ModuleType, payloads: list[bytes], data: st.DataObject) -> None:
    run = as_run(payloads)
    for _ in range(data.draw(st.integers(0, 3))):
        run = corrupted(
            run, data.draw(st.integers(0, len(run) - 1)), data.draw(st.integers(0, 255))
        )
    count = len(payloads) + data.draw(st.integers(-1, 1))
    longest = data.draw(st.integers(0, 25) | limits)
    end = data.draw(st.integers(0, len(run)))
    for until in (len(run), end):
        found = assert_agree(native, "split_run", run, 0, until, count, longest)
        assert (found[0] == RunFault.WHOLE) == is_run(run[:until], count, longest)
    places = columns(payloads)
    for count_max, bytes_max in ((NO_LIMIT, NO_LIMIT), (count, NO_LIMIT), (NO_LIMIT, end)):
        (taken,) = assert_agree(native, "run_length", run, *places, 0, count_max, bytes_max)
        if taken > 0:
            stands = run[: places[0][taken - 1] + places[1][taken - 1]]
            assert is_run(stands, taken, NO_LIMIT)
            assert taken <= count_max
            assert len(stands) <= bytes_max


def is_run(data: bytes, count: int, longest: int) -> bool:
    """The same, slowly: the payloads are cut out, and put together again."""
    payloads: list[bytes] = []
    rest = data
    while len(rest) >= 4 and len(payloads) < count:
        (length,) = struct.unpack("<I", rest[:4])
        if not 0 < length <= min(longest, len(rest) - 4, (1 << 30) - 1):
            return False
        payloads.append(rest[4 : 4 + length])
        rest = rest[4 + length + -length % 4 :]
    if len(payloads) != max(count, 0):
        return False
    return data == (as_run(payloads) if payloads else b"")


@THOROUGH
@given(st.binary(max_size=60), numbers, numbers, numbers, limits)
@example(bytes(8), INT64_MIN, 8, 1, NO_LIMIT)
@example(bytes(8), 0, INT64_MAX, 1, NO_LIMIT)
@example(bytes(8), 8, 8, INT64_MIN, NO_LIMIT)
def test_any_arguments_of_split(
    native: ModuleType, data: bytes, start: int, end: int, count: int, longest: int
) -> None:
    assert_agree(native, "split_run", data, start, end, count, longest)


@THOROUGH
@given(
    st.binary(max_size=60),
    st.lists(st.tuples(numbers, numbers), max_size=6),
    numbers,
    limits,
    limits,
)
def test_any_arguments_of_length(
    native: ModuleType,
    data: bytes,
    places: list[tuple[int, int]],
    start: int,
    count_max: int,
    bytes_max: int,
) -> None:
    offsets, lengths = columns_of(places)
    for more in (array("q"), array("q", [0])):
        limited = (start, count_max, bytes_max)
        assert_agree(native, "run_length", data, offsets, lengths + more, *limited)


@pytest.mark.parametrize(
    ("data", "count", "fault"),
    [
        (as_run([b"abc", b"de"]), 3, RunFault.ENDED),
        (as_run([b"abc", b"de"]), 1, RunFault.LONGER),
        (as_run([b"abc", b"de"]) + b"\0", 2, RunFault.LONGER),
        (as_run([b"abc", b"de"])[:-1], 2, RunFault.CUT),
        (as_run([b"abc"]) + struct.pack("<xI", META_DATA | 2) + b"de", 2, RunFault.META),
        (as_run([b"abc"]) + struct.pack("<xI", NOT_COMPLETE | 2) + b"de", 2, RunFault.WORKING),
        (as_run([b"abc"]) + struct.pack("<xI", 0) + b"de", 2, RunFault.EMPTY),
        (as_run([b"abc", b"d" * 9]), 2, RunFault.TOO_LONG),
        (as_run([b"abc"]) + b"\1" + as_run([b"de"]), 2, RunFault.GAP),
        (as_run([b"abc"]) + as_run([b"de"]), 2, RunFault.GAP),  # not at a multiple of 4
    ],
)
def test_what_is_refused(native: ModuleType, data: bytes, count: int, fault: RunFault) -> None:
    for kernel in (plain, native):
        assert kernel.split_run(data, 0, len(data), count, 8)[0] == fault


def test_a_run_ends_before_what_is_not_of_it(native: ModuleType) -> None:
    first, second, page = (
        as_run([b"abc", b"defg"]),
        as_run([b"h" * 30]),
        struct.pack("<I", META_DATA),
    )
    offsets, lengths = columns([b"abc", b"defg"])
    behind = len(first) + len(page)
    offsets.append(behind + 4)
    lengths.append(30)
    data = first + page + second
    for kernel in (plain, native):
        counts = [kernel.run_length(data, offsets, lengths, at, 9, 99) for at in range(4)]
        assert counts == [2, 1, 1, 0]
