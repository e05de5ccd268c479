"""The live pump of the native kernel: excerpts go to the peer in the microseconds after they
were appended, with no Python in between.

A pump runs in a thread without the GIL, up to a slice of time, and does only the usual case. What
it leaves is taken up by its caller, from the same place and with the same result. The plain
kernel has no pumps: `AVAILABLE` is false, and everything goes through the batch functions.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from cqrepl.kernel.choose import KERNEL

AVAILABLE: Final = KERNEL.Pen is not None

if TYPE_CHECKING or AVAILABLE:
    from cqrepl._native import FoundRuns as FoundRuns
    from cqrepl._native import LiveControl as LiveControl
    from cqrepl._native import QueueRuns as QueueRuns
    from cqrepl._native import SendBudget as SendBudget
    from cqrepl._native import SinkLane as SinkLane
    from cqrepl._native import SourceLane as SourceLane
    from cqrepl._native import StoredBell as StoredBell
    from cqrepl._native import WordLooks
    from cqrepl._native import run_live as run_live

if TYPE_CHECKING:
    from cqrepl.kernel.memory import WatchedWord


def looks_of(words: "Sequence[WatchedWord]") -> "WordLooks | None":
    """The looks that `run_live` takes at words, beside those at its lanes; None for no words."""
    if not words:
        return None
    values = b"".join(word.value for word in words)
    return WordLooks([word.word for word in words], values, 0.0, 0.0, 0)


class Ended(IntEnum):
    """The reason why a pump has come back."""

    SLICE = 0  # its time is over
    INTERRUPTED = 1  # it was asked to
    UNUSUAL = 2  # something is there that is not its business
    END_OF_STREAM = 3  # the peer has closed its side
    TAILER = 4  # a queue that goes out has to be looked at by its tailer


class Pausing(IntEnum):
    """The way in which a source waits for the next excerpt."""

    BUSY = 0  # never sleeps: one core for each connection
    BALANCED = 1  # sleeps of microseconds while excerpts come, of milliseconds when they do not
    SLEEPY = 2  # sleeps of milliseconds
    STEP = 3  # never waits: one look, and the pump comes back
