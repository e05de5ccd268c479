"""Compares what a queue holds, from an index on, with what comes for it from another copy.

It does so in order, and leaves nothing out: where one side has an excerpt and the other has none,
they differ. Behind the index up to which the queue is proved to be on the disk, an excerpt may have
been torn by a power cut. Then its missing bytes are written in, at their place
(`read.tornsectors` says what counts as torn). They are not synced here: the host that raises that
index syncs all behind it first, and hears of a failure, of which the system tells once.
"""

from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.mapping import close_file, open_to_write
from cqrepl.queue.format.errors import Diverged
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import cycle_of, format_index
from cqrepl.queue.read.comparer import check_equal
from cqrepl.queue.read.tailer import Tailer
from cqrepl.queue.read.tornsectors import is_torn
from cqrepl.surroundings import surroundings
from wire.header import EMPTY_STORED

_NOTHING: Final = "nothing"


class HeldExcerpts:
    """Compares batch after batch with what a queue holds.

    Args:
        start: the first index that is compared.
        proved_end: the next index behind what is known to be on the disk; None: all of it is.

    Raises:
        IndexGap, QueueError: the queue does not reach to `start`.
    """

    def __init__(self, cycles: Cycles, start: int, proved_end: int | None) -> None:
        self.mended = 0  # excerpts
        self._cycles = cycles
        self._proved_end = proved_end
        self._tailer = Tailer(cycles, start)

    def compare(self, batch: ExcerptBatch) -> None:
        """Checks that the queue holds these next, and nothing between.

        Raises:
            Diverged: it holds other bytes, or one of the two has an excerpt where the other has
                none.
            QueueError, OSError: it cannot be read, or mended.
        """
        start = 0
        while start < len(batch):
            mine = self._tailer.next_batch(count_max=len(batch) - start, payload_max=NO_LIMIT)
            wanted = batch.index_first + start
            if mine is None or mine.index_first != wanted:
                found = _NOTHING if mine is None else format_index(mine.index_first)
                raise Diverged(wanted, f"at {found}", "at this index", path=self._cycles.path)
            self._settle(mine, batch.part(start, start + len(mine)))
            start += len(mine)

    def check_passed(self) -> None:
        """Checks that the queue holds nothing more: the other copy goes on behind its end.

        Raises:
            Diverged: it does.
            QueueError: it cannot be read.
        """
        mine = self._tailer.next_batch(count_max=1, payload_max=NO_LIMIT)
        if mine is not None:
            raise Diverged(mine.index_first, "an excerpt", _NOTHING, path=self._cycles.path)

    def close(self) -> None:
        self._tailer.close()

    def _settle(self, mine: ExcerptBatch, theirs: ExcerptBatch) -> None:
        try:
            check_equal(mine, theirs, self._cycles.path)
        except Diverged:
            if self._proved_end is None or mine.index_last < self._proved_end:
                raise
            self._mend(mine, theirs)

    def _mend(self, mine: ExcerptBatch, theirs: ExcerptBatch) -> None:
        assert self._proved_end is not None
        torn = []
        pairs = zip(mine, theirs, mine.offsets, strict=True)
        for (index, stored), (_, sent), position in pairs:
            received = bytes(sent) or EMPTY_STORED
            if stored != received:
                nth = index - mine.index_first
                if index < self._proved_end or not is_torn(stored, received, position):
                    self._refuse(mine.part(nth, nth + 1), theirs.part(nth, nth + 1))
                torn.append((position, received))
        path = self._cycles.path_of(cycle_of(mine.index_first, self._cycles.shift))
        descriptor = open_to_write(path)
        try:
            for position, received_bytes in torn:
                surroundings().write(descriptor, received_bytes, position)
        finally:
            close_file(descriptor)
        self.mended += len(torn)

    def _refuse(self, mine: ExcerptBatch, theirs: ExcerptBatch) -> None:
        """Raises for one excerpt that differs, and is not torn here."""
        try:
            check_equal(mine, theirs, self._cycles.path)
        except Diverged as error:
            here, there = bytes(mine.payload(0)), theirs.payload(0)
            error.is_torn_there = is_torn(there, here, mine.offsets[0])
            raise
