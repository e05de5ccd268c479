"""The rule for waiting while a queue has nothing new.

No event announces an append to a mapped file, so it has to be polled. The polls in a row that found
nothing decide what comes before the next one:

    spins    nothing: the next poll follows at once, for a reader that has a core to spend
    yields   other threads run, the reader does not sleep
    sleeps   `sleep_min_s`, then doubling up to `sleep_max_s`, which is the worst delay of a reader

The decision (`next_delay`) knows no clock and sleeps nowhere, so that other ways of waiting use it
too; `pause` is the blocking one.
"""

from typing import Final

from cqrepl.surroundings import surroundings

SPINS: Final = 20
YIELDS: Final = 50
SLEEP_MIN_S: Final = 0.000_05
SLEEP_MAX_S: Final = 0.001


class Pauser:
    """Counts polls that found nothing."""

    def __init__(
        self,
        *,
        spins: int = SPINS,
        yields: int = YIELDS,
        sleep_min_s: float = SLEEP_MIN_S,
        sleep_max_s: float = SLEEP_MAX_S,
    ) -> None:
        assert spins >= 0 <= yields
        assert 0 < sleep_min_s <= sleep_max_s
        self._spins = spins
        self._yields = yields
        self._sleep_min_s = sleep_min_s
        self._sleep_max_s = sleep_max_s
        self._idle = 0
        self._sleep_s = sleep_min_s

    def reset(self) -> None:
        """Something was found."""
        self._idle = 0
        self._sleep_s = self._sleep_min_s

    def next_delay(self) -> float | None:
        """Seconds before the next poll; 0: only let other threads run; None: not even that."""
        self._idle += 1
        if self._idle <= self._spins:
            return None
        if self._idle <= self._spins + self._yields:
            return 0.0
        delay_s, self._sleep_s = self._sleep_s, min(self._sleep_s * 2, self._sleep_max_s)
        return delay_s

    def pause(self, limit_s: float | None = None) -> None:
        """Waits before the next poll, at most `limit_s`."""
        delay_s = self.next_delay()
        if delay_s is not None:
            surroundings().sleep(delay_s if limit_s is None else max(0.0, min(delay_s, limit_s)))
