"""Threads that wait once, and how often the system has put each to sleep meanwhile.

A thread that sleeps and is woken in vain goes to sleep again, and the system counts that: what it
has counted tells how often a thread was woken, whatever woke it.
"""

import resource
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

SECONDS: Final = 60.0  # what takes longer has failed
_LOOK_SECONDS: Final = 0.005  # an interpreter's lock that is free finds its thread meanwhile


class Sleeper(threading.Thread):
    """A thread that waits, from now on.

    Attributes:
        answer: what its wait gave; None while it goes on.
        sleeps_in_all: how often it was put to sleep until its wait had ended.
    """

    def __init__(self, wait: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.answer: object = None
        self.sleeps_in_all = 0
        self._wait = wait
        self.start()

    def run(self) -> None:
        answer = self._wait()
        # no file is read for this: that would give up the interpreter, and it is slept for that
        self.sleeps_in_all = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        self.answer = answer

    @property
    def state(self) -> tuple[str, int]:
        """The thread's state now, as the system says it ("S": it sleeps), and the number of times
        it was put to sleep so far. For a thread whose wait goes on."""
        said = Path(f"/proc/self/task/{self.native_id}/status").read_text()
        fields = dict(line.split(":", 1) for line in said.splitlines())
        return fields["State"].split()[0], int(fields["voluntary_ctxt_switches"])

    def ended(self) -> object:
        self.join(SECONDS)
        assert not self.is_alive(), "it waits on"
        return self.answer


def asleep(sleepers: Sequence[Sleeper]) -> list[int]:
    """The number of times that each was put to sleep, once all of them sleep and stay so."""
    until, before = time.monotonic() + SECONDS, list[tuple[str, int]]()
    while True:
        found = [each.state for each in sleepers]
        if found == before and all(state == "S" for state, _ in found):
            return [sleeps for _, sleeps in found]
        assert time.monotonic() < until, found
        before = found
        sleepers[0].join(_LOOK_SECONDS)
