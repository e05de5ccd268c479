"""Fills one queue with the excerpts that belong into it, as far as they are not there yet.

Theory of operation. The excerpts come in an order that only depends on what they are, so a run
that is repeated brings the same at the same indexes. What the queue holds already is compared with
them, never written again, and the next block is appended behind it. So a filling that was cut off
anywhere goes on where it was, and one of something else is found out. The append lock is held from
beginning to end: a second filling of the same queue, live writers and sinks stay out meanwhile.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from cqrepl.queue import (
    Appender,
    Diverged,
    ExcerptBatch,
    Queue,
    QueueError,
    QueueLayout,
    cycle_of,
    index_of,
)
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle
from cqrepl.spark.staging import excerpt_batch
from cqrepl.surroundings import sync_path

LOCK_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A filled queue: the number of excerpts it holds now, and how many of them were written just
    now."""

    path: str
    excerpts: int
    written: int


def fill(
    path: Path,
    layout: QueueLayout,
    cycle: Cycle,
    payloads: Iterable["pa.BinaryArray"],
    block: int,
) -> Filled:
    """Makes a queue hold exactly these excerpts, all in one cycle and on the disk.

    Args:
        cycle: for a queue that is empty; else it is that of its first excerpt.
        payloads: columns of them, without nulls.
        block: how many excerpts are appended in one step, at most.

    Raises:
        QueueError: the queue holds something else.
        QueueLocked: another process writes to it.
    """
    with Queue.open_for_append(path, create=layout) as queue:
        with queue.append_lock.held(LOCK_TIMEOUT_S):
            appender = queue.appender()
            first = queue.first_index()
            if first is None:
                first = index_of(cycle, SEQUENCE_FIRST, queue.cycles.shift)
            index: int = first
            held = queue.count()
            for batch in _batches(payloads, first, block):
                _bring(appender, batch, first + held, path)
                index = batch.index_last + 1
            total = index - first
            if held > total or queue.count() != total:
                raise QueueError(
                    f"expected at most {total} excerpts in cycle"
                    f" {cycle_of(first, queue.cycles.shift)}, found {queue.count()}: it was filled"
                    " with something else",
                    path=path,
                )
    _sync(path)  # with no lock of this process on a file that is opened and closed for it
    return Filled(path=str(path), excerpts=total, written=total - held)


def _sync(queue: Path) -> None:
    """Returns when all of a queue is on the disk; also what a run has left that was cut off."""
    for path in (*queue.glob("*.cq4"), queue / FILE_NAME, queue, queue.parent):
        sync_path(path)


def _batches(
    payloads: Iterable["pa.BinaryArray"], index: int, block: int
) -> Iterator[ExcerptBatch]:
    for column in payloads:
        for start in range(0, len(column), block):
            some = column.slice(start, block)
            yield excerpt_batch(index, some)
            index += len(some)


def _bring(appender: Appender, batch: ExcerptBatch, end: int, path: Path) -> None:
    """Compares what is below `end`, and appends the rest."""
    there = min(max(0, end - batch.index_first), len(batch))
    if there:
        try:
            appender.compare(batch.part(0, there))
        except Diverged as error:
            raise QueueError(
                f"expected what was filled in before, found something else at {error.index:#x}",
                path=path,
                index=error.index,
            ) from error
    if there < len(batch):
        appender.append_at(batch.part(there, len(batch)))
