"""How long the writer of a connection waits while no queue has anything new.

It waits in trio, where other tasks run in between, and where a wake-up ends the pause at once. trio
sleeps a millisecond at least: a live pump is quicker.
"""

from typing import Final

import trio

from cqrepl.kernel.live import Pausing

POLLS: Final = 50  # that only let other tasks run; the next ones sleep
SLEEP_SECONDS: Final = {Pausing.BALANCED: 0.001, Pausing.SLEEPY: 0.005}


class WriterPauser:
    """Counts polls that found nothing."""

    def __init__(self, pausing: Pausing = Pausing.BALANCED) -> None:
        self._sleep_s = SLEEP_SECONDS.get(pausing)
        self._idle = 0  # polls in a row that found nothing

    @property
    def is_waiting(self) -> bool:
        """True when the last poll found nothing."""
        return self._idle > 0

    def reset(self) -> None:
        """Something was found."""
        self._idle = 0

    async def pause(self, wake: trio.Event) -> None:
        """Waits before the next poll, or until `wake` is set."""
        self._idle += 1
        if self._sleep_s is None or self._idle <= POLLS:
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(self._sleep_s):
            await wake.wait()
