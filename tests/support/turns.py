"""Waiting until the helper that touches pages ahead of a writer has nothing to do any more."""

import threading
from typing import Final

import pytest

from cqrepl.kernel.memory import page_populator
from cqrepl.queue.write.pretoucher import PageToucher

WAIT_SECONDS: Final = 60.0
populates = pytest.mark.skipif(page_populator() is None, reason="the plain kernel cannot touch")


class Turn(threading.Condition):
    """The condition that a helper thread waits on while it has nothing to do. It tells when the
    thread waits, and how often it has."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self._is_idle = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if timeout != 0:  # else there is something to do at once: the next cycle's file
            self._is_idle.set()
        is_notified = super().wait(timeout)
        self._is_idle.clear()
        return is_notified

    def notify(self, n: int = 1) -> None:
        self._is_idle.clear()  # the helper was given an order, and holds the lock to take it
        super().notify(n)

    def settle(self) -> None:
        """Returns when everything was done that the helper was told."""
        assert self._is_idle.wait(WAIT_SECONDS)


def turn_of(toucher: PageToucher) -> Turn:
    """Gives a helper that has no thread yet another place to wait at."""
    assert toucher._thread is None
    turn = Turn()
    toucher._changed = turn
    return turn
