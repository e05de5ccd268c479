"""A reader of a queue that sees only what is safe."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from cqrepl.queue import Queue, Tailer
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import NEXT_OF_EMPTY


class SafeReader:
    """Reads a queue as far as it is safe, and no further until that is more.

    On a source that is what `Leading.commit_index` says; in any process, on a source's host or a
    sink's, what `Queue.acknowledged_index` has: there the mark is kept, over restarts too.

    Args:
        start: the first index to read.
        safe: up to which index the queue is safe now; None: what its acknowledged mark says.

    Raises:
        QueueError, OSError: as `Queue.tailer`.
    """

    def __init__(
        self, queue: Queue, start: int = NEXT_OF_EMPTY, safe: Callable[[], int] | None = None
    ) -> None:
        self._safe = safe or (lambda: queue.acknowledged_index)
        self._tailer: Tailer = queue.tailer(start)

    def next_batch(self) -> ExcerptBatch | None:
        """The excerpts that follow and are safe, at least one; None: none for now.

        Raises:
            QueueError, OSError: as `Tailer.next_batch`.
        """
        safe = self._safe()  # first: a mark may rise meanwhile, and a queue may end behind it
        if self._tailer.next_index > safe:
            return None
        batch = self._tailer.next_batch()
        if batch is None or batch.index_last <= safe:
            return batch
        count = max(0, safe - batch.index_first + 1)
        self._tailer.give_back(batch, count)
        return batch.part(0, count) if count else None

    def close(self) -> None:
        """Closes the file."""
        self._tailer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
