"""Times that things took, counted by bounds. Any thread may add."""

import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from cqrepl.surroundings import surroundings

# in seconds, from what a sink in the same process takes to what a policy waits for at most
BOUNDS: Final = (
    *(50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3),
    *(25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


@dataclass(frozen=True, slots=True)
class TimeCounts:
    """Counts of times that do not change.

    Args:
        counts: how many took no longer than each of `BOUNDS`, and longer than the one before; the
            last one: longer than all.
        seconds: all of them together.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    seconds: float = 0.0


class Durations:
    """Counts of times that grow."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """One thing took so long."""
        with self._lock:
            self._counts[bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Adds the time that a block takes, if it ends without an error."""
        start = surroundings().monotonic()
        yield
        self.add(surroundings().monotonic() - start)

    def now(self) -> TimeCounts:
        """The counts as they are."""
        with self._lock:
            return TimeCounts(tuple(self._counts), self._seconds)
