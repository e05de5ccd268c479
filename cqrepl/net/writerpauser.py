"""How long to wait while the tailed queue has nothing new.

The rule is the queue's own; here it waits in trio, where it lets other tasks run in between, and
where a wake-up ends the pause at once. trio sleeps a millisecond at least: a live pump is quicker.
"""

from typing import Final

import trio

from cqrepl.kernel.live import Pausing
from cqrepl.queue.read import pauser

POLLS: Final = 50
SLEEP_SECONDS: Final = {Pausing.BALANCED: 0.001, Pausing.SLEEPY: 0.005}


class WriterPauser:
    """Counts polls that found nothing."""

    def __init__(self, pausing: Pausing = Pausing.BALANCED) -> None:
        self.is_waiting = False  # the last poll found nothing
        self._rule = None
        sleep_s = SLEEP_SECONDS.get(pausing)
        if sleep_s is not None:
            self._rule = pauser.Pauser(
                spins=0, yields=POLLS, sleep_min_s=sleep_s, sleep_max_s=sleep_s
            )

    def reset(self) -> None:
        """Something was found."""
        self.is_waiting = False
        if self._rule is not None:
            self._rule.reset()

    async def pause(self, wake: trio.Event) -> None:
        """Waits before the next poll, or until `wake` is set."""
        self.is_waiting = True
        delay_s = None if self._rule is None else self._rule.next_delay()
        if not delay_s:
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(delay_s):
            await wake.wait()
