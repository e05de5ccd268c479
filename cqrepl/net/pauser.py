"""How long to wait while the tailed queue has nothing new.

No event announces an append to a mapped file, so it has to be polled: a number of times in a row,
letting other tasks run in between, then with sleeps. A wake-up ends the pause at once.
"""

from typing import Final

import trio

POLLS: Final = 50
SLEEP_SECONDS: Final = 0.001


class Pauser:
    """Counts polls that found nothing."""

    def __init__(self) -> None:
        self._idle = 0

    def reset(self) -> None:
        """Something was found."""
        self._idle = 0

    async def pause(self, wake: trio.Event) -> None:
        """Waits before the next poll, or until `wake` is set."""
        self._idle += 1
        if self._idle <= POLLS:
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(SLEEP_SECONDS):
            await wake.wait()
