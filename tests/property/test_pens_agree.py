"""Appends with pens against appends without: the same answers, and the same bytes in all files."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.kernel.pen import pen_type
from cqrepl.queue import Appender, ExcerptBatch, Queue, QueueError
from cqrepl.queue.write import fastappend, storewriter
from tests.support.kernels import kernel_named
from tests.support.samples import NOON_MS, check_marks, layout

DAY_MS = 86_400_000
LONGEST = 3000
sizes = st.integers(0, 40) | st.sampled_from((1500, LONGEST, LONGEST + 1))
payload_lists = st.lists(sizes, min_size=1, max_size=9)
# written to the file, and over the end of an index page or of two
long_lists = st.lists(st.sampled_from((1500, LONGEST)), min_size=24, max_size=70)


@dataclass(slots=True)
class Writers:
    """Two appenders of one queue, and the clock they look at."""

    first: Appender
    second: Appender
    now_ms: int = NOON_MS
    made: int = 0  # excerpts, so that each is another one

    def payloads(self, lengths: list[int]) -> list[bytes]:
        self.made += 1
        return [bytes([1 + (self.made + nth) % 255]) * size for nth, size in enumerate(lengths)]


Step = Callable[[Writers], int | None]


def one(size: int) -> Step:
    return lambda writers: writers.first.append_one(writers.payloads([size])[0], writers.now_ms)


def many(lengths: list[int]) -> Step:
    return lambda writers: writers.first.append(writers.payloads(lengths), writers.now_ms)


def by_the_other(lengths: list[int]) -> Step:
    return lambda writers: writers.second.append(writers.payloads(lengths), writers.now_ms)


def at_an_index(ahead: int, lengths: list[int]) -> Step:
    def step(writers: Writers) -> None:
        index = writers.first.next_index + ahead
        writers.first.append_at(ExcerptBatch.of(index, writers.payloads(lengths)))

    return step


def at_a_cycle(cycles: int, lengths: list[int]) -> Step:
    def step(writers: Writers) -> None:
        index = (writers.first.next_index >> 32) + cycles << 32
        writers.first.append_at(ExcerptBatch.of(index, writers.payloads(lengths)))

    return step


def reserved(lengths: list[int]) -> Step:
    def step(writers: Writers) -> None:
        batch = ExcerptBatch.of(writers.first.next_index, writers.payloads(lengths))
        writers.first.space_needed(batch)  # a pen may have allocated less ahead, so either is right
        writers.first.reserve(batch)

    return step


def later(days: int) -> Step:
    def step(writers: Writers) -> None:
        writers.now_ms += days * DAY_MS

    return step


steps = st.one_of(
    st.builds(one, sizes),
    st.builds(many, payload_lists),
    st.builds(many, long_lists),
    st.builds(by_the_other, payload_lists),
    st.builds(by_the_other, long_lists),
    st.builds(at_an_index, st.sampled_from((0, 0, 0, 0, 1, -1)), payload_lists),
    st.builds(at_a_cycle, st.integers(0, 2), payload_lists),
    st.builds(reserved, payload_lists),
    st.builds(later, st.sampled_from((-1, 1, 1, 2))),
)


def run(path: Path, name: str, schedule: list[Step]) -> list[object]:
    """The result or the refusal of each step, and the next indexes of both appenders after it."""
    outcomes: list[object] = []
    with (
        Queue.open_for_append(path, create=layout(name)) as queue,
        Queue.open_for_append(path) as other,
    ):
        writers = Writers(queue.appender(payload_max=LONGEST), other.appender(payload_max=LONGEST))
        for step in schedule:
            try:
                outcomes.append(step(writers))
            except QueueError as error:
                outcomes.append((type(error), str(error).replace(str(path), "")))
            outcomes.append((writers.first.next_index, writers.second.next_index))
    check_marks(path)
    return outcomes


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(("TEST_DAILY", "TEST2_DAILY")), st.lists(steps, max_size=25))
def test_pens_change_nothing_but_the_time_it_takes(name: str, schedule: list[Step]) -> None:
    kernel_named("native")
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(storewriter, "_STEP_MIN", 4096)  # so that space runs out now and then
        with_pens, without = Path(folder, "with"), Path(folder, "without")
        found = run(with_pens, name, schedule)
        patch.setattr(fastappend, "pen_type", lambda: None)
        assert found == run(without, name, schedule)
        assert files(with_pens) == files(without)


SCRIPT = """
import random, sys
from cqrepl.queue import ExcerptBatch, Queue
rng = random.Random(7)
now_ms = 1709640000000
with Queue.open(sys.argv[1], create="TEST4_DAILY") as queue:
    appender = queue.appender()
    for nth in range(1500):
        data = [rng.randbytes(rng.randrange(300)) for _ in range(rng.choice((1, 1, 2, 5, 40)))]
        if nth % 3:
            queue.append_many(data, now_ms=now_ms)
        elif nth % 2:
            queue.append(data[0], now_ms=now_ms)
        else:
            appender.append_at(ExcerptBatch.of(queue.next_index(), data))
        now_ms += rng.choice((0, 0, 0, 4_000_000))
"""


def test_the_kernels_write_the_same_files(tmp_path: Path) -> None:
    kernel_named("native")
    for name in ("python", "native"):
        command = [sys.executable, "-W", "error", "-P", "-c", SCRIPT, str(tmp_path / name)]
        subprocess.run(command, env=os.environ | {"CQREPL_KERNEL": name}, check=True)
    assert files(tmp_path / "python") == files(tmp_path / "native")
    check_marks(tmp_path / "native")


@pytest.mark.parametrize("is_batch", [False, True])
def test_pens_are_what_appends(tmp_path: Path, is_batch: bool) -> None:
    """The tests above would say nothing if no pen was ever used."""
    kernel_named("native")
    if pen_type() is None:
        pytest.skip("CQREPL_KERNEL asks for the plain kernel")
    long_ways = 0
    with Queue.open(tmp_path / "queue", create="FAST_DAILY") as queue:
        appender = queue.appender()
        for _ in range(10_000):
            pen = appender._pen
            if is_batch:
                appender.append_at(ExcerptBatch.of(appender.next_index or 5 << 32, [b"x" * 100]))
            else:
                appender.append_one(b"x" * 100)
            long_ways += appender._pen is not pen
    assert 1 <= long_ways <= 4
