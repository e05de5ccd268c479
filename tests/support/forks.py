"""Other processes for tests: forked, so that they can be stopped at any line."""

import gc
import os
import signal
import traceback
from collections.abc import Callable

from tests.support.processes import send

CRASH_CODE = 9


def start(work: Callable[[], None]) -> int:
    """The process id of a child that does the work."""
    pid = os.fork()
    if pid:
        return pid
    gc.freeze()  # what other tests have left must not be ended here, in the middle of the work
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  on any error: the child must not return to pytest
        traceback.print_exc()
    os._exit(code)


def finish(pid: int) -> int:
    """Waits for the child: its exit code, or minus the signal that ended it."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def run(work: Callable[[], None]) -> int:
    """Does the work in a child and gives its exit code."""
    return finish(start(work))


def kill(pid: int) -> None:
    """Ends the child as the system's `kill -9` does."""
    send(pid, signal.SIGKILL)
    finish(pid)
