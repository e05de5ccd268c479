"""Runs commands of the operator, without a shell: one after the other, and none for long."""

import logging
import subprocess
from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

RUN_SECONDS: Final = 30.0  # then SIGTERM, and 5 s later SIGKILL, as trio ends a process
WAITING_MAX: Final = 1000
_logger: Final = logging.getLogger(__name__)


async def run_hook(command: Sequence[str]) -> str:
    """Runs a command; what was wrong with it, or an empty text."""
    try:
        with trio.move_on_after(RUN_SECONDS) as limit:
            done = await trio.run_process([*command], check=False, stdin=subprocess.DEVNULL)
            return f"exit code {done.returncode}" if done.returncode else ""
        assert limit.cancelled_caught
        return f"it was ended after {RUN_SECONDS:g} s"
    except (OSError, ValueError) as error:
        return str(error)


class HookRunner:
    """Commands that wait, bounded: the oldest ones are left out, and that is said.

    Args:
        key: of the file by which they are run, for the log.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._waiting: deque[tuple[str, ...]] = deque()
        self._news = trio.Event()

    def add(self, command: tuple[str, ...]) -> None:
        """One more is to run."""
        if len(self._waiting) >= WAITING_MAX:
            gone = self._waiting.popleft()
            _logger.error("%s: left out, as %d wait: %s", self._key, WAITING_MAX, " ".join(gone))
        self._waiting.append(command)
        self._news.set()

    async def run(self) -> None:
        """Runs them for ever."""
        while True:
            while self._waiting:
                command = self._waiting.popleft()
                failure = await run_hook(command)
                if failure:
                    _logger.error("%s: %s: %s", self._key, " ".join(command), failure)
            self._news = trio.Event()
            await self._news.wait()
