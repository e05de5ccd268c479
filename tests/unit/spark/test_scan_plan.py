"""The plan of the scan in Java refuses what a reader refuses, and its totals are the queue's."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.queue import Queue
from cqrepl.spark.ranges import IndexRange, present
from cqrepl.spark.scanplan import Narrowed, totals
from cqrepl.spark.scanserver import ScanServer
from tests.spark.queues import CYCLE, DAY_MS, FIRST, excerpts, make_queue
from tests.support.damage import Mutation, samples


def asked(path: Path | str, **told: Any) -> dict[str, Any]:
    fields = [["index", "bigint", False, {}]]
    request = {"ask": "batch", "options": {"path": str(path)}, "fields": fields}
    return ScanServer().answer({**request, "ends": None, "wanted": {}, "tasks": True, **told})


def test_a_store_file_that_was_cut_is_not_counted_as_whole(tmp_path: Path) -> None:
    """The end that the snapshot was taken of is the end of what is left, and no more than that."""
    sample = next(each for each in samples(tmp_path / "s") if each.name == "metadata_docs")
    for name, data in Mutation("headers", "cut", 3).apply(sample).items():
        (tmp_path / name).write_bytes(data)
    for wanted in ({}, {"bounds": {"index": [0, 84984517885959]}}):
        for tasks in (True, False):
            answer = asked(tmp_path, tasks=tasks, wanted=wanted)
            assert "expected an excerpt, as one at 66320 was recorded" in answer["error"]


def test_what_a_reader_reads_is_planned(tmp_path: Path) -> None:
    chance, seen = random.Random(1), Counter[str]()
    some = samples(tmp_path / "samples")
    for nth in range(60):
        sample = chance.choice(some)
        area, kind = chance.choice(("headers", "index")), chance.choice(("flip", "cut", "absurd"))
        path = tmp_path / str(nth)
        path.mkdir()
        for name, data in Mutation(area, kind, nth).apply(sample).items():
            (path / name).write_bytes(data)
        try:
            with Queue.open(path) as queue:
                count = sum(one.count for one in present(queue))
            rows = len(excerpts(path))
        except Exception:  # noqa: BLE001  # any refusal counts
            seen["refused"] += 1
            continue
        seen["read"] += 1
        if rows == count:
            answer = asked(path)
            assert "error" not in answer, (nth, answer)
            assert answer["totals"]["count"] == rows
    assert min(seen.values()) > 5


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(0, 60), high=st.integers(0, 60), cycles=st.tuples(*[st.integers(-2, 4)] * 2),
    limit=st.none() | st.integers(0, 50),
)  # fmt: skip
def test_bounds_leave_what_they_say(
    tmp_path_factory: Any, low: int, high: int, cycles: tuple[int, int], limit: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "bounds"
    if not path.exists():
        make_queue(path, [30, 0, 10, 5])
    first, last = CYCLE + cycles[0], CYCLE + cycles[1]
    times = [cycle * DAY_MS * 1000 + shift for cycle, shift in ((first, -3), (last, 7))]
    bounds = {"index": [FIRST + low, FIRST + (2 << 32) + high], "timestamp": times}
    wanted = [
        index
        for index, _ in excerpts(path)
        if bounds["index"][0] <= index <= bounds["index"][1]
        and times[0] <= (index >> 32) * DAY_MS * 1000 <= times[1]
    ][:limit]
    answer = asked(path, wanted={"bounds": bounds, "limit": limit})
    pieces = [piece for task in answer["tasks"] for piece in task["pieces"]]
    found = [each["indexFirst"] + n for each in pieces for n in range(each["count"])]
    assert found == wanted
    assert answer["totals"]["count"] == len(wanted)
    if wanted:
        assert answer["totals"]["columns"]["index"] == [wanted[0], wanted[-1]]


def test_totals_of_nothing_name_no_value(tmp_path: Path) -> None:
    ranges: list[IndexRange] = []
    assert totals(ranges, {}) == {"count": 0, "bytes": 0, "columns": {}}
    assert Narrowed.of({}) == Narrowed()
