"""Moments that the tasks of an event loop share, for those that look now and then.

Theory of operation. A loop that has rested for a while has left the caches: to wake it costs as
much as what it is woken for. Ten tasks that each look once a second, at moments of their own, wake
it ten times. With moments that they share they wake it once.

In a laboratory, where many hosts share one loop, they would all do all at one moment, and less
would be found: there each pauses from when it was last awake.
"""

import math

import trio

from cqrepl.surroundings import surroundings


def next_tick(seconds: float) -> float:
    """The next shared moment of those `seconds` apart, by trio's clock. It is at least half as far
    away, so that a task that takes long over a look pauses all the same. On the average it is
    `seconds` away."""
    now = trio.current_time()
    if not surroundings().has_threads:
        return now + seconds
    return math.ceil(now / seconds + 0.5) * seconds


async def until_tick(seconds: float) -> None:
    """Sleeps until then."""
    await trio.sleep_until(next_tick(seconds))
