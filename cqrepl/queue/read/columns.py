"""Excerpts as columns: one call gives thousands of them in three buffers.

    indexes   int64, one for each row
    offsets   int64, one more than there are rows: row n has the bytes offsets[n] .. offsets[n + 1]
    payload   all payloads, without gaps

This is how Arrow lays out a column of large binaries, so such a column can be made without copying.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT, gather_payloads, number_from
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.errors import used_after_close
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import format_index
from cqrepl.queue.read.tailer import Tailer

MAX_ROWS: Final = 16_384  # of short excerpts these stay in a processor's cache, and are read faster
MAX_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Columns:
    """Consecutive excerpts, over any number of cycles. `next_index` is where to read on.

    indexes, offsets, payload = queue.read_columns(...)
    """

    indexes: array[int]
    offsets: array[int]
    payload: bytes
    next_index: int

    @property
    def rows(self) -> int:
        """The number of excerpts."""
        return len(self.indexes)

    def __iter__(self) -> Iterator[array[int] | bytes]:
        """The three buffers."""
        return iter((self.indexes, self.offsets, self.payload))

    def __repr__(self) -> str:
        size = len(self.payload)
        return (
            f"Columns({self.rows} rows, {size} bytes, next_index={format_index(self.next_index)})"
        )


class ColumnReader:
    """Reads columns. A call that begins where the last one ended goes on without a search."""

    def __init__(self, cycles: Cycles) -> None:
        self._cycles = cycles
        self._tailer: Tailer | None = None
        self._held: ExcerptBatch | None = None  # read from the tailer, and not given out yet
        self.is_closed = False

    def read(self, index_from: int, index_to: int, max_rows: int, max_bytes: int) -> Columns:
        """The excerpts from `index_from` to `index_to`, both included, as far as there are any.

        Args:
            max_bytes: of payload in more than one row; a longer payload comes alone.

        Raises:
            IndexGap, QueueDamaged: as a tailer's.
        """
        assert max_rows > 0 < max_bytes
        tailer = self._tailer_at(index_from)
        rows = _Rows(max_rows, max_bytes)
        while not rows.is_full:
            batch = self._held or tailer.next_batch(
                count_max=rows.rows_left, bytes_max=rows.bytes_left, payload_max=NO_LIMIT,
                is_whole=True,  # two pieces would have to be joined
            )  # fmt: skip
            self._held = None
            if batch is None:
                break
            taken = rows.take(batch, index_to)
            if taken < len(batch):
                self._held = batch.part(taken, len(batch))
                break
        return rows.columns(self._next_index(tailer))

    def close(self) -> None:
        """Closes the file that is being read."""
        self.is_closed = True
        self._held = None
        if self._tailer is not None:
            self._tailer.close()
            self._tailer = None

    def _tailer_at(self, index: int) -> Tailer:
        if self.is_closed:
            raise used_after_close("queue", self._cycles.path)
        if self._tailer is None or self._next_index(self._tailer) != index:
            self._held = None
            if self._tailer is not None:
                self._tailer.close()
            self._tailer = Tailer(self._cycles, index)
        return self._tailer

    def _next_index(self, tailer: Tailer) -> int:
        return tailer.next_index if self._held is None else self._held.index_first


class _Rows:
    """Rows gathered so far."""

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.rows_left = max_rows
        self.bytes_left = max_bytes
        self._indexes = array("q")
        self._offsets = array("q")  # of each row, and where the last one ends
        self._payloads: list[bytes] = []

    @property
    def is_full(self) -> bool:
        return self.rows_left == 0 or self.bytes_left <= 0

    def take(self, batch: ExcerptBatch, index_to: int) -> int:
        """Takes as many excerpts of the batch as are wanted and fit; how many."""
        count = min(len(batch), self.rows_left, max(0, index_to - batch.index_first + 1))
        if count == 0:
            return 0
        part = batch.part(0, count)
        if part.payload_bytes > self.bytes_left:
            # a part of what was read before: its end was chosen for a call with more room
            fitting = bisect_right(list(accumulate(part.lengths)), self.bytes_left)
            count = fitting if self._indexes else max(1, fitting)
            if count == 0:
                return 0
            part = batch.part(0, count)
        payload, starts = gather_payloads(part.data, part.offsets, part.lengths)
        self._indexes.extend(number_from(part.index_first, count))
        if self._payloads:  # these offsets go on where the last ones end
            end = self._offsets.pop()
            starts = array("q", [end + start for start in starts])
        self._offsets.extend(starts)
        self._payloads.append(payload)
        self.rows_left -= count
        self.bytes_left -= len(payload)
        return count

    def columns(self, next_index: int) -> Columns:
        return Columns(
            indexes=self._indexes,
            offsets=self._offsets or array("q", [0]),
            payload=self._payloads[0] if len(self._payloads) == 1 else b"".join(self._payloads),
            next_index=next_index,
        )
