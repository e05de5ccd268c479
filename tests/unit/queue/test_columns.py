"""Excerpts as columns: the same excerpts as a tailer's, under all limits."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cqrepl.queue import IndexGap, Queue
from cqrepl.queue.read.columns import Columns
from tests.support.samples import Excerpts, fill, noon_index, read

ALL = (1 << 63) - 1
SIZES = {0: 40, 2: 1, 3: 25}  # excerpts in the cycle of noon, two later, three later


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "q"
    fill(path, "TEST4_DAILY", SIZES)
    return path


@pytest.fixture(scope="module")
def expected(path: Path) -> Excerpts:
    return read(path)


def rows_of(columns: Columns) -> Excerpts:
    places = pairwise(columns.offsets)
    payloads = [columns.payload[start:end] for start, end in places]
    return list(zip(columns.indexes, payloads, strict=True))


def test_one_call_gives_all_cycles(path: Path, expected: Excerpts) -> None:
    with Queue.open(path) as queue:
        columns = queue.read_columns(0, ALL)
    assert rows_of(columns) == expected
    assert columns.rows == sum(SIZES.values())
    assert columns.next_index == expected[-1][0] + 1
    assert columns.offsets[0] == 0
    assert columns.offsets[-1] == len(columns.payload)
    indexes, offsets, payload = columns
    assert (indexes, offsets, payload) == (columns.indexes, columns.offsets, columns.payload)
    assert repr(columns).startswith(f"Columns({columns.rows} rows, ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    first=st.integers(0, sum(SIZES.values()) - 1),
    count=st.integers(1, sum(SIZES.values())),
    max_rows=st.integers(1, 50),
    max_bytes=st.integers(1, 500),
)
def test_calls_one_after_another_leave_out_nothing(
    path: Path, expected: Excerpts, first: int, count: int, max_rows: int, max_bytes: int
) -> None:
    wanted = expected[first : first + count]
    index, index_to = wanted[0][0], wanted[-1][0]
    found: Excerpts = []
    with Queue.open(path) as queue:
        while (columns := queue.read_columns(index, index_to, max_rows, max_bytes)).rows:
            assert columns.rows <= max_rows
            assert columns.rows == 1 or len(columns.payload) <= max_bytes
            found += rows_of(columns)
            index = columns.next_index
    assert found == wanted


def test_a_call_may_begin_anywhere(path: Path, expected: Excerpts) -> None:
    with Queue.open(path) as queue:
        for nth in (5, 3, 50, 0, 65):
            assert rows_of(queue.read_columns(expected[nth][0], ALL, 1)) == [expected[nth]]


def test_what_comes_later_is_read_on(tmp_path: Path) -> None:
    fill(tmp_path / "q", "TEST4_DAILY", {0: 1})
    with Queue.open(tmp_path / "q") as queue:
        columns = queue.read_columns(0, ALL)
        assert not queue.read_columns(columns.next_index, ALL).rows
        fill(tmp_path / "q", "TEST4_DAILY", {2: 1})
        later = queue.read_columns(columns.next_index, ALL)
    assert list(later.indexes) == [noon_index("TEST4_DAILY", ahead=2)]


def test_an_index_that_is_not_there_is_a_gap(path: Path, expected: Excerpts) -> None:
    with Queue.open(path) as queue, pytest.raises(IndexGap):
        queue.read_columns(expected[0][0] + SIZES[0] + 1, ALL)
