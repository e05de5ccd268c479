"""What was sent and is not acknowledged: so that an acknowledgement can be checked and counted.

Kept by runs, with the lengths of their payloads (8 bytes an excerpt), and bounded: when the window
is full the source frames nothing more until the sink acknowledges. So it does not grow with lag.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import Final

from cqrepl.kernel.batch import measure_lengths

BYTES_MAX: Final = 64 * 1024 * 1024
EXCERPTS_MAX: Final = 1024 * 1024


@dataclass(slots=True)
class _SentRun:
    index_first: int
    lengths: array[int]
    start: int = 0  # so many of them are acknowledged; the index is that of the next


class SendWindow:
    """Runs of excerpts in the order in which they were sent."""

    def __init__(self) -> None:
        self._runs: deque[_SentRun] = deque()
        self._bytes = 0
        self._excerpts = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= BYTES_MAX or self._excerpts >= EXCERPTS_MAX

    @property
    def room(self) -> tuple[int, int]:
        """How many excerpts and payload bytes fit in; the last one may be longer."""
        return max(EXCERPTS_MAX - self._excerpts, 0), max(BYTES_MAX - self._bytes, 0)

    @property
    def is_empty(self) -> bool:
        return not self._runs

    def add(self, index_first: int, lengths: array[int]) -> None:
        """A run was sent."""
        self._runs.append(_SentRun(index_first, lengths))
        self._bytes += measure_lengths(lengths, 0, len(lengths))[0]
        self._excerpts += len(lengths)

    def acknowledge(self, index: int) -> tuple[int, int]:
        """Everything up to `index` is acknowledged: how many excerpts and payload bytes that is."""
        excerpts = payload_bytes = 0
        while self._runs and self._runs[0].index_first <= index:
            run = self._runs[0]
            count = min(len(run.lengths) - run.start, index - run.index_first + 1)
            excerpts += count
            payload_bytes += measure_lengths(run.lengths, run.start, count)[0]
            run.start += count
            run.index_first += count
            if run.start == len(run.lengths):
                self._runs.popleft()
        self._excerpts -= excerpts
        self._bytes -= payload_bytes
        return excerpts, payload_bytes
