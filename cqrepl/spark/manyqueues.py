"""Writing several queues at once from many tasks: a column tells the queue of each row.

Theory of operation. It is as with one queue (`staging`): tasks stage, and the driver appends, as it
alone sees all that is to be written before anything is. A task puts what it was given into one
file, each record batch of one queue, with indexes that follow each other; it sees no queue, so how
an index is divided is looked at by the driver. That opens all queues, holds the locks of each, and
looks at the indexes of all before any is changed; then it compares what the queues hold already,
in each of them at once, and then appends. A queue has one thread, so one writer, and its excerpts
come in the order of their indexes. The kernel appends without the interpreter, so the queues are
written beside each other.

Locks are taken in the order of the queues' names and given up after a while, so that two commits
with queues in common end, one of them in a line.

A commit that is killed leaves of each queue the beginning of what was to come into it. One that
follows compares that and appends the rest: all of a queue, or more of it, may be there already.
"""

import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cqrepl.queue import NEXT_OF_EMPTY, Appender, ExcerptBatch, QueueError, format_index
from cqrepl.queue.format.index import Index, cycle_of
from cqrepl.spark.queuefinder import looks_like_queue
from cqrepl.spark.staging import (
    STAGED_SCHEMA,
    StagedPart,
    StagedRun,
    Target,
    check_staged,
    exclusive_appender,
    longest_of,
    staged_batches,
    staged_file,
    target_layout,
    told_of,
)
from cqrepl.spark.tableoptions import OptionError

_THREADS: Final = 32  # some wait for the disk while others append
# descriptors: a queue's table store and store file, and what an append opens for a moment
_OF_A_QUEUE: Final = 2
_OF_A_THREAD: Final = 4
Parts = Mapping[str, StagedPart]  # what one task has staged, by the names of queues


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSet:
    """The queues that are written to: those in a directory that a column names; and how.

    Args:
        like: a queue that new ones are to be like, or a directory with one of each one's name.
        is_empty_wanted: no queue that is written may hold excerpts.
    """

    folder: Path
    column: str
    roll_cycle: str | None = None
    like: Path | None = None
    is_empty_wanted: bool = False
    is_existing_refused: bool = False
    is_synced: bool = True

    def check(self) -> None:
        """Does nothing where queues can be in the directory.

        Raises:
            OptionError: it is a queue itself, or a file; or there is nothing to be like.
        """
        if looks_like_queue(self.folder) or (self.folder.exists() and not self.folder.is_dir()):
            found = "a queue" if self.folder.is_dir() else "a file"
            raise OptionError("path", "a directory of queues beside queueColumn", found)
        if self.like is not None and not self.like.is_dir():
            raise OptionError("like", "a queue, or a directory of some", repr(str(self.like)))

    def path_of(self, name: str) -> Path:
        """The path of the queue of a name.

        Raises:
            QueueError: the name leads out of the directory, or could be spelled otherwise.
        """
        path = PurePosixPath(name)
        is_plain = name not in ("", ".") and "\0" not in name and str(path) == name
        if not is_plain or path.is_absolute() or ".." in path.parts:
            reason = f"expected the path of a queue below it in {self.column}, found {name!r}"
            raise QueueError(reason, path=self.folder)
        return self.folder / name

    def target(self, name: str) -> Target:
        """The queue of a name.

        Raises:
            OptionError, QueueError: as `target_layout`.
        """
        path = self.path_of(name)
        like = self.like
        if like is not None and not looks_like_queue(like):
            like /= name
        return Target(
            path=path,
            layout=target_layout(path, self.roll_cycle, like),
            is_existing_refused=self.is_existing_refused,
            is_synced=self.is_synced,
        )


