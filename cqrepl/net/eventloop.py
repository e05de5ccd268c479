"""Which event loop runs the code that asks, for one line in place of what trio says elsewhere."""

import sys
from typing import Final

import trio

_IN_ASYNCIO: Final = "is for trio, this is asyncio: here it is cqrepl.aio.Host"
_IN_NONE: Final = (
    "is for a task of trio, none runs here: start one with trio.run, or take cqrepl.blocking.Host"
)


def is_in_asyncio() -> bool:
    """True in what an event loop of asyncio calls, and no guest run of trio inside it."""
    if trio.lowlevel.in_trio_task():
        return False
    asyncio = sys.modules.get("asyncio")  # not loaded for the sake of a question
    return asyncio is not None and asyncio._get_running_loop() is not None


def check_in_trio(what: str) -> None:
    """Looks whether a task of trio runs this.

    Args:
        what: the name of what is called, for people.

    Raises:
        RuntimeError: none does; one line says what there is instead.
    """
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(f"{what} {_IN_ASYNCIO if is_in_asyncio() else _IN_NONE}")
