"""Writing a queue from many tasks: what is staged, and how it gets into the queue exactly once.

Theory of operation. Tasks cannot append: Spark runs them in any order, again after a failure, and
sometimes twice at once. So a task only stages: it checks that its indexes rise, and writes a file
of its own, which the driver does not know of until its message arrives. The driver gets one message
for each task, from the attempt that counts, puts the staged runs into the order of their indexes,
and appends them at exactly these indexes, under the locks that keep all other writers out.

    <staging>/<job>/<attempt>.arrow     record batches (index, payload); none reaches over a cycle

What Spark guarantees is that a commit happens at least once. That it is once in effect is the
queue's own doing: what has an index below the queue's end is compared instead of appended, and a
crash leaves whole excerpts only, so a repeated commit goes on where the last one ended. Anything
else stops it before anything is changed: an index twice, a hole, other bytes under an index (as
another appender would have left there).

A job's directory goes when its commit is done, or when it is given up. What a killed driver left is
swept by a later writer, once nothing in it has changed for a day.
"""

import os
import re
import shutil
import time
import uuid
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cqrepl.queue import (
    Appender,
    Durability,
    ExcerptBatch,
    IndexGap,
    Queue,
    QueueError,
    QueueLayout,
    format_index,
)
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.queue.format.errors import NotAQueue
from cqrepl.queue.format.index import Index, cycle_of, is_next, sequence_of
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.tableoptions import OptionError