def stage_many(folder: Path, queues: QueueSet, batches: Iterable["pa.RecordBatch"]) -> Parts:
    """Writes what a task was given to a file of its own; no queue is touched.

    Args:
        folder: of the job, as `begin` made it.
        batches: with the columns `index`, `payload`, and that which names the queue.

    Raises:
        QueueError: an index of a queue does not rise, or a name is none of a queue.
        OSError: no space; or the job was given up meanwhile.
    """
    found: dict[str, _Staging] = {}
    number = 0
    with staged_file(folder) as (file, writer):
        for batch in batches:
            for name, rows in _by_queue(batch, queues):
                if name not in found:
                    found[name] = _Staging(queues.path_of(name))
                for each in found[name].cut(rows):
                    writer.write_batch(each)
                    found[name].add(each, number)
                    number += 1
    return {
        name: StagedPart(
            file=file, runs=tuple(each.runs), longest=each.longest, queues=frozenset((name,))
        )
        for name, each in found.items()
    }


def commit_many(queues: QueueSet, staged: Sequence[Parts]) -> int:
    """Appends what was staged and the queues lack; how many excerpts were appended.

    Raises:
        IndexGap: there would be a hole in a queue. Nothing was changed.
        Diverged: other bytes stand under one of the indexes. Nothing was changed.
        QueueLocked: another process writes one of the queues. Nothing was changed.
        OptionError: a queue holds excerpts, and must not; or a new one has no layout. Nothing was
            changed.
        QueueError: an index is there twice, or is there and must not be; an excerpt is too long; or
            these are more queues than can be open at once. Nothing was changed.
        OSError: no space. What was appended before it is whole.
    """
    names = sorted(frozenset().union(*staged))
    _check_apart(queues, names)
    _check_descriptors(queues, len(names))
    # a new queue has nothing in it: that some were made is no change
    commits = [
        _Commit(queues.target(name), [parts[name] for parts in staged if name in parts])
        for name in names
    ]
    with ExitStack() as stack:
        seen: dict[tuple[int, int], Path] = {}
        for each in commits:
            _check_alone(each.target.path, seen)
            each.appender = stack.enter_context(exclusive_appender(each.target))
            _check_alone(each.target.path, seen)
        for each in commits:
            each.check(is_empty_wanted=queues.is_empty_wanted)
        with ThreadPoolExecutor(_THREADS) as threads:
            for _ in threads.map(_Commit.compare, commits):
                pass
            return sum(threads.map(_Commit.append, commits))


