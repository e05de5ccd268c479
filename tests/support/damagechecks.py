"""Checks the answers of a damaged queue: the right excerpts, or an error.

Under any damage, each excerpt that a reader gets stands where that excerpt stood before, under
its index, and its bytes are those that lie there; or there is an error of ours that says where.
Checks raise `AssertionError`; everything else that comes out is a failure too.

Four kinds of damage cannot be seen in one copy of a queue, since nothing in the files contradicts
them: other bytes within an excerpt; a length changed by no more than the gap behind it; that of a
file's last excerpt, which then takes in what lies behind, zeros or an application's meta-data; and
another epoch, or exchanged files, which move whole cycles to other indexes.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cqrepl.dump.files import read_documents
from cqrepl.queue import NotAQueue, Queue, QueueError, QueueLocked, Tailer
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import cycle_of
from cqrepl.queue.inspection.overview import QueueInfo, inspect_queue
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from tests.support.damage import PAGE, TABLE, Mutation, Sample, documents
from wire.errors import WireError

LONG_AGO_S = 1_700_000_000


@dataclass(frozen=True)
class Given:
    """An excerpt as a reader gave it."""

    index: int
    file: str
    position: int
    data: bytes


@dataclass
class Result:
    """The result of one question to a queue: excerpts or a number, and the error that ended it."""

    given: list[Given]
    number: int | None = None
    error: QueueError | None = None

    @property
    def shown(self) -> tuple[list[Given], int | None, str | None]:
        return self.given, self.number, None if self.error is None else type(self.error).__name__


@contextlib.contextmanager
def _only_errors_of_ours(result: Result) -> Iterator[None]:
    try:
        yield
    except QueueError as error:
        result.error = error
        _check_names(error)


def _check_names(error: QueueError) -> None:
    """An error tells where it was found."""
    assert error.path is not None, f"{error!r} names no file"
    is_placed = error.position is not None or error.index is not None
    assert is_placed or isinstance(error, NotAQueue | QueueLocked), f"{error!r} names no place"


def read(path: Path, index: int = 0) -> Result:
    result = Result([])
    with _only_errors_of_ours(result), Queue.open(path) as queue:
        tailer = queue.tailer(index)
        layout = queue.layout
        cycles = Cycles(path, layout.roll_cycle, layout.epoch)
        _take_all(tailer, cycles, layout.roll_cycle.shift, result)
    return result


def _take_all(tailer: Tailer, cycles: Cycles, shift: int, result: Result) -> None:
    while (batch := tailer.next_batch()) is not None:
        name = cycles.path_of(cycle_of(batch.index_first, shift)).name
        for (index, data), offset in zip(batch, batch.offsets, strict=True):
            result.given.append(Given(index, name, offset - 4, bytes(data)))


def last_index(path: Path) -> Result:
    result = Result([])
    with _only_errors_of_ours(result), Queue.open(path) as queue:
        result.number = queue.last_index()
    return result


def looked(path: Path, *, deep: bool) -> QueueInfo | None:
    try:
        return inspect_queue(path, deep=deep)
    except QueueError as error:
        _check_names(error)
        return None


class Case:
    """One damaged queue, laid out in a folder; `before` is what the sample gave undamaged."""

    def __init__(self, folder: Path, sample: Sample, mutation: Mutation) -> None:
        self.path = folder / "damaged"
        self.copy = folder / "copy"
        self.sample = sample
        self.mutation = mutation
        self.files = mutation.apply(sample)
        lay(self.path, self.files)

    def middle(self, before: Result) -> int:
        return before.given[len(before.given) // 2].index

    def check_given(self, result: Result, before: Result) -> None:
        """Every excerpt given is one that was committed, as it lies in the file now."""
        if self.files == self.sample.files:
            assert result.shown == before.shown
        if self.mutation.kind == "swap files" or self.mutation.area == "table":
            self._check_moved(result, before)
            return
        was = {each.index: each for each in before.given}
        for each in result.given:
            if self._is_in_damaged_page(each):
                continue
            mine = was.get(each.index)
            assert mine is not None, f"{each.index:#x} was never committed"
            assert (each.file, each.position) == (mine.file, mine.position), (each, mine)
            self._check_bytes(each, len(mine.data))

    def _is_in_damaged_page(self, each: Given) -> bool:
        """True for an excerpt of another page that lies here now, with headers of its own."""
        page = slice(each.position & -PAGE, (each.position & -PAGE) + PAGE)
        data, was = self.files[each.file], self.sample.files[each.file]
        if "page" not in self.mutation.kind or data[page] == was[page]:
            return False
        walked = [there for there in documents(data) if there.is_excerpt]
        there = walked[each.index & self.sample.sequence_mask]
        assert there.position == each.position
        assert data[there.position + 4 : there.end] == each.data
        return True

    def _check_bytes(self, each: Given, length: int) -> None:
        data = self.files[each.file]
        start, end = each.position + 4, each.position + 4 + len(each.data)
        assert data[start:end] == each.data
        if len(each.data) != length:
            word = slice(each.position, start)
            assert data[word] != self.sample.files[each.file][word]
            # a length may change within the 4 bytes that do not move the next header; that of a
            # file's last excerpt within what lies behind, where no other excerpt does
            is_last = each.position == self.sample.excerpts(each.file)[-1].position
            moved = -(-len(each.data) // 4) != -(-length // 4)
            assert not moved or is_last, (each, length)

    def _check_moved(self, result: Result, before: Result) -> None:
        """The table store and the names of files decide only the indexes."""
        there = {
            (name, each.position): data[each.position + 4 : each.end]
            for name, data in self.sample.files.items()
            if name != TABLE
            for each in self.sample.excerpts(name)
        }
        contents = set(there.values())
        assert all(each.data in contents for each in result.given)
        if self.mutation.area == "table":
            payloads = [each.data for each in before.given]
            assert [each.data for each in result.given] == payloads[: len(result.given)]

    def check_append(self) -> None:
        """An appender refuses, or appends behind everything that can be read; nothing is lost."""
        lay(self.copy, self.files)
        before = read(self.copy)
        result = Result([])
        with _only_errors_of_ours(result), Queue.open_for_append(self.copy) as queue:
            result.number = queue.appender().append([b"appended", b"behind"], 0)
        self._check_kept()
        after = read(self.copy)
        assert after.given[: len(before.given)] == before.given
        if result.number is not None and before.error is None and after.error is None:
            new = after.given[len(before.given) :]
            # a cycle that was not closed may hide later ones, which are read now
            assert not new or new[-1].data == b"behind"

    def check_repair(self, before: Result) -> None:
        """A repair leaves every excerpt as it lies, makes readers see no less, and is complete."""
        lay(self.copy, self.files)
        was = read(self.copy)
        result = Result([])
        with _only_errors_of_ours(result):
            plan = plan_repair(self.copy)
            apply(plan)
            self._check_kept()
            now = read(self.copy)
            assert now.given[: len(was.given)] == was.given
            self.check_given(now, before)
            if not any("metadata.cq4t" in str(each.path) for each in plan.repairs):
                assert not plan_repair(self.copy).repairs

    def _check_kept(self) -> None:
        """No byte of an excerpt has changed that is in place before and was not damaged."""
        for name in self.sample.stores:
            file = self.copy / name
            if not file.exists():  # without a header it was put aside, but only if it was empty
                assert not any(self.files[name][self.sample.data_start(name) :]), name
                continue
            data = file.read_bytes()
            for each in self.sample.excerpts(name):
                span = slice(each.position, each.end)
                if self.files[name][span] == self.sample.files[name][span]:
                    assert data[span] == self.files[name][span], f"{name} at {each.position}"

    def check_dump(self) -> None:
        """The reader of `wire-dump` ends, or says what is wrong."""
        for name, data in self.files.items():
            if data == self.sample.files[name]:
                continue
            with (self.path / name).open("rb") as file, contextlib.suppress(WireError):
                for _ in read_documents(file):
                    pass

    def check_untouched(self) -> None:
        """Reading and inspecting have changed nothing."""
        for name, data in self.files.items():
            assert (self.path / name).read_bytes() == data, name


def lay(path: Path, files: dict[str, bytes]) -> None:
    """Makes a directory hold exactly these files."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    for name, data in files.items():
        (path / name).write_bytes(data)
        os.utime(path / name, (LONG_AGO_S, LONG_AGO_S))  # as if no process were creating it


def is_seen(result: Result, before: Result) -> bool:
    """True when a reader sees something else than before the damage."""
    return result.shown != before.shown
