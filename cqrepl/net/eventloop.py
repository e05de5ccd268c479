"""Checks which event loop runs the caller, with errors of one line in place of trio's own; and
notes which of the loop's tasks a connection waits for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

_IN_ASYNCIO: Final = "is for trio, this is asyncio: here it is"
_IN_NONE: Final = (
    "is for a task of trio, none runs here: start one with trio.run, or take cqrepl.blocking.Host"
)
_awaited: Final[set[trio.lowlevel.Task]] = set()


@contextmanager
def read_by_none() -> Iterator[None]:
    """For the length of a block nothing is read from a peer: a connection waits for this task."""
    task = trio.lowlevel.current_task()
    _awaited.add(task)
    try:
        yield
    finally:
        _awaited.discard(task)


def check_not_awaited(what: str) -> None:
    """Looks whether a connection waits for the task that runs this: what only its peer tells does
    not come meanwhile.

    Args:
        what: for people.

    Raises:
        RuntimeError: one does.
    """
    if trio.lowlevel.current_task() in _awaited:
        raise RuntimeError(
            f"{what} is not for `connected` and `told`: nothing is read from that peer until they"
            " return; start a task for it, or take a policy that waits for no host"
        )


def is_in_asyncio() -> bool:
    """True in what an event loop of asyncio calls, and no guest run of trio inside it."""
    return not trio.lowlevel.in_trio_task() and _is_called_by_asyncio()


def is_in_loop() -> bool:
    """True in what an event loop of either kind calls."""
    return trio.lowlevel.in_trio_task() or _is_called_by_asyncio()


def _is_called_by_asyncio() -> bool:
    asyncio = sys.modules.get("asyncio")  # not loaded for the sake of a question
    return asyncio is not None and asyncio._get_running_loop() is not None


def check_in_trio(what: str, *, in_asyncio: str = "cqrepl.aio.Host") -> None:
    """Looks whether a task of trio runs this.

    Args:
        what: the name of what is called, for people.
        in_asyncio: the name of what there is for asyncio.

    Raises:
        RuntimeError: none does; one line says what there is instead.
    """
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            f"{what} {f'{_IN_ASYNCIO} {in_asyncio}' if is_in_asyncio() else _IN_NONE}"
        )