class _Staging:
    """The excerpts that a task has staged of one queue so far."""

    def __init__(self, path: Path) -> None:
        self.runs: list[StagedRun] = []
        self.longest = 0
        self._path = path

    def cut(self, rows: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
        """The rows in batches of indexes that follow each other.

        Raises:
            QueueError: an index does not rise.
        """
        indexes = rows.column(0)
        steps = pc.subtract(indexes.slice(1), indexes.slice(0, len(indexes) - 1))
        start = 0
        for place in pc.indices_nonzero(pc.not_equal(steps, 1)).to_pylist():
            if steps[place].as_py() <= 0:
                raise self._disorder(indexes[place].as_py(), indexes[place + 1].as_py())
            yield rows.slice(start, place + 1 - start)
            start = place + 1
        yield rows.slice(start)

    def add(self, rows: "pa.RecordBatch", number: int) -> None:
        """Takes note of a batch that was written.

        Raises:
            QueueError: its first index does not rise.
        """
        first, last = Index(rows.column(0)[0].as_py()), Index(rows.column(0)[-1].as_py())
        batch = number
        if self.runs:
            before = self.runs[-1]
            if first <= before.index_last:
                raise self._disorder(before.index_last, first)
            if first == before.index_last + 1 and number == before.batch_end:
                first, batch = before.index_first, before.batch
                self.runs.pop()
        self.runs.append(
            StagedRun(index_first=first, index_last=last, batch=batch, batch_end=number + 1)
        )
        self.longest = max(self.longest, longest_of(rows))

    def _disorder(self, before: int, index: int) -> QueueError:
        reason = f"expected an index above {format_index(before)} in a task"
        return QueueError(f"{reason}, found {format_index(index)}", path=self._path, index=index)


@dataclass(slots=True)
class _Commit:
    """The staged parts that a commit appends to one queue."""

    target: Target
    parts: list[StagedPart]
    appender: Appender = field(init=False)  # while all other writers are kept out

    def check(self, *, is_empty_wanted: bool) -> None:
        next_index = self.appender.next_index
        if is_empty_wanted and next_index != NEXT_OF_EMPTY:
            raise OptionError("mode", f"append, as {self.target.path} holds excerpts", "overwrite")
        check_staged(self.appender, self.target, self.parts)

    def compare(self) -> None:
        """Does nothing where the queue holds what it already has of this."""
        for batch in self._batches():
            there = min(self.appender.next_index - batch.index_first, len(batch))
            if there <= 0:
                break
            self.appender.compare(batch.part(0, there))

    def append(self) -> int:
        """Appends what the queue lacks; how many excerpts."""
        count = 0
        with told_of(self.target):
            for batch in self._batches():
                there = max(0, self.appender.next_index - batch.index_first)
                if there < len(batch):
                    self.appender.append_at(batch.part(there, len(batch)))
                    count += len(batch) - there
        return count

    def _batches(self) -> Iterator[ExcerptBatch]:
        """The staged batches, cut where a cycle ends: the tasks did not know the queue's cycles."""
        shift = self.target.layout.roll_cycle.shift
        for batch in staged_batches(self.parts):
            left = ((cycle_of(batch.index_first, shift) + 1) << shift) - batch.index_first
            if left < len(batch):
                yield batch.part(0, left)
                yield batch.part(left, len(batch))
            else:
                yield batch


def _by_queue(batch: "pa.RecordBatch", queues: QueueSet) -> Iterator[tuple[str, "pa.RecordBatch"]]:
    """The two columns that count, of one queue at a time, and its name; the order is kept."""
    for name in dict.fromkeys(("index", "payload", queues.column)):
        if batch.column(name).null_count:
            raise QueueError(f"expected a value in each {name}, found null", path=queues.folder)
    rows = pa.RecordBatch.from_arrays(
        [batch.column("index"), batch.column("payload")], schema=STAGED_SCHEMA
    )
    coded = batch.column(queues.column).dictionary_encode()  # numbered as they come
    names = coded.dictionary.to_pylist()
    if len(names) > 1:
        rows = rows.take(pc.sort_indices(coded.indices))  # a stable sort
    counts = pc.value_counts(coded.indices).field("counts").to_pylist()
    start = 0
    for name, count in zip(names, counts, strict=True):
        yield name, rows.slice(start, count)
        start += count


def _check_apart(queues: QueueSet, names: Sequence[str]) -> None:
    """Does nothing where no queue is in the directory of another one."""
    for name in names:
        for above in map(str, list(PurePosixPath(name).parents)[:-1]):
            if above in names or looks_like_queue(queues.folder / above):
                reason = f"expected no queue within another one, {queues.folder / above}"
                raise QueueError(reason, path=queues.folder / name)


def _check_descriptors(queues: QueueSet, count: int) -> None:
    """Does nothing where so many queues can be open at once: none is to fail in the middle."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    free = limit - len(os.listdir("/dev/fd"))
    few = min(free // (_OF_A_QUEUE + _OF_A_THREAD), _THREADS)
    most = max(few, (free - _OF_A_THREAD * _THREADS) // _OF_A_QUEUE)
    if count > most:
        raise QueueError(
            f"expected at most {most} queues in one write, as this process may have {limit} files"
            f" open (ulimit -n), found {count}",
            path=queues.folder,
        )


def _check_alone(path: Path, seen: dict[tuple[int, int], Path]) -> None:
    """Does nothing where no other name led to the same queue; it is known from then on."""
    if not path.exists():
        return
    found = os.stat(path)
    other = seen.setdefault((found.st_dev, found.st_ino), path)
    if other != path:
        raise QueueError(f"expected a queue of its own, found that of {other}", path=path)
