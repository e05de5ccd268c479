"""What was sent and is not acknowledged: so that an acknowledgement can be checked and counted.

Kept by runs, with the lengths of their payloads (8 bytes an excerpt), and bounded: when the window
is full the source frames nothing more until the sink acknowledges. So it does not grow with lag.

A run comes with its size. Only where an acknowledgement ends inside a run is anything added up
here: a sink acknowledges what it has received at a time, and that is not what was sent at a time.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import Final, Self

from cqrepl.kernel.batch import measure_lengths

BYTES_MAX: Final = 64 * 1024 * 1024
EXCERPTS_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SentRun:
    """Consecutive excerpts that were sent together, and the sum of their lengths."""

    index_first: int
    lengths: array[int]
    payload_bytes: int

    @classmethod
    def of(cls, index_first: int, lengths: array[int]) -> Self:
        """A run that was not measured yet: a native pump has sent it."""
        return cls(index_first, lengths, measure_lengths(lengths, 0, len(lengths))[0])

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def index_last(self) -> int:
        return self.index_first + len(self.lengths) - 1


class SendWindow:
    """Runs of excerpts in the order in which they were sent."""

    def __init__(self) -> None:
        self._runs: deque[SentRun] = deque()
        self._bytes = 0
        self._excerpts = 0
        self._begun = 0  # so many excerpts of the first run are acknowledged
        self._begun_bytes = 0  # and so many bytes of payload are theirs

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

    def add(self, run: SentRun) -> None:
        """A run was sent."""
        assert len(run) > 0
        self._runs.append(run)
        self._bytes += run.payload_bytes
        self._excerpts += len(run)

    def acknowledge(self, index: int) -> tuple[int, int]:
        """Everything up to `index` is acknowledged: how many excerpts and payload bytes that is."""
        excerpts = payload_bytes = 0
        while self._runs and self._runs[0].index_first + self._begun <= index:
            run, begun, begun_bytes = self._runs[0], self._begun, self._begun_bytes
            if index >= run.index_last:
                self._runs.popleft()
                self._begun = self._begun_bytes = 0
                excerpts += len(run) - begun
                payload_bytes += run.payload_bytes - begun_bytes
            else:
                count = index + 1 - run.index_first - begun
                count_bytes = measure_lengths(run.lengths, begun, count)[0]
                self._begun, self._begun_bytes = begun + count, begun_bytes + count_bytes
                excerpts += count
                payload_bytes += count_bytes
        self._excerpts -= excerpts
        self._bytes -= payload_bytes
        assert self._excerpts >= 0 <= self._bytes
        return excerpts, payload_bytes
