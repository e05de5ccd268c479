"""The batches of a limited stream hold everything once, in order, and never too much."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.queue import Queue
from cqrepl.spark.offsets import Limits, advanced, as_offset, filled_by, positions_of
from cqrepl.spark.ranges import followed, present
from tests.property.test_reading_properties import fill, queues

BATCHES_MAX = 5000


def limits(least: int, most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(least, most)


@settings(max_examples=25, deadline=None)
@given(
    contents=st.lists(queues(), min_size=1, max_size=3),
    excerpts=limits(5, 200),
    size_bytes=limits(500, 10_000),
    cycles=limits(1, 3),
)
def test_batches_hold_everything_once(
    contents: list[tuple[str, dict[int, list[bytes]]]],
    excerpts: int | None,
    size_bytes: int | None,
    cycles: int | None,
) -> None:
    wanted = Limits(excerpts=excerpts, size_bytes=size_bytes, cycles=cycles)
    with tempfile.TemporaryDirectory() as folder:
        written = {}
        for nth, content in enumerate(contents):
            written[f"q{nth}"] = [index for index, _ in fill(Path(folder) / f"q{nth}", *content)]
        at, found = dict.fromkeys(written, 0), {name: list[int]() for name in written}
        for _ in range(BATCHES_MAX):
            before, at = at, step(Path(folder), at, wanted)
            if at == before:
                break
            taken = {name: between(Path(folder) / name, before[name], at[name]) for name in at}
            if excerpts is not None:
                assert sum(map(len, taken.values())) <= max(excerpts, len(written))
            for name, indexes in taken.items():
                assert indexes or at[name] == before[name]
                found[name] += indexes
        assert found == written


def step(folder: Path, at: dict[str, int], wanted: Limits) -> dict[str, int]:
    pending = {}
    for name, index in at.items():
        with Queue.open(folder / name) as queue:
            pending[name] = followed(queue, index, is_enough=filled_by(wanted))
    end = advanced(at, pending, wanted)
    assert positions_of(as_offset(end)) == end
    return end


def between(path: Path, index: int, index_end: int) -> list[int]:
    with Queue.open(path) as queue:
        ranges = present(queue, index, index_end - 1) if index_end else []
    return [each for one in ranges for each in range(one.index_first, one.index_last + 1)]