LOCK_TIMEOUT_S: Final = 5.0
ABANDONED_S: Final = 24 * 3600
_JOB: Final = re.compile(r"[0-9a-f]{32}(\.discarded)?")
_REMOVALS: Final = 10
_STAGED: Final = re.compile(r"[0-9a-f]{32}\.arrow")
STAGED_SCHEMA: Final = pa.schema([("index", pa.int64()), ("payload", pa.binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRun:
    """Consecutive excerpts in a staged file: those of the record batches `batch` to `batch_end`."""

    index_first: Index
    index_last: Index
    batch: int
    batch_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """The excerpts that one task has staged.

    Args:
        longest: the bytes of its longest excerpt.
        queues: the names of those that the excerpts came from, as far as they were told.
    """

    file: Path
    runs: tuple[StagedRun, ...]
    longest: int
    queues: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The queue that is written to, and how."""

    path: Path
    layout: QueueLayout
    is_existing_refused: bool = False
    is_synced: bool = True


def target_layout(path: Path, roll_cycle: str | None, like: Path | None) -> QueueLayout:
    """The layout of the queue in a directory: its own, or that which a new one gets.

    Raises:
        OptionError: there is none, and it is not said what a new one is to be like.
        QueueError: it cannot be read, or the one that it is to be like cannot.
    """
    if holds_queue(path):
        with Queue.open(path) as queue:
            return queue.layout
    if path.exists() and not path.is_dir():
        raise NotAQueue("expected a queue directory, found a file", path=path)
    if like is not None:
        with Queue.open(like) as queue:
            return queue.layout
    if roll_cycle is None:
        raise OptionError("rollCycle", f"one, or like, as there is no queue at {path}", "none")
    return QueueLayout.of(by_name(roll_cycle))


def begin(folder: Path) -> None:
    """Makes the directory of a job; tasks never do, as one may outlive its job."""
    folder.mkdir(parents=True, exist_ok=True)


def stage(folder: Path, shift: int, batches: Iterable["pa.RecordBatch"]) -> StagedPart:
    """Writes what a task was given to a file of its own; the queue is not touched.

    Args:
        folder: of the job, as `begin` made it.
        shift: how an index is divided in the target.
        batches: with the columns `index`, `payload`, and perhaps `queue`.

    Raises:
        QueueError: an index does not rise, or there is a hole in a cycle.
        OSError: no space; or the job was given up meanwhile.
    """
    runs: list[StagedRun] = []
    queues: set[str] = set()
    longest = 0
    with staged_file(folder) as (file, writer):
        for number, batch in enumerate(_cut_at_cycles(batches, shift, queues)):
            writer.write_batch(batch)
            _add(runs, batch.column(0), number, shift)
            longest = max(longest, longest_of(batch))
    return StagedPart(file=file, runs=tuple(runs), longest=longest, queues=frozenset(queues))


@contextmanager
def staged_file(folder: Path) -> Iterator[tuple[Path, "pa.RecordBatchWriter"]]:
    """A file of an attempt of a task, and what writes record batches to it; on the disk behind the
    block."""
    file = folder / f"{uuid.uuid4().hex}.arrow"
    with pa.OSFile(str(file), "wb") as out:
        with pa.ipc.new_file(out, STAGED_SCHEMA) as writer:
            yield file, writer
        out.flush()
        os.fsync(out.fileno())


def commit(target: Target, parts: Sequence[StagedPart]) -> int:
    """Appends what was staged and the queue lacks; how many excerpts were appended.

    Raises:
        IndexGap: there would be a hole. Nothing was changed.
        Diverged: other bytes stand under one of the indexes. Nothing was changed.
        QueueLocked: another process writes the queue. Nothing was changed.
        QueueError: an index is there twice, or is there and must not be; an excerpt is too long.
            Nothing was changed.
        OSError: no space. What was appended before it is whole.
    """
    queues = sorted(frozenset().union(*(part.queues for part in parts)))
    if len(queues) > 1:
        several = "; option queueColumn writes each to its own"
        raise QueueError(
            f"expected excerpts of one queue, found {queues}{several}", path=target.path
        )
    with exclusive_appender(target) as appender, told_of(target):
        check_staged(appender, target, parts)
        return sum(store_batch(appender, batch) for batch in staged_batches(parts))


@contextmanager
def told_of(target: Target) -> Iterator[None]:
    """Has what the system refuses in a block name the queue, where it names no file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(target.path)
        raise


@contextmanager
def exclusive_appender(target: Target) -> Iterator[Appender]:
    """Appends to a target, which is made if it is not there, while all other writers are kept out.

    Raises:
        QueueLocked: another process writes the queue.
        QueueError, OSError: as `Queue.open`.
    """
    durability = Durability.SYNCED if target.is_synced else Durability.NONE
    with (
        Queue.open(target.path, create=target.layout, durability=durability) as queue,
        closing(queue.appender()) as appender,
        appender.exclusive(LOCK_TIMEOUT_S),
    ):
        yield appender


def check_staged(appender: Appender, target: Target, parts: Sequence[StagedPart]) -> None:
    """Refuses what cannot be appended as a whole, by its indexes and lengths; bytes are not read.

    Raises:
        IndexGap: there would be a hole.
        QueueError: an index is there twice, or is there and must not be; an excerpt is too long.
    """
    runs = sorted((run for part in parts for run in part.runs), key=lambda run: run.index_first)
    _check_runs(runs, Index(appender.next_index), target)
    _check_longest(parts, appender.payload_max, target)


def staged_batches(parts: Sequence[StagedPart]) -> Iterator[ExcerptBatch]:
    """All that was staged in some parts, in the order of the indexes."""
    runs = sorted(((run, part) for part in parts for run in part.runs), key=_index_first)
    for file, those in groupby(runs, key=lambda staged: staged[1].file):
        with pa.memory_map(str(file)) as mapped, pa.ipc.open_file(mapped) as reader:
            for run, _ in those:
                for number in range(run.batch, run.batch_end):
                    batch = reader.get_batch(number)
                    yield excerpt_batch(batch.column(0)[0].as_py(), batch.column(1))


def discard(folder: Path) -> None:
    """Removes all that a job has staged, and keeps tasks that outlive it from staging more."""
    gone = folder.with_name(f"{uuid.uuid4().hex}.discarded")
    try:
        folder.rename(gone)  # else a file that comes while others are removed would stay with it
    except OSError:
        gone = folder
    for _ in range(_REMOVALS):
        shutil.rmtree(gone, ignore_errors=True)
        if not gone.exists():
            break  # else a task that had found the folder before the rename has made a file since


def sweep(staging: Path) -> None:
    """Removes jobs that no task has worked on for a day.

    Only what looks like one: the directory may be a shared one, with queues and other things in it.
    """
    if not staging.is_dir():
        return
    for folder in staging.iterdir():
        if not _JOB.fullmatch(folder.name):
            continue
        try:
            files = list(folder.iterdir())
            touched = max(each.stat().st_mtime for each in (folder, *files))
        except OSError:  # it is just being removed
            continue
        is_ours = all(_STAGED.fullmatch(each.name) and each.is_file() for each in files)
        if is_ours and time.time() - touched > ABANDONED_S:
            discard(folder)


def _index_first(staged: tuple[StagedRun, StagedPart]) -> int:
    return staged[0].index_first


def _cut_at_cycles(
    batches: Iterable["pa.RecordBatch"], shift: int, queues: set[str]
) -> Iterator["pa.RecordBatch"]:
    """The two columns that count, in batches that each lie within one cycle."""
    for batch in batches:
        if "queue" in batch.schema.names:
            queues.update(batch.column("queue").unique().to_pylist())
        for name in ("index", "payload"):
            if batch.column(name).null_count:
                raise QueueError(f"expected a value in each {name}, found null")
        rest = pa.RecordBatch.from_arrays(
            [batch.column("index"), batch.column("payload")], schema=STAGED_SCHEMA
        )
        while rest.num_rows:
            last = ((cycle_of(Index(rest.column(0)[0].as_py()), shift) + 1) << shift) - 1
            count = pc.sum(pc.less_equal(rest.column(0), last)).as_py()
            yield rest.slice(0, count)
            rest = rest.slice(count)


def _add(runs: list[StagedRun], indexes: "pa.Array", number: int, shift: int) -> None:
    """Adds a batch to the runs: it goes on with the last one, or begins a cycle."""
    first, last = Index(indexes[0].as_py()), Index(indexes[-1].as_py())
    before = runs[-1].index_last if runs else None
    if before is not None and first == before + 1:
        runs[-1] = StagedRun(
            index_first=runs[-1].index_first,
            index_last=last,
            batch=runs[-1].batch,
            batch_end=number + 1,
        )
    elif before is not None and cycle_of(first, shift) <= cycle_of(before, shift):
        raise _disorder(before, first)
    else:
        runs.append(
            StagedRun(index_first=first, index_last=last, batch=number, batch_end=number + 1)
        )
    if last - first + 1 != len(indexes) or not _is_dense(indexes):
        values = indexes.to_pylist()
        place = next(nth for nth in range(1, len(values)) if values[nth] != values[nth - 1] + 1)
        raise _disorder(values[place - 1], values[place])


def longest_of(batch: "pa.RecordBatch") -> int:
    """The bytes of the longest payload of a batch as it is staged, which is not empty."""
    longest: int = pc.max(pc.binary_length(batch.column(1))).as_py()
    return longest


def _is_dense(indexes: "pa.Array") -> bool:
    steps = pc.subtract(indexes.slice(1), indexes.slice(0, len(indexes) - 1))
    return bool(pc.all(pc.equal(steps, 1), min_count=0).as_py())


def _disorder(before: int, index: int) -> QueueError:
    reason = f"expected {format_index(before + 1)} after {format_index(before)} in a task"
    return QueueError(f"{reason}, found {format_index(index)}", index=index)


def _check_runs(runs: Sequence[StagedRun], next_index: Index, target: Target) -> None:
    """Refuses what cannot be appended as a whole, before anything is."""
    shift, layout = target.layout.roll_cycle.shift, target.layout
    capacity = min(1 << shift, layout.index_count**2 * layout.index_spacing)
    is_filled = capacity == 1 << shift  # a run may go on in the next cycle
    end = Index(0)
    for run in runs:
        if run.index_first < end:
            raise QueueError(
                f"expected each index once, found {format_index(run.index_first)} twice",
                path=target.path,
                index=run.index_first,
            )
        end = Index(run.index_last + 1)
        if run.index_first < next_index and target.is_existing_refused:
            raise QueueError(
                f"expected indexes from {format_index(next_index)} on,"
                f" found {format_index(run.index_first)}",
                path=target.path,
                index=run.index_first,
            )
        is_beyond = cycle_of(run.index_first, shift) < cycle_of(run.index_last, shift)
        if sequence_of(run.index_last, shift) >= capacity or (is_beyond and not is_filled):
            raise QueueError(
                f"expected at most {capacity} excerpts in a cycle,"
                f" found {format_index(run.index_last)}",
                path=target.path,
                index=run.index_last,
            )
        if run.index_last >= next_index:
            if run.index_first >= next_index and not is_next(next_index, run.index_first, shift):
                reason = "what was written does not follow what the queue holds"
                raise IndexGap(next_index, run.index_first, reason, path=target.path)
            next_index = end


def _check_longest(parts: Sequence[StagedPart], payload_max: int, target: Target) -> None:
    longest = max((part.longest for part in parts), default=0)
    if longest > payload_max:
        raise QueueError(
            f"expected excerpts of at most {payload_max} bytes, found one of {longest}",
            path=target.path,
        )


def store_batch(appender: Appender, batch: ExcerptBatch) -> int:
    """Compares what the queue holds already, and appends the rest; how many were appended."""
    there = min(max(0, appender.next_index - batch.index_first), len(batch))
    if there:
        appender.compare(batch.part(0, there))
    if there == len(batch):
        return 0
    appender.append_at(batch.part(there, len(batch)))
    return len(batch) - there


def excerpt_batch(index_first: int, payloads: "pa.BinaryArray") -> ExcerptBatch:
    """A batch that shares the memory of a column of payloads."""
    _, offsets, data = payloads.buffers()
    view = memoryview(b"" if data is None else data).cast("B")
    starts = pa.Array.from_buffers(
        pa.int32(), len(payloads), [None, offsets], offset=payloads.offset
    )
    return ExcerptBatch(
        Index(index_first), view, longs_of(starts), longs_of(pc.binary_length(payloads))
    )


def longs_of(numbers: "pa.Array") -> "array[int]":
    """Numbers without nulls, copied at once; an array that is given a view takes them one by
    one."""
    wide = numbers.cast(pa.int64())
    found = array("q")
    longs = memoryview(wide.buffers()[1]).cast("q")[wide.offset : wide.offset + len(wide)]
    found.frombytes(longs.cast("B"))
    return found
