"""Witnesses: the facts the driver saw of a queue, checked where a task runs.

Theory of operation. A task opens the path that the driver has planned with. On a cluster that may
be another directory: a local disk where a shared one was meant, or another copy. Its answer would
be right of the wrong queue. So a task carries facts that tell the queue, and checks them first:

- the identity that replication has given the queue;
- the notes of the closed cycles that are read;
- the first and the last excerpt that are read, which also a queue of Java's has;
- length and last change of store files that no writer writes to any more, as two copies may have
  the same ends.

None of these changes while a queue grows. A fact that the driver does not know is not checked.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue import Queue, QueueError, format_index
from cqrepl.queue.files.closedcycles import UNKNOWN_CHAIN
from cqrepl.queue.files.keptidentity import KeptIdentity
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import Cycle, Index, cycle_of
from cqrepl.spark.ranges import IndexRange

_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The facts that tell one queue from another.

    Args:
        closed: chains over closed cycles, by cycle.
        excerpts: digests of excerpts, by index.
        files: store files below the last one, which no writer writes to: path, length in bytes,
            and last change in nanoseconds. The file system keeps that time, so every process that
            sees the file sees the same.
    """

    queue: Path
    identity: Identity | None
    closed: tuple[tuple[Cycle, bytes], ...]
    excerpts: tuple[tuple[int, bytes], ...]
    files: tuple[tuple[Path, int, int], ...] = ()


def witness_of(queue: Queue, spans: Sequence[tuple[int, int]]) -> Witness:
    """The witness of a queue.

    Args:
        spans: the first and last index of each span that is read, in order.
    """
    ends = {spans[0][0], spans[-1][1]} if spans else set()
    digests = ((index, excerpt_digest(queue, index)) for index in sorted(ends))
    return Witness(
        queue=queue.path,
        identity=kept_identity(queue),
        closed=tuple(_noted(queue, spans)),
        excerpts=tuple((index, digest) for index, digest in digests if digest is not None),
        files=tuple(_files(queue, spans)),
    )


def witnesses_of(ranges: Iterable[IndexRange], opened: dict[Path, Queue]) -> tuple[Witness, ...]:
    """One for each queue of some ranges.

    Args:
        opened: queues that are open; those that are opened here are added.
    """
    spans: dict[Path, list[tuple[int, int]]] = {}
    for one in ranges:
        spans.setdefault(one.queue, []).append((one.index_first, one.index_last))
    for path in spans:
        if path not in opened:
            opened[path] = Queue.open(path)
    return tuple(witness_of(opened[path], each) for path, each in spans.items())


@contextmanager
def opened_queues() -> Iterator[dict[Path, Queue]]:
    """Queues that are open until a block ends; none at first."""
    opened: dict[Path, Queue] = {}
    try:
        yield opened
    finally:
        for queue in opened.values():
            queue.close()


def check_witnesses(witnesses: Iterable[Witness]) -> None:
    """Does nothing where a task sees all the queues that the driver saw.

    Raises:
        QueueError: as `check_witness`; or there is no such queue.
    """
    for witness in witnesses:
        with Queue.open(witness.queue) as queue:
            check_witness(queue, witness)


def check_witness(queue: Queue, witness: Witness) -> None:
    """Does nothing where a queue is the one that the driver saw.

    Raises:
        QueueError: it is another one.
    """
    identity = kept_identity(queue)
    if witness.identity is not None and identity != witness.identity:
        raise _other(queue, f"its identity is {identity}, and not {witness.identity}")
    noted = queue.cycles.closed.load()
    for cycle, chain in witness.closed:
        record = noted.get(cycle)
        is_as_noted = record is not None and record.chain in (chain, UNKNOWN_CHAIN)
        if not is_as_noted and queue.cycles.has(cycle):
            raise _other(queue, f"of closed cycle {cycle} something else is noted")
    for index, digest in witness.excerpts:
        if excerpt_digest(queue, index) not in (None, digest):
            raise _other(queue, f"excerpt {format_index(index)} is another one")
    for path, length, changed_ns in witness.files:
        if file_state(path) not in (None, (length, changed_ns)):
            raise _other(queue, f"{path.name} is another file, or was written to since")


def _other(queue: Queue, what: str) -> QueueError:
    return QueueError(
        f"expected the queue that the driver reads, found another one at the same path: {what}",
        path=queue.path,
    )


def kept_identity(queue: Queue) -> Identity | None:
    """The identity of a queue; None where it has none, or that cannot be read."""
    try:
        return KeptIdentity(queue.cycles.table_path).load()
    except (QueueError, OSError):
        return None


def _noted(queue: Queue, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[Cycle, bytes]]:
    try:
        noted = queue.cycles.closed.load()
    except OSError:
        return
    for cycle in _cycles(queue, spans):
        if cycle in noted and noted[cycle].chain != UNKNOWN_CHAIN:
            yield cycle, noted[cycle].chain


def _files(queue: Queue, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[Path, int, int]]:
    last = max(queue.cycles.listing(), default=-1)
    for cycle in _cycles(queue, spans):
        path = queue.cycles.path_of(cycle)
        state = file_state(path) if cycle < last else None
        if state is not None:
            yield path, *state


def file_state(path: Path) -> tuple[int, int] | None:
    """Length and last change of a file; None where it cannot be opened. It is opened, as only then
    a file system over the network asks anew."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size, status.st_ctime_ns


def _cycles(queue: Queue, spans: Sequence[tuple[int, int]]) -> list[Cycle]:
    return sorted({cycle_of(Index(first), queue.cycles.shift) for first, _ in spans})


def excerpt_digest(queue: Queue, index: int) -> bytes | None:
    """Of one excerpt; None where it cannot be read: the reading tells why."""
    try:
        tailer = queue.tailer(index)
        try:
            batch = tailer.next_batch(count_max=1, payload_max=NO_LIMIT)
            if batch is None or batch.index_first != index:
                return None
            payload = batch.data[batch.offsets[0] : batch.offsets[0] + batch.lengths[0]]
            return hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()
        finally:
            tailer.close()
    except QueueError:
        return None
