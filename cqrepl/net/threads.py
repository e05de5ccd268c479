"""Work that would hold up the event loop, in a thread where there are threads."""

from collections.abc import Callable
from typing import TypeVar

import trio

from cqrepl.surroundings import surroundings

T = TypeVar("T")


async def in_thread(work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
    """What `work` gives, which the event loop does not wait for."""
    here = surroundings()
    if here.has_threads:
        return await trio.to_thread.run_sync(work, limiter=limiter)
    await trio.sleep(here.thread_seconds())
    here.give_time()
    return work()
