"""Connects, and connects again, with growing pauses and for ever unless a limit is given.

A connection that was of use is followed by the shortest pause. One that ended as soon as it was
there, and brought nothing, will most likely end so again: the pauses go on growing.
"""

import logging
import math
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from cqrepl.net.address import Address
from cqrepl.net.errors import Refused, Unreachable
from cqrepl.surroundings import surroundings

PAUSE_FIRST_SECONDS: Final = 0.1
PAUSE_MAX_SECONDS: Final = 3.0
COMPLAIN_SECONDS: Final = 60.0  # from a first line to the next one of the same reason
COMPLAIN_SECONDS_MAX: Final = 3600.0
REASONS_MAX: Final = 16
_NUMBER: Final = re.compile(r"\d+")
GIVE_UP_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 4.0  # longest wait for an answer: a few tries of the system, no more


@dataclass(frozen=True, slots=True)
class Dialled:
    """The result of one attempt.

    Args:
        problem: why it does not count as reaching the peer; None when it does.
        was_useful: a connection that brought something, or lasted.
        is_refused: the peer is there, and the two do not go together.
    """

    problem: str | None
    was_useful: bool = False
    is_refused: bool = False


# runs a connected stream to its end
OnDialled = Callable[[trio.SocketStream], Awaitable[Dialled]]
_logger = logging.getLogger(__name__)


async def dial(address: Address, on_stream: OnDialled, *, gives_up: bool) -> None:
    """Dials for ever; with `gives_up` only while the last success is recent.

    Raises:
        Unreachable: `gives_up`, and nothing worked for 30 s.
        Refused: `gives_up`, and the peer was there and refused this host, or was refused: at once
            if they never went together, which nothing here will change.
    """
    has_reached = False
    pause = PAUSE_FIRST_SECONDS
    give_up_at = trio.current_time() + GIVE_UP_SECONDS if gives_up else math.inf
    complaints = _Complaints(address)
    while True:
        connect_by = min(trio.current_time() + CONNECT_SECONDS, give_up_at)
        dialled = await _dial_once(address, on_stream, connect_by)
        problem, now = dialled.problem, trio.current_time()
        if dialled.was_useful:
            pause = PAUSE_FIRST_SECONDS
        wait = _jitter(pause)
        if problem is None:
            has_reached = True
            complaints = _Complaints(address)
            give_up_at = now + GIVE_UP_SECONDS if gives_up else math.inf
        elif dialled.is_refused and gives_up and (not has_reached or now + wait >= give_up_at):
            raise Refused(f"{address}: {problem}")
        elif now + wait >= give_up_at:
            raise Unreachable(f"{address} not reached within {GIVE_UP_SECONDS:g} s: {problem}")
        else:
            complaints.tell(problem)
        await trio.sleep(wait)
        pause = min(pause * 2, PAUSE_MAX_SECONDS)


class _Complaints:
    """The warnings about one address, until a peer was there. Each reason is logged once, and then
    as a reminder, less and less often. Reasons that differ only in numbers count as one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._due: dict[str, float] = {}  # by reason, when it is said again; by trio's clock
        self._waits: dict[str, float] = {}

    def tell(self, problem: str) -> None:
        """It was tried in vain."""
        reason, now = _NUMBER.sub("0", problem), trio.current_time()
        if reason not in self._due and len(self._due) >= REASONS_MAX:
            reason = ""  # a peer can make up any number of them: they share one
        if now < self._due.get(reason, -math.inf):
            return
        still = "still " if reason in self._due else ""
        wait = self._waits.get(reason, COMPLAIN_SECONDS)
        self._due[reason] = now + wait
        self._waits[reason] = min(2 * wait, COMPLAIN_SECONDS_MAX)
        _logger.warning("%scannot connect to %s: %s; trying again", still, self._address, problem)


async def _dial_once(address: Address, on_stream: OnDialled, connect_by: float) -> Dialled:
    try:
        with trio.fail_at(connect_by):
            stream = await trio.open_tcp_stream(address.host, address.port)
    except OSError as error:
        return Dialled(_reason(error))
    except trio.TooSlowError:
        return Dialled("no answer")
    return await on_stream(stream)


def _jitter(seconds: float) -> float:
    # many sinks that lost one source must not all come back in the same instant
    return seconds * surroundings().uniform(0.75, 1.25)


def _reason(error: OSError) -> str:
    cause = error.__cause__
    if isinstance(cause, OSError):
        error = cause
    elif isinstance(cause, BaseExceptionGroup):
        first = cause.exceptions[0]
        error = first if isinstance(first, OSError) else error
    # trio repeats the address: the system's own words are enough
    number = error.errno or 0  # negative for a name that cannot be looked up
    return os.strerror(number) if number > 0 else error.strerror or str(error)
