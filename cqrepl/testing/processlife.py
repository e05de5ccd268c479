"""The life of one process of a machine: started, and started again when it ends by itself."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from cqrepl.net.errors import NetError
from cqrepl.queue import QueueError
from cqrepl.surroundings import within
from cqrepl.testing.freezer import Freezer
from cqrepl.testing.labmachine import Machine, Process
from cqrepl.testing.network import Network
from cqrepl.testing.story import Story

_ENDS: Final = (QueueError, NetError, OSError)  # what a process ends with, and says
RESTART_SECONDS: Final = 1.0  # a process that has ended by itself is started again after

Serving = Callable[[Process], AbstractAsyncContextManager[None]]


class ProcessLife:
    """Starts a process, kills it, holds it back, and tells it to end.

    Args:
        what: the name by which stories call it.
        serving: what it does; it is told to end when the block is to be left.
        gone: called as soon as it is no more, or does nothing until it is started again.

    Attributes:
        process: while there is one.
        ends: why it has ended by itself, since it has served last.
        is_frozen: true while it is held back.
    """

    def __init__(
        self,
        machine: Machine,
        network: Network,
        freezer: Freezer,
        nursery: trio.Nursery,
        story: Story,
        what: str,
        serving: Serving,
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        self.machine: Final = machine
        self.process: Process | None = None
        self.ends: list[str] = []
        self.is_frozen = False
        self._network = network
        self._freezer = freezer
        self._nursery = nursery
        self._story = story
        self._what = what
        self._serving = serving
        self._gone = gone
        self._scope = trio.CancelScope()
        self._stopping = trio.Event()
        machine.at_power_cut.append(self._leave)

    def tell(self, text: str) -> None:
        """Something has happened to it."""
        self._story.tell(self.machine.name, f"{self._what} {text}")

    def start(self) -> None:
        """Nothing for a process that is there."""
        if self.process is not None:
            return
        self.process = self.machine.start(self._what)
        self.is_frozen = False
        self._scope, self._stopping = trio.CancelScope(), trio.Event()
        self.tell("starts")
        self._nursery.start_soon(self._run, self.process, self._scope, self._stopping)

    def kill(self) -> None:
        """Ends it as `kill -9` does: what it has stored so far stays, its connections break."""
        if self.process is None:
            return
        self.tell("is killed")
        self.machine.killed(self.process)
        self._leave()

    def freeze(self) -> Process | None:
        """It stands still; what is to be thawed, None while there is none."""
        if self.process is not None:
            self.tell("is frozen")
            self.is_frozen = True
            self._freezer.freeze(self.process)
        return self.process

    def thaw(self, process: Process) -> None:
        """It goes on, unless it was killed meanwhile."""
        self.tell("goes on")
        self.is_frozen = self.is_frozen and process is not self.process
        self._freezer.thaw(process)

    def power_cut(self) -> None:
        """Its machine loses its power, with all processes there."""
        self.machine.power_cut()

    def stop(self) -> None:
        """Asks it to end in order."""
        if self.process is not None:
            self.tell("is told to end")
            self._stopping.set()

    def _leave(self) -> None:
        process = self.process
        if process is None:
            return
        self._gone()
        self._freezer.thaw(process)
        self._network.process_died(process)
        self.process = None
        self._scope.cancel()

    async def _run(self, process: Process, scope: trio.CancelScope, stopping: trio.Event) -> None:
        with within(process), scope:
            while not stopping.is_set():
                try:
                    async with self._serving(process):
                        self.ends.clear()
                        await stopping.wait()
                except _ENDS as error:
                    self._ended(str(error))
                except BaseExceptionGroup as group:
                    errors, others = group.split(_ENDS)
                    if others is not None:
                        raise
                    assert errors is not None
                    self._ended("; ".join(str(each) for each in errors.exceptions))
                if self.process is process:
                    self._gone()
                if not stopping.is_set():
                    await trio.sleep(RESTART_SECONDS)
        if self.process is process:  # it was not killed
            self.machine.alive.discard(process.pid)
            self.process = None
            self.tell("has ended")

    def _ended(self, why: str) -> None:
        self.ends.append(why)
        self.tell(f"ends by itself: {why}")
