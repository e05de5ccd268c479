"""Holds the tasks of a process back, as SIGSTOP does.

What they wait for comes, and stays until they run on: bytes in their sockets, time that has passed.
Beside `order`, the only place that reaches into trio: its queue of tasks that are ready.
`tests/laboratory/test_order.py` fails when a trio is installed that has it no more.
"""

from typing import Any

import trio

from cqrepl.surroundings import Surroundings, surroundings


class Freezer(trio.abc.Instrument):
    """An instrument of a trio run, which holds back tasks of frozen processes."""

    def __init__(self) -> None:
        self._held: dict[Surroundings, list[trio.lowlevel.Task]] = {}

    def freeze(self, process: Surroundings) -> None:
        """No task of it runs from now on; nothing new for a process that is frozen already."""
        ready, held = _ready(), self._held.setdefault(process, [])
        for task in [task for task in ready if _process_of(task) is process]:
            ready.remove(task)
            held.append(task)

    def thaw(self, process: Surroundings) -> None:
        """Those that have something to do run again; nothing for a process that is not frozen."""
        _ready().extend(self._held.pop(process, ()))

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if not self._held:
            return
        held = self._held.get(_process_of(task))
        if held is not None:
            last = _ready().pop()
            assert last is task
            held.append(task)


def _process_of(task: trio.lowlevel.Task) -> Surroundings:
    return task.context.run(surroundings)


def _ready() -> Any:
    # private, and not in the types: see above
    scheduler: Any = trio._core._run
    return scheduler.GLOBAL_RUN_CONTEXT.runner.runq
