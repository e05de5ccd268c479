"""Runs a command of the operator whenever this host has another role on a queue.

The command gets `QUEUE ROLE EPOCH` behind its arguments, without a shell. Of each queue one runs at
a time, in the order of the changes, and none is left out; nothing else waits for them.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from cqrepl.net.hookrunner import run_hook
from cqrepl.replicator.hostevents import HostEvents
from cqrepl.replicator.rolelog import RoleChange

_logger: Final = logging.getLogger(__name__)


class RoleCommands:
    """The commands of one host.

    Args:
        command: with its arguments.

    Attributes:
        events: of the host, by which it hears of changes.
        failures: what was wrong with the last command of a queue, by its name.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._waiting: dict[str, deque[RoleChange]] = {}
        self._nursery: trio.Nursery | None = None
        self._token = trio.lowlevel.current_trio_token()
        self.events: Final = HostEvents(on_role_change=self._note)
        self.failures: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs them for the length of a block."""
        async with trio.open_nursery() as self._nursery:
            for name in self._waiting:  # since the host has begun
                self._nursery.start_soon(self._run_all, name)
            yield
            self._nursery.cancel_scope.cancel()
            self._nursery = None

    def _note(self, change: RoleChange) -> None:
        """Is called in a thread of the host's events."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._start, change)

    def _start(self, change: RoleChange) -> None:
        waiting = self._waiting.get(change.queue)
        if waiting is not None:
            waiting.append(change)
            return
        self._waiting[change.queue] = deque([change])
        if self._nursery is not None:
            self._nursery.start_soon(self._run_all, change.queue)

    async def _run_all(self, name: str) -> None:
        waiting = self._waiting[name]
        while waiting:
            await self._run(waiting.popleft())
        del self._waiting[name]

    async def _run(self, change: RoleChange) -> None:
        command = [*self._command, change.queue, change.role.value, str(change.epoch)]
        failure = await run_hook(command)
        if failure:
            _logger.error("queue %r: onRole: %s: %s", change.queue, " ".join(command), failure)
            self.failures[change.queue] = failure
        else:
            self.failures.pop(change.queue, None)
