"""The splits of a queue hold each of its excerpts once, and in order, however it is cut."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.queue import Queue
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.spark.ranges import IndexRange, cut, present, split
from tests.property.test_reading_properties import fill, queues


def indexes(ranges: list[IndexRange]) -> list[int]:
    return [index for one in ranges for index in range(one.index_first, one.index_last + 1)]


@settings(max_examples=60, deadline=None)
@given(
    queue=queues(),
    split_bytes=st.integers(1, 20_000),
    split_excerpts=st.integers(1, 100),
    splits_max=st.integers(1, 40),
)
def test_splits_hold_every_excerpt_once(
    queue: tuple[str, dict[int, list[bytes]]],
    split_bytes: int,
    split_excerpts: int,
    splits_max: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "q"
        written = [index for index, _ in fill(path, *queue)]
        with Queue.open(path) as opened:
            ranges = present(opened)
        assert indexes(ranges) == written
        assert len(ranges) == len(queue[1])
        splits = split(
            ranges, split_bytes=split_bytes, split_excerpts=split_excerpts, splits_max=splits_max
        )
        assert indexes([one for each in splits for one in each]) == written
        assert len(splits) <= splits_max
        for each in splits[:-1]:
            assert sum(one.size_bytes for one in each) >= split_bytes
            assert sum(one.count for one in each) >= split_excerpts


@settings(max_examples=60, deadline=None)
@given(queue=queues(), bounds=st.tuples(st.integers(0, 5000), st.integers(0, 5000)))
def test_bounds_are_indexes_that_are_included(
    queue: tuple[str, dict[int, list[bytes]]], bounds: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "q"
        written = [index for index, _ in fill(path, *queue)]
        first = written[min(bounds[0], len(written) - 1)]
        last = written[min(bounds[1], len(written) - 1)]
        with Queue.open(path) as opened:
            found = indexes(present(opened, first, last))
            assert indexes(present(opened, first, INDEX_MAX)) == [i for i in written if i >= first]
        assert found == [index for index in written if first <= index <= last]


@settings(max_examples=60, deadline=None)
@given(queue=queues(), size_bytes=st.integers(-5, 20_000), count=st.integers(-5, 200))
def test_a_cut_is_the_least_that_is_large_enough(
    queue: tuple[str, dict[int, list[bytes]]], size_bytes: int, count: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "q"
        fill(path, *queue)
        with Queue.open(path) as opened:
            spacing = opened.layout.index_spacing
            for one in present(opened):
                head, rest = cut(one, size_bytes, count)
                assert indexes([head, *([rest] if rest else [])]) == indexes([one])
                if rest is None:
                    continue
                assert rest.index_first % spacing == 0
                assert head.size_bytes + rest.size_bytes == one.size_bytes
                assert head.count >= count
