"""A writer that dies at any point leaves a prefix, and the next one goes on from there."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import Appender, ExcerptBatch, Queue
from cqrepl.queue.files.atomics import Words
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.write import fastappend, storewriter
from tests.support import forks
from tests.support.samples import Excerpts, check_marks, layout, noon_index, payloads, read, stored

SHARE = int(os.environ.get("CQREPL_CRASH_SHARE", "3"))  # one in so many steps is tried
STEPS = (
    (Words, "store_4"),
    (Words, "store_8"),
    (Words, "exchange_4"),
    (Words, "exchange_8"),
    (Mapping, "reserve"),
    (os, "rename"),
    (os, "posix_fallocate"),
    (os, "pwrite"),
    (os, "link"),
    (os, "unlink"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The excerpts that are appended: so many in each of the cycles ahead of noon, in batches."""

    roll_cycle: str
    counts: dict[int, int]
    per_batch: int

    def batches(self) -> list[ExcerptBatch]:
        made = []
        for ahead, count in self.counts.items():
            data = payloads(count, seed=ahead + 1)
            for start in range(0, count, self.per_batch):
                index = noon_index(self.roll_cycle, ahead=ahead, sequence=start)
                made.append(ExcerptBatch.of(index, data[start : start + self.per_batch]))
        return made

    def open(self, path: Path) -> Queue:
        return Queue.open_for_append(path, create=layout(self.roll_cycle))


CASES = [
    Case(roll_cycle="TEST_DAILY", counts={0: 20, 3: 3}, per_batch=9),
    Case(roll_cycle="TEST2_DAILY", counts={0: 70, 1: 1}, per_batch=64),
]


def append_missing(appender: Appender, batches: list[ExcerptBatch]) -> None:
    """Append as a sink does when a stream starts over: compare what it holds, append the rest."""
    for batch in batches:
        place = min(max(appender.next_index - batch.index_first, 0), len(batch))
        if place:
            appender.compare(batch.part(0, place))
        if place < len(batch):
            appender.append_at(batch.part(place, len(batch)))


class Steps:
    """Counts the steps of a writer, and dies in one of them."""

    def __init__(self, fatal: int) -> None:
        self.seen = 0
        self._fatal = fatal

    def install(self) -> None:
        for owner, name in STEPS:
            setattr(owner, name, self._stepped(getattr(owner, name)))
        vars(fastappend)["pen_type"] = lambda: (
            None
        )  # a pen does all steps in one call, in this order
        names = vars(storewriter)
        names["lay_excerpts"] = partial(self._lay, names["lay_excerpts"])

    def _tick(self) -> bool:
        self.seen += 1
        return self.seen == self._fatal

    def _stepped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            if self._tick():
                os._exit(forks.CRASH_CODE)
            return function(*args, **options)

        return step

    def _lay(self, lay: Callable[..., Any], *args: Any) -> Any:
        if self._tick():  # dies with some of the bytes in place
            store, position = args[5], args[6]
            scratch = bytearray(store)
            end = lay(*args[:5], memoryview(scratch), *args[6:]).position_end
            part = position + 4 + self._fatal * 7 % (end - position)
            store[position + 4 : part] = scratch[position + 4 : part]
            os._exit(forks.CRASH_CODE)
        return lay(*args)


def write(case: Case, path: Path, steps: Steps) -> None:
    steps.install()
    with case.open(path) as queue:
        append_missing(queue.appender(), case.batches())


def count_steps(case: Case, path: Path) -> int:
    reader, writer = os.pipe()

    def work() -> None:
        steps = Steps(0)
        write(case, path, steps)
        os.write(writer, str(steps.seen).encode())

    assert forks.run(work) == 0
    seen = int(os.read(reader, 100))
    os.close(reader)
    os.close(writer)
    return seen


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.roll_cycle)
def test_death_at_any_step_leaves_a_prefix_and_the_next_writer_goes_on(
    case: Case, tmp_path: Path
) -> None:
    whole: Excerpts = [excerpt for batch in case.batches() for excerpt in stored(batch)]
    steps = count_steps(case, tmp_path / "whole")
    assert read(tmp_path / "whole") == whole
    assert steps > 100
    lengths = set()
    for fatal in sorted(random.Random(steps).sample(range(1, steps + 1), steps // SHARE)):
        path = tmp_path / str(fatal)
        code = forks.run(partial(write, case, path, Steps(fatal)))
        assert code == forks.CRASH_CODE
        left = read(path) if any(path.glob("*.cq4")) else []
        assert left == whole[: len(left)], f"died in step {fatal}"
        lengths.add(len(left))
        with case.open(path) as queue:
            appender = queue.appender()
            assert appender.next_index == (left[-1][0] + 1 if left else 0)
            append_missing(appender, case.batches())
        assert read(path) == whole
        check_marks(path)
        for file in path.iterdir():
            file.unlink()
    assert len(lengths) > 3


def test_death_by_signal_at_any_time(tmp_path: Path) -> None:
    """One queue, many writers one after the next, each killed while it appends."""
    case = Case(roll_cycle="TEST4_SECONDLY", counts={0: 3000, 1: 500, 4: 3000}, per_batch=5)
    batches = case.batches()
    whole: Excerpts = [excerpt for batch in batches for excerpt in stored(batch)]
    path = tmp_path / "queue"
    chance = random.Random(4)
    lengths = []

    def work(permits: int, progress: int) -> None:
        with case.open(path) as queue:
            appender = queue.appender()
            for batch in batches:
                if batch.index_last >= appender.next_index:
                    os.read(permits, 1)
                    append_missing(appender, [batch])
                    os.write(progress, b"!")

    for _ in range(40):
        count = chance.randrange(2, 25)
        permits, progress = os.pipe(), os.pipe()
        os.write(permits[1], bytes(count))
        pid = forks.start(partial(work, permits[0], progress[1]))
        for _ in range(count - 1):
            os.read(progress[0], 1)
        forks.kill(pid)  # it has gone on meanwhile, and may be anywhere in one more batch
        for descriptor in (*permits, *progress):
            os.close(descriptor)
        left = read(path)
        assert left == whole[: len(left)]
        lengths.append(len(left))
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 40
    with case.open(path) as queue:
        append_missing(queue.appender(), batches)
    assert read(path) == whole
    check_marks(path)
