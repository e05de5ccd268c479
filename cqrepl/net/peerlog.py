"""The log lines that peers cause: each reason at most once a second, with a count of the rest.

Any program that reaches a port can make this side log something as often as it likes. So lines that
differ only in numbers, and come from one machine, are one reason. The first line of a reason stands
as it is; where more than a few machines bring about the same, so does that of a few. Lines of the
next second are counted, and the last of them is logged at the end of that second. The number of
reasons at a time is bounded, too: further ones share one.
"""

import logging
import math
import re
from dataclasses import dataclass
from typing import Final

import trio

QUIET_SECONDS: Final = 1.0
REASONS_MAX: Final = 64
_PORT: Final = re.compile(r":\d+$")
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")
MACHINES_MAX: Final = 8  # that bring about the same; further ones share a reason
_OTHERS: Final = (logging.NOTSET, "")
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Reason:
    """One that was logged less than a second ago; `last` of those that were left out."""

    until: float
    level: int = logging.NOTSET
    left_out: int = 0
    last: str = ""


class PeerLog:
    """The lines of one host. Without `run` the last count waits for the next line."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[int, str], _Reason] = {}
        self._news = trio.Event()

    def tell(self, level: int, peer: str, message: str) -> None:
        """Logs what a peer has brought about.

        Args:
            peer: its address, or the label that ends in it.
        """
        if not _logger.isEnabledFor(level):
            return
        self._settle()
        line = f"{peer}: {message}"
        what = _NUMBER.sub("0", message)
        key = (level, f"{_PORT.sub('', peer)}: {what}")
        if key not in self._reasons:
            alike = sum(each[1].endswith(f": {what}") for each in self._reasons)
            key = key if alike < MACHINES_MAX else (level, f": {what}")
        if key not in self._reasons and len(self._reasons) >= REASONS_MAX:
            key = _OTHERS
        reason = self._reasons.get(key)
        if reason is None:
            self._reasons[key] = _Reason(trio.current_time() + QUIET_SECONDS)
            _logger.log(level, "%s", line)
        else:
            reason.left_out += 1
            reason.level, reason.last = max(level, reason.level), line
        self._news.set()

    async def run(self) -> None:
        """Tells the counts when their time has come."""
        while True:
            self._news = trio.Event()
            self._settle()
            ends = (each.until for each in self._reasons.values())
            with trio.move_on_at(min(ends, default=math.inf)):
                await self._news.wait()

    def _settle(self) -> None:
        """Tells what was left out in the seconds that have passed."""
        now = trio.current_time()
        over = [(key, each) for key, each in self._reasons.items() if each.until <= now]
        for key, reason in over:
            del self._reasons[key]
            if reason.left_out:  # which counts as a line of the next second
                self._reasons[key] = _Reason(now + QUIET_SECONDS)
                count = f" ({reason.left_out} such lines)" if reason.left_out > 1 else ""
                _logger.log(reason.level, "%s%s", reason.last, count)
