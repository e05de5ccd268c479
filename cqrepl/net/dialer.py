"""Connects, and connects again, with growing pauses and for ever unless a limit is given."""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from cqrepl.net.address import Address
from cqrepl.net.errors import Unreachable

PAUSE_FIRST_SECONDS: Final = 0.1
PAUSE_MAX_SECONDS: Final = 3.0
COMPLAIN_SECONDS: Final = 60.0
GIVE_UP_SECONDS: Final = 30.0

# takes a connected stream; true when it got as far as to exchange UberHandlers
OnDialled = Callable[[trio.SocketStream], Awaitable[bool]]
_logger = logging.getLogger(__name__)


async def dial(address: Address, on_stream: OnDialled, *, gives_up: bool) -> None:
    """Dials for ever; with `gives_up` only while the last success is recent.

    Raises:
        Unreachable: `gives_up`, and nothing worked for 30 s.
    """
    pause = PAUSE_FIRST_SECONDS
    failing_since: float | None = None
    complained = -COMPLAIN_SECONDS
    while True:
        problem = "the peer closed the connection before its UberHandler"
        try:
            stream = await trio.open_tcp_stream(address.host, address.port)
        except OSError as error:
            problem = _reason(error)
        else:
            if await on_stream(stream):
                pause, failing_since = PAUSE_FIRST_SECONDS, None
                await trio.sleep(_jitter(pause))
                continue
        now = trio.current_time()
        failing_since = now if failing_since is None else failing_since
        if gives_up and now - failing_since >= GIVE_UP_SECONDS - pause:
            raise Unreachable(f"{address} not reached within {GIVE_UP_SECONDS:g} s: {problem}")
        if now - complained >= COMPLAIN_SECONDS:
            complained = now
            _logger.warning("cannot connect to %s: %s; trying again", address, problem)
        await trio.sleep(_jitter(pause))
        pause = min(pause * 2, PAUSE_MAX_SECONDS)


def _jitter(seconds: float) -> float:
    # many sinks that lost one source must not all come back in the same instant
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 (spreads load, keeps no secret)


def _reason(error: OSError) -> str:
    cause = error.__cause__
    if isinstance(cause, OSError):
        error = cause
    elif isinstance(cause, BaseExceptionGroup):
        first = cause.exceptions[0]
        error = first if isinstance(first, OSError) else error
    return error.strerror or str(error)
