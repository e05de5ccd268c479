"""How long to wait while the tailed queue has nothing new.

The rule is the queue's own; here it waits in trio, where it lets other tasks run in between, and
where a wake-up ends the pause at once.
"""

from typing import Final

import trio

from cqrepl.queue import pauser

POLLS: Final = 50
SLEEP_SECONDS: Final = 0.001


class Pauser:
    """Counts polls that found nothing."""

    def __init__(self) -> None:
        self._rule = pauser.Pauser(
            spins=0, yields=POLLS, sleep_min_s=SLEEP_SECONDS, sleep_max_s=SLEEP_SECONDS
        )

    def reset(self) -> None:
        """Something was found."""
        self._rule.reset()

    async def pause(self, wake: trio.Event) -> None:
        """Waits before the next poll, or until `wake` is set."""
        delay_s = self._rule.next_delay()
        if not delay_s:
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(delay_s):
            await wake.wait()
