"""Holds excerpts that came against those that a queue has under the same indexes."""

import hashlib
from pathlib import Path

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.errors import Diverged, IndexGap
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.read.tailer import Tailer
from wire.header import EMPTY_STORED


def check_equal(stored: ExcerptBatch, received: ExcerptBatch, path: Path) -> None:
    """Does nothing when two batches of the same indexes hold the same bytes.

    Raises:
        Diverged: they do not; names the first index.
    """
    for (index, mine), (_, theirs) in zip(stored, received, strict=True):
        if mine != (theirs if len(theirs) else EMPTY_STORED):
            raise Diverged(index, _digest(mine), _digest(theirs), path=path)


class Comparer:
    """Compares batch after batch with what is in a queue."""

    def __init__(self, cycles: Cycles) -> None:
        self._cycles = cycles
        self._tailer: Tailer | None = None

    def compare(self, batch: ExcerptBatch, next_index: int) -> None:
        """Does nothing when the queue holds exactly these excerpts under these indexes.

        Args:
            next_index: one past the last excerpt of the queue; for the error only.

        Raises:
            Diverged: other bytes stand under one of the indexes.
            IndexGap: one of them is not there.
        """
        start = 0
        while start < len(batch):
            index = batch.index_first + start
            stored = self._at(index).next_batch(count_max=len(batch) - start, payload_max=NO_LIMIT)
            if stored is None or stored.index_first != index:
                found = next_index if stored is None else stored.index_first
                raise IndexGap(index, found, "it is not in the queue", path=self._cycles.path)
            check_equal(stored, batch.part(start, start + len(stored)), self._cycles.path)
            start += len(stored)

    def close(self) -> None:
        """Unmaps the file."""
        if self._tailer is not None:
            self._tailer.close()
        self._tailer = None

    def _at(self, index: int) -> Tailer:
        if self._tailer is None or self._tailer.next_index != index:
            self.close()
            self._tailer = Tailer(self._cycles, index)
        return self._tailer


def _digest(payload: memoryview) -> str:
    return hashlib.sha256(payload).hexdigest()
