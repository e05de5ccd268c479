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
from tests.support.samples import (
    Excerpts,
    check_marks,
    layout,
    noon_index,
    payloads,
    read,
    stored,
)

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
    """What is appended: so many excerpts in the cycles ahead of noon, in batches."""

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
    """What a sink does with a stream that starts over: compare what is there, append the rest."""
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
    for fatal in range(1, steps + 1):
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
    """One queue, many writers one after the other, each killed while it appends."""
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


def test_bytes_of_a_dead_writer_never_show(tmp_path: Path) -> None:
    """Whole-looking documents behind a 0 header: the next, shorter excerpt must hide them."""
    path = tmp_path / "queue"
    case = CASES[1]
    with case.open(path) as queue:
        appender = queue.appender()
        appender.append([b"first"], 0)
        writer = appender._end.writer
        assert writer is not None
        position, data = writer.place.position, writer.store.mapping.data
        fakes = b"".join((4).to_bytes(4, "little") + b"FAKE" for _ in range(200))
        data[position + 4 : position + 4 + len(fakes)] = fakes
        for size in range(40):
            appender.append([bytes(size)], 0)
            assert b"FAKE" not in [data for _, data in read(path)]
        assert len(read(path)) == 41


def test_a_half_created_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    case = CASES[0]
    with case.open(path) as queue:
        appender = queue.appender()
        [first, *_] = case.batches()
        store = appender._cycles.path_of(first.index_first >> 32)
        store.write_bytes(b"\0\0\0\x80" + bytes(1000))
        appender.append_at(first)
        assert read(path) == stored(first)
    [discarded] = path.glob("*.discard")
    assert discarded.name.startswith(store.name + "-")
    assert discarded.read_bytes()[:4] == b"\0\0\0\x80"


def test_what_killed_writers_never_finished_goes(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    case = CASES[0]
    with case.open(path) as queue:
        [first, *_] = case.batches()
        queue.appender().append_at(first)
    [store] = path.glob("*.cq4")
    (path / f"{store.stem}.precreated.77").write_bytes(bytes(1000))
    with case.open(path) as queue:
        queue.appender().close()
    assert not list(path.glob("*.precreated*"))
    assert read(path) == stored(first)


@pytest.mark.parametrize("content", [b"", bytes(1 << 20), b"\0\0\0\x80" + bytes(99)])
def test_a_file_made_ahead_of_time_without_a_header_gets_one(
    tmp_path: Path, content: bytes
) -> None:
    case = CASES[0]
    [first, *_] = case.batches()
    with case.open(tmp_path / "queue") as queue:
        appender = queue.appender()
        store = appender._cycles.path_of(first.index_first >> 32)
        ahead = store.with_suffix(".precreated")
        ahead.write_bytes(content)
        inode = ahead.stat().st_ino
        appender.append_at(first)
        assert store.stat().st_ino == inode
    assert read(tmp_path / "queue") == stored(first)
    assert not list(tmp_path.glob("queue/*.discard"))


def test_a_file_made_ahead_of_time_is_taken(tmp_path: Path) -> None:
    case = CASES[0]
    [first, *_] = case.batches()
    with case.open(tmp_path / "other") as queue:
        queue.appender().reserve(first)
    [made] = (tmp_path / "other").glob("*.cq4")
    with case.open(tmp_path / "queue") as queue:
        ahead = tmp_path / "queue" / (made.stem + ".precreated")
        made.rename(ahead)
        inode = ahead.stat().st_ino
        queue.appender().append_at(first)
        assert (tmp_path / "queue" / made.name).stat().st_ino == inode
    assert read(tmp_path / "queue") == stored(first)
