"""The index that belongs to a time."""

import struct
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.read.timesearch import seek_time
from tests.support.reading import cycles_of
from tests.support.samples import layout, noon_index, noon_path


def read_time(payload: memoryview) -> int | None:
    """Eight bytes are a time; anything else has none."""
    if len(payload) != 8:
        return None
    time: int = struct.unpack("<q", payload)[0]
    return time


def fill_times(
    path: Path, times: dict[int, list[int | None]], name: str = "FAST_DAILY"
) -> list[tuple[int, int | None]]:
    """A queue of excerpts with these times in these cycles; (index, time) of each."""
    written: list[tuple[int, int | None]] = []
    with Queue.open_for_append(path, create=layout(name)) as queue:
        appender = queue.appender()
        for ahead, of_cycle in times.items():
            first = noon_index(name, ahead=ahead)
            data = [b"none" if one is None else struct.pack("<q", one) for one in of_cycle]
            appender.append_at(ExcerptBatch.of(first, data))
            written += [(first + nth, one) for nth, one in enumerate(of_cycle)]
    return written


def search(written: list[tuple[int, int | None]], time: int) -> int:
    """The slow way."""
    for index, one in written:
        if one is not None and one >= time:
            return index
    return written[-1][0] + 1


def test_of_equal_times_the_first_is_found(path: Path) -> None:
    written = fill_times(path, {0: [7] * 900, 1: [7] * 900, 2: [8] * 3})
    cycles = cycles_of(path)
    assert seek_time(cycles, 7, read_time) == written[0][0]
    assert seek_time(cycles, 8, read_time) == noon_index(ahead=2)


def test_an_empty_queue_is_all_before(path: Path) -> None:
    Queue.open_for_append(path, create=layout()).close()
    assert seek_time(cycles_of(path), 5, read_time) == 0


@pytest.mark.parametrize("wrong", [0, -1, -(1 << 63), (1 << 63) - 1, None])
def test_one_excerpt_with_a_wrong_time_hides_nothing(path: Path, wrong: int | None) -> None:
    """It stands at the start of a cycle, on an index slot, behind one, or at the end."""
    for number, (ahead, nth) in enumerate(
        [(0, 0), (1, 0), (2, 0), (1, 256), (1, 255), (1, 257), (1, 512), (1, 599), (3, 0), (4, 0)]
    ):
        times: dict[int, list[int | None]] = {
            0: [n + 10 for n in range(3)],
            1: [n + 1000 for n in range(600)],
            2: [2000],
            3: [3000],
            4: [4000],
        }
        right = fill_times(path / f"{number}-right", times)
        times[ahead][nth] = wrong
        written = fill_times(path / f"{number}-wrong", times)
        cycles = cycles_of(path / f"{number}-wrong")
        spoiled = next(
            at for at, one in enumerate(zip(right, written, strict=True)) if one[0] != one[1]
        )
        for at in {*range(0, len(right), 97), *range(max(0, spoiled - 2), spoiled + 4)}:
            if at == spoiled or at >= len(right):
                continue
            index, time = right[at]
            assert time is not None
            found = seek_time(cycles, time, read_time)
            # a wrong time at the end of a cycle has too few behind it to be known for wrong
            is_at_end = nth >= len(times[ahead]) - 2
            assert found == index or (is_at_end and found == right[spoiled][0] < index)


def test_a_time_that_is_no_number_is_none(path: Path) -> None:
    """NaN and the infinities, which a user's reader may give as times, count as no time."""
    for odd in (float("nan"), float("inf"), float("-inf")):
        written = fill_times(path / str(odd), {0: list(range(1000))})
        index = written[256][0]

        def read(payload: memoryview, odd: float = odd) -> float:
            time = read_time(payload)
            return odd if time in (0, 256) or time is None else time

        with Queue.open(path / str(odd)) as queue:
            for time in (1, 255, 257, 999):
                # the reader gives a float, as a user's may
                assert queue.seek_time(time, read) == index - 256 + time  # type: ignore[arg-type]


def test_few_excerpts_are_asked(path: Path) -> None:
    """The number of asked excerpts is logarithmic in the cycles and in the slots, plus one run."""
    fill_times(path, {ahead: [ahead * 2000 + n for n in range(2000)] for ahead in range(20)})
    asked = 0

    def counted(payload: memoryview) -> int | None:
        nonlocal asked
        asked += 1
        return read_time(payload)

    assert seek_time(cycles_of(path), 17 * 2000 + 1023, counted) == noon_index(
        ahead=17, sequence=1023
    )
    assert asked < 256 + 40


def test_what_the_reader_raises_comes_through(path: Path) -> None:
    fill_times(path, {0: [1, 2]})

    def refuse(_payload: memoryview) -> int | None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        seek_time(cycles_of(path), 1, refuse)


def test_files_that_are_not_ready_are_passed_over(path: Path) -> None:
    written = fill_times(path, {0: [1, 2], 2: [3, 4]})
    cycles = cycles_of(path)
    for ahead in (-1, 1, 3):
        noon_path(path, ahead=ahead).write_bytes(b"")
    for time in range(6):
        assert seek_time(cycles, time, read_time) == search(written, time)
