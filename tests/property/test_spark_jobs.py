"""Decisions of Spark's jobs, without Spark: cuts into tasks, comparisons, parts of an archive."""

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.queue import Queue, index_of
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle
from cqrepl.queue.inspection.bisection import first_difference
from cqrepl.spark.jobs.archivefiles import ArchivePart, read_part, write_part
from cqrepl.spark.jobs.archiveplace import place_of
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, compare_block
from cqrepl.spark.jobs.blocks import (
    BLOCK_EXCERPTS,
    batch_of,
    digest_of,
    read_pieces,
    tasks_of,
)
from cqrepl.spark.jobs.roundtrips import RoundTripWindow, bucket_of
from cqrepl.spark.jobs.stitcher import Stitcher
from cqrepl.spark.ranges import IndexRange

CYCLE, DAY_MS = 19_000, 86_400_000
FIRST = index_of(Cycle(CYCLE), SEQUENCE_FIRST, 32)
payloads = st.lists(st.sampled_from([b"a", b"b", b"ab", b"abc" * 50]), min_size=1, max_size=30)
ranges = st.lists(
    st.tuples(st.integers(1, 400_000), st.integers(1, 1 << 28)), min_size=1, max_size=5
)


@given(ranges, st.integers(1, 1 << 26))
def test_tasks_are_the_ranges_cut_between_blocks(
    sizes: list[tuple[int, int]], task_bytes: int
) -> None:
    whole = [
        IndexRange(
            queue=Path("q"),
            index_first=index_of(Cycle(CYCLE + nth), SEQUENCE_FIRST, 32),
            index_last=index_of(Cycle(CYCLE + nth), SEQUENCE_FIRST, 32) + count - 1,
            size_bytes=size,
        )
        for nth, (count, size) in enumerate(sizes)
    ]
    parts = [part for task in tasks_of(whole, task_bytes) for part in task]
    lasts = {each.index_last for each in whole}
    expected = whole[0].index_first
    for part in parts:
        assert part.index_first == expected
        assert part.index_last in lasts or (part.index_last + 1) % BLOCK_EXCERPTS == 0
        expected = part.index_last + 1
        if part.index_last in lasts:
            expected = index_of(Cycle((part.index_last >> 32) + 1), SEQUENCE_FIRST, 32)
    assert parts[-1].index_last == whole[-1].index_last


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_the_first_byte_that_differs(one: bytes, other: bytes) -> None:
    naive = next(
        (at for at in range(max(len(one), len(other))) if one[at : at + 1] != other[at : at + 1]),
        None,
    )
    assert first_difference(memoryview(one), memoryview(other)) == naive


def make(path: Path, held: list[bytes]) -> Path:
    with Queue.open(path, create="FAST_DAILY") as queue:
        queue.append_many(held, now_ms=CYCLE * DAY_MS)
    return path


@settings(max_examples=40, deadline=None)
@given(st.lists(payloads, min_size=2, max_size=4))
def test_a_comparison_is_that_of_lists(lists: list[list[bytes]]) -> None:
    count = max(map(len, lists))
    naive: dict[int, BlockVerdict] = {}
    for nth in range(count):
        held = [each[nth] if nth < len(each) else None for each in lists]
        there = {each for each in held if each is not None}
        if len(there) > 1:
            naive[FIRST + nth] = BlockVerdict.DIFFERENT
        elif None in held:
            naive[FIRST + nth] = BlockVerdict.EXTRA if held[0] is None else BlockVerdict.MISSING
    with tempfile.TemporaryDirectory() as folder:
        paths = [make(Path(folder) / str(nth), each) for nth, each in enumerate(lists)]
        found = {
            index: each.verdict
            for each in compare_block(paths, FIRST, FIRST + count - 1)
            for index in range(each.index_first, each.index_last + 1)
        }
    assert found == naive


@settings(max_examples=30, deadline=None)
@given(payloads)
def test_a_part_gives_back_what_was_written(held: list[bytes]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Queue.open(make(Path(folder) / "q", held)) as queue,
    ):
        last = FIRST + len(held) - 1
        size = write_part(Path(folder) / "part", read_pieces(queue, FIRST, last))
        part = ArchivePart(
            path="part", index_first=FIRST, index_last=last, payload_bytes=size, blocks=()
        )
        back = list(read_part(place_of(folder), part))
        assert digest_of(FIRST, iter(back)) == digest_of(FIRST, read_pieces(queue, FIRST, last))
        found = [(index, bytes(data)) for piece in back for index, data in batch_of(piece)]
    assert found == list(enumerate(held, FIRST))


@settings(max_examples=30, deadline=None)
@given(payloads, st.lists(st.integers(0, 30), min_size=1, max_size=3))
def test_stitching_takes_what_any_copy_has(held: list[bytes], ends: list[int]) -> None:
    lists = [held[:end] for end in ends if held[:end]] + [held]
    with tempfile.TemporaryDirectory() as folder:
        paths = [make(Path(folder) / str(nth), each) for nth, each in enumerate(lists)]
        stitcher = Stitcher(paths, range(len(paths)))
        pieces = list(stitcher.pieces(FIRST, FIRST + len(held) - 1))
        found = [bytes(data) for piece in pieces for _, data in batch_of(piece)]
    assert found == held
    taken = [n for each in stitcher.taken for n in range(each.index_first, each.index_last + 1)]
    assert taken == list(range(FIRST, FIRST + len(held)))


@given(st.lists(st.integers(0, 1 << 45), min_size=1, max_size=200), st.floats(1, 100))
def test_percentiles_are_right_to_half_a_percent(trips: list[int], percent: float) -> None:
    window = RoundTripWindow(
        excerpts=len(trips), longest_ns=max(trips), buckets=Counter(map(bucket_of, trips))
    )
    place = max(1, int(-(-len(trips) * percent // 100)))
    exact = sorted(trips)[place - 1]
    assert abs(window.percentile_ns(percent) - exact) <= exact * 0.005 + 1
