"""Appends rows without indexes exactly once, in the order of tasks and rows. Knows no Spark.

Theory of operation. Rows that a query derives have no index, so the queue alone cannot tell whether
a batch is in it already. The driver notes that: before it appends, it writes an intent beside the
checkpoint, and brings it to the disk.

    <checkpoint>/chronicle/<target>/<batch>.intent
    query, batch, queue, identity, epoch; first index, count, digest; staged files; begun or done

It holds the queue's append lock from before the intent until the batch is in the queue, so nothing
comes between its excerpts. A batch that is repeated finds the intent. One that is done is in the
queue, and nothing is appended. Of one that had begun, what stands at its indexes is compared with
what was staged at first, and the rest is appended. Those staged files stay until the batch is done:
the rows of a repeated batch may come in another order. Where they are gone, the rows that came
again have to have the digest of the intent.

Nothing is guessed. Other excerpts at these indexes, another identity, or another epoch, as after a
promotion, stop the query, with the range in the line: it is for a person to look what is there. A
copy is never appended to.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cqrepl.queue import (
    Appender,
    AppendsToCopy,
    IndexGap,
    Queue,
    QueueError,
    format_index,
)
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.files.sidefile import read_side_file, replace_side_file
from cqrepl.queue.format.errors import Diverged
from cqrepl.queue.format.index import SEQUENCE_FIRST, Index, cycle_of, index_of, is_next
from cqrepl.queue.write.appender import IS_COPY
from cqrepl.spark.staging import (
    STAGED_SCHEMA,
    StagedPart,
    StagedRun,
    Target,
    check_staged,
    excerpt_batch,
    exclusive_appender,
    longest_of,
    longs_of,
    staged_file,
    store_batch,
    told_of,
)
from cqrepl.surroundings import surroundings

_DIGEST_BYTES: Final = 16
_KEPT: Final = 100  # intents of batches that are done
_NAME: Final = re.compile(r"([0-9]+)\.intent")
_BEGUN: Final = "begun"
_DONE: Final = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedPart:
    """The rows that one task has staged.

    Args:
        task: its number in the batch.
        digest: of the payloads, in their order.
    """

    file: Path
    task: int
    count: int
    longest: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchName:
    """The name of a batch: a query's, and its number in it. `folder` is for its intents."""

    query: str
    number: int
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The intent to append a batch, as it stands beside the checkpoint."""

    query: str
    batch: int
    queue: str
    identity: str | None
    epoch: int
    first: int
    count: int
    digest: str
    files: tuple[tuple[int, str, int, int, str], ...]
    state: str = _BEGUN

    def __str__(self) -> str:
        last = format_index(self.first + self.count - 1)
        return f"batch {self.batch} of query {self.query}, {format_index(self.first)} to {last}"


def stage_rows(folder: Path, task: int, batches: Iterable["pa.RecordBatch"]) -> DerivedPart:
    """Writes the rows of a task to a file of its own; the queue is not touched.

    Args:
        folder: of the job.
        batches: with a column `payload`, binary or string.

    Raises:
        QueueError: a payload is null.
        OSError: no space; or the job was given up meanwhile.
    """
    digest = _Digest()
    count = longest = 0
    with staged_file(folder) as (file, writer):
        for batch in batches:
            payloads = batch.column("payload")
            if payloads.null_count:
                raise QueueError("expected a value in each payload, found null")
            payloads = payloads.cast(pa.binary())
            numbers = pa.array(range(count, count + len(payloads)), pa.int64())
            rows = pa.RecordBatch.from_arrays([numbers, payloads], schema=STAGED_SCHEMA)
            if not rows.num_rows:
                continue
            writer.write_batch(rows)
            count += rows.num_rows
            longest = max(longest, longest_of(rows))
            digest.add(payloads)
    return DerivedPart(file=file, task=task, count=count, longest=longest, digest=digest.hex())


def commit_rows(target: Target, batch: BatchName, parts: Sequence[DerivedPart]) -> int:
    """Appends a batch that is not in the queue yet, or the rest of it; how many were appended.

    Raises:
        AppendsToCopy: the queue is a copy. Nothing was changed.
        QueueLocked: another process appends. Nothing was changed.
        QueueError: the batch had begun, and the queue holds something else at its indexes, is
            another one, or is led in another epoch; an excerpt is too long, or too many. Nothing
            was changed.
        OSError: no space. What was appended before is whole, and a repeated batch goes on.
    """
    parts = sorted(parts, key=lambda part: part.task)
    intent = load_intent(batch)
    if intent is not None and intent.state == _DONE:
        return 0
    if intent is None and not sum(part.count for part in parts):
        return 0
    with exclusive_appender(target) as appender, told_of(target):
        with Queue.open(target.path) as queue:
            if queue.is_follower:
                raise AppendsToCopy(IS_COPY.partition(";")[0], path=target.path)
            identity = queue.identity.keep(new_identity)
            told = None if identity is None else str(identity)
            layout = queue.layout
        epoch = load_epochs(target.path).promised
        if intent is None:
            cycle = layout.roll_cycle.cycle_at(surroundings().wall_ms(), layout.epoch)
            following = Index(appender.next_index)
            shift = layout.roll_cycle.shift
            is_later = cycle > cycle_of(following, shift) or not following
            first = index_of(cycle, SEQUENCE_FIRST, shift) if is_later else following
            intent = _intent(target, batch, parts, told, epoch, first)
            _check_room(appender, target, intent, parts)
            _save(batch, intent)
        else:
            _check_same(intent, target, told, epoch)
            parts = _parts_of(intent, parts)
        _check_place(appender, target, intent)
        appended = _append(appender, target, intent, parts)
        _save(batch, replace(intent, state=_DONE))
    _forget(batch)
    return appended


def load_intent(batch: BatchName) -> Intent | None:
    """The intent of a batch; None where there is none.

    Raises:
        QueueError: there is one that cannot be read, or is of another query.
    """
    path = _path(batch)
    try:
        told = json.loads(read_side_file(path))
        files = tuple((int(a), str(b), int(c), int(d), str(e)) for a, b, c, d, e in told["files"])
        intent = Intent(**{**told, "files": files})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise QueueError(f"expected an intent of this version: {error}", path=path) from error
    if intent.query != batch.query:
        raise QueueError(
            f"expected an intent of query {batch.query}, found one of {intent.query}: two queries"
            " have one checkpoint",
            path=path,
        )
    return intent


def is_begun(folder: Path) -> bool:
    """True where a batch has begun and is not done: what it has staged is still needed."""
    return any(f'"{_BEGUN}"' in path.read_text() for path in _intents(folder).values())


def _intent(
    target: Target,
    batch: BatchName,
    parts: Sequence[DerivedPart],
    identity: str | None,
    epoch: int,
    first: Index,
) -> Intent:
    return Intent(
        query=batch.query,
        batch=batch.number,
        queue=str(target.path),
        identity=identity,
        epoch=epoch,
        first=first,
        count=sum(part.count for part in parts),
        digest=_digest_of(parts),
        files=tuple((p.task, str(p.file), p.count, p.longest, p.digest) for p in parts),
    )


def _check_room(
    appender: Appender, target: Target, intent: Intent, parts: Sequence[DerivedPart]
) -> None:
    """Refuses what the queue cannot take as a whole, by its indexes and lengths."""
    first, last = Index(intent.first), Index(intent.first + intent.count - 1)
    run = StagedRun(index_first=first, index_last=last, batch=0, batch_end=0)
    longest = max(part.longest for part in parts)
    whole = StagedPart(file=parts[0].file, runs=(run,), longest=longest, queues=frozenset())
    check_staged(appender, target, [whole])


def _check_same(intent: Intent, target: Target, identity: str | None, epoch: int) -> None:
    if intent.identity != identity:
        raise _stopped(intent, target, f"the queue was {intent.identity}, and is {identity}")
    if intent.epoch != epoch:
        raise _stopped(
            intent, target, f"it began in epoch {intent.epoch}, and the queue is in epoch {epoch}"
        )


def _check_place(appender: Appender, target: Target, intent: Intent) -> None:
    """Refuses a queue that has not come to the batch, or is in another cycle meanwhile."""
    shift, following = target.layout.roll_cycle.shift, Index(appender.next_index)
    end = intent.first + intent.count
    if (
        following >= end
        or intent.first <= following
        or is_next(following, Index(intent.first), shift)
    ):
        return
    raise IndexGap(following, intent.first, f"{intent} had begun", path=target.path)


def _parts_of(intent: Intent, parts: Sequence[DerivedPart]) -> Sequence[DerivedPart]:
    """The rows staged when the batch began; where these are gone, the same rows staged again."""
    staged = [
        DerivedPart(file=Path(file), task=task, count=count, longest=longest, digest=digest)
        for task, file, count, longest, digest in intent.files
    ]
    if all(part.file.exists() for part in staged):
        return staged
    if _digest_of(parts) == intent.digest:
        return parts
    raise QueueError(
        f"{intent} had begun: expected the same rows again, found others, and what was staged at"
        " first is gone",
        path=Path(intent.queue),
    )


def _append(
    appender: Appender, target: Target, intent: Intent, parts: Sequence[DerivedPart]
) -> int:
    index, appended = intent.first, 0
    try:
        for rows in _staged(parts):
            appended += store_batch(appender, excerpt_batch(index, rows))
            index += len(rows)
    except (Diverged, IndexGap) as error:
        raise _stopped(intent, target, f"other excerpts stand there: {error.reason}") from error
    assert index == intent.first + intent.count
    return appended


def _staged(parts: Sequence[DerivedPart]) -> Iterator["pa.BinaryArray"]:
    for part in parts:
        with pa.memory_map(str(part.file)) as mapped, pa.ipc.open_file(mapped) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).column(1)


def _stopped(intent: Intent, target: Target, why: str) -> QueueError:
    return QueueError(f"{intent} had begun, and cannot go on: {why}", path=target.path)


def _digest_of(parts: Sequence[DerivedPart]) -> str:
    told = "".join(f"{part.count} {part.digest}\n" for part in parts if part.count)
    return hashlib.blake2b(told.encode(), digest_size=_DIGEST_BYTES).hexdigest()


class _Digest:
    """The digest of payloads, however they are divided into batches."""

    def __init__(self) -> None:
        self._lengths, self._data = (hashlib.blake2b(digest_size=_DIGEST_BYTES) for _ in range(2))

    def add(self, payloads: "pa.BinaryArray") -> None:
        self._lengths.update(longs_of(pc.binary_length(payloads)))
        _, offsets, data = payloads.buffers()
        if data is not None:
            starts = pa.Array.from_buffers(
                pa.int32(), len(payloads) + 1, [None, offsets], offset=payloads.offset
            )
            self._data.update(memoryview(data)[starts[0].as_py() : starts[-1].as_py()])

    def hex(self) -> str:
        return self._lengths.hexdigest() + self._data.hexdigest()


def _path(batch: BatchName) -> Path:
    return batch.folder / f"{batch.number}.intent"


def _save(batch: BatchName, intent: Intent) -> None:
    batch.folder.mkdir(parents=True, exist_ok=True)
    replace_side_file(_path(batch), json.dumps(asdict(intent)).encode(), is_synced=True)
    for folder in (batch.folder, *batch.folder.parents[:2]):
        _sync(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _intents(folder: Path) -> dict[int, Path]:
    """The intents of a query, by their batches."""
    if not folder.is_dir():
        return {}
    named = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return {int(match[1]): path for match, path in named if match is not None}


def _forget(batch: BatchName) -> None:
    """Removes intents of long ago: Spark repeats the last batch of a checkpoint only."""
    for number, path in _intents(batch.folder).items():
        if number < batch.number - _KEPT:
            path.unlink(missing_ok=True)
