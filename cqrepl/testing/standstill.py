"""Notices hosts that go round in circles: no time passes in a laboratory while a task has anything
to do, so a loop that waits for nothing would keep a run from its end.
"""

from typing import Final

import trio

# of the scheduler, at one moment: what is stored and sent at once takes a few dozen
_ROUNDS_MAX: Final = 20_000


class Standstill(trio.abc.Instrument):
    """An instrument of a trio run, which cancels a scope where time stands still.

    Args:
        scope: is cancelled then.
    """

    def __init__(self, scope: trio.CancelScope) -> None:
        self.busy: set[str] = set()  # the tasks that ran last, once time stood still
        self._scope = scope
        self._now = -1.0
        self._rounds = 0

    def before_io_wait(self, timeout: float) -> None:
        now = trio.current_time()
        if now != self._now:
            self._now, self._rounds = now, 0
        self._rounds += 1
        if self._rounds > _ROUNDS_MAX:
            self._scope.cancel()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._rounds >= _ROUNDS_MAX and not self._scope.cancel_called:
            self.busy.add(task.name)
