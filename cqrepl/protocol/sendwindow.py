"""Excerpts that were sent and are not acknowledged, kept to check and count acknowledgements.

The window keeps them by runs, with the lengths of their payloads. It is bounded: when it is full,
the source frames nothing more until the sink acknowledges. So the window does not grow with lag. It
holds these lengths in memory, 8 bytes an excerpt, and no payloads: those are in the file. A run
costs about 180 bytes besides, so runs of few excerpts that follow one another are joined.

All windows of a connection share one budget, 8 MiB of lengths: a peer that reads and never
acknowledges costs no more, however many queues it has. A queue may hold seven times what is free.
So one queue alone may have seven eighths of the budget. Several stalled queues have equal parts of
it. What they leave is never nothing: a further queue still goes on, with fewer excerpts on their
way.

A native pump tells of sent and acknowledged excerpts together. So excerpts that are acknowledged
before they are known to have been sent come without lengths. A run comes with its size. Lengths are
added up here only where an acknowledgement ends inside a run: a sink acknowledges what it has
received at a time, and that is not what was sent at a time.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Self

from cqrepl.kernel.batch import measure_lengths

BYTES_MAX: Final = 64 * 1024 * 1024
EXCERPTS_MAX: Final = 1024 * 1024  # of all queues of a connection
_SHARE: Final = 7
ALONE_MAX: Final = EXCERPTS_MAX * _SHARE // (_SHARE + 1)  # of one queue, when no other holds any
_JOINED_EXCERPTS: Final = 1024


@dataclass(frozen=True, slots=True)
class SentRun:
    """Consecutive excerpts that were sent together, and the sum of their lengths.

    Args:
        settled: how many they are, where all of them are acknowledged with the next
            acknowledgement: there are no lengths then.
    """

    index_first: int
    lengths: array[int]
    payload_bytes: int
    settled: int = 0
    count: int = field(init=False, repr=False, compare=False)
    index_last: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = self.settled or len(self.lengths)
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "index_last", self.index_first + count - 1)

    @classmethod
    def of(cls, index_first: int, lengths: array[int]) -> Self:
        """A run that was not measured yet: a native pump has sent it."""
        return cls(index_first, lengths, measure_lengths(lengths, 0, len(lengths))[0])

    def __len__(self) -> int:
        return self.count


class SendBudget:
    """The number of excerpts that the windows of one connection may hold together.

    Attributes:
        free: how many more they may hold.
    """

    def __init__(self) -> None:
        self.free = EXCERPTS_MAX

    def room(self, held: int) -> int:
        """The number of further excerpts that a queue may send whose window holds `held`: one at
        least where it holds none and the budget has any, as it would wait for ever else."""
        least = 0 if held else min(self.free, 1)
        return max((_SHARE * self.free - held) // (_SHARE + 1), least, 0)


class SendWindow:
    """Runs of excerpts in the order in which they were sent.

    Args:
        budget: what it shares with the other windows of its connection.
    """

    def __init__(self, budget: SendBudget | None = None) -> None:
        self.budget = budget or SendBudget()
        self._runs: deque[SentRun] = deque()
        self._is_joined = False  # the last one: then no other object shares its lengths
        self._bytes = 0
        self._excerpts = 0
        self._begun = 0  # so many excerpts of the first run are acknowledged
        self._begun_bytes = 0  # and so many bytes of payload are theirs

    @property
    def is_full(self) -> bool:
        return self._bytes >= BYTES_MAX or not self.budget.room(self._excerpts)

    @property
    def excerpts(self) -> int:
        """The number of excerpts that the window holds."""
        return self._excerpts

    @property
    def room(self) -> tuple[int, int]:
        """The numbers of excerpts and payload bytes that fit in; the last one may be longer."""
        return self.budget.room(self._excerpts), max(BYTES_MAX - self._bytes, 0)

    @property
    def is_empty(self) -> bool:
        return not self._runs

    def add(self, run: SentRun) -> None:
        """A run was sent."""
        assert run.count > 0
        last = self._runs[-1] if self._runs else None
        is_next = last is not None and last.index_last + 1 == run.index_first
        has_lengths = last is not None and not last.settled and not run.settled
        is_joined = is_next and has_lengths
        if last is not None and is_joined and last.count + run.count <= _JOINED_EXCERPTS:
            self._join(last, run)
        else:
            self._runs.append(run)
            self._is_joined = False
        self._bytes += run.payload_bytes
        self._excerpts += run.count
        self.budget.free -= run.count

    def _join(self, last: SentRun, run: SentRun) -> None:
        lengths = last.lengths if self._is_joined else last.lengths[:]
        lengths.extend(run.lengths)
        payload_bytes = last.payload_bytes + run.payload_bytes
        self._runs[-1] = SentRun(last.index_first, lengths, payload_bytes)
        self._is_joined = True

    def clear(self) -> None:
        """Nothing of it is acknowledged any more."""
        self.budget.free += self._excerpts
        self._runs.clear()
        self._bytes = self._excerpts = self._begun = self._begun_bytes = 0

    def acknowledge(self, index: int) -> tuple[int, int]:
        """Everything up to `index` is acknowledged: how many excerpts and payload bytes that is."""
        excerpts = payload_bytes = 0
        while self._runs and self._runs[0].index_first + self._begun <= index:
            run, begun, begun_bytes = self._runs[0], self._begun, self._begun_bytes
            if index >= run.index_last:
                self._runs.popleft()
                self._begun = self._begun_bytes = 0
                excerpts += run.count - begun
                payload_bytes += run.payload_bytes - begun_bytes
            else:
                assert not run.settled
                count = index + 1 - run.index_first - begun
                count_bytes = measure_lengths(run.lengths, begun, count)[0]
                self._begun, self._begun_bytes = begun + count, begun_bytes + count_bytes
                excerpts += count
                payload_bytes += count_bytes
        self._excerpts -= excerpts
        self.budget.free += excerpts
        self._bytes -= payload_bytes
        assert self._excerpts >= 0 <= self._bytes
        return excerpts, payload_bytes
