"""Ends a command: with its exit code, and errors as one line.

An error that the user or the surroundings caused becomes a line on standard error. Only a fault of
our own shows a traceback.
"""

import signal
from collections.abc import Callable, Iterable
from typing import Final

from cqrepl.console.endings import ended_as_by_ctrl_c
from cqrepl.console.exitcodes import DAMAGED, DISK_FULL, INTERRUPTED, BadArguments
from cqrepl.console.output import OutputError, end_of_output, write_error
from cqrepl.kernel.memory import name_cut_files
from cqrepl.net.errors import NetError
from cqrepl.queue import QueueError
from cqrepl.status.errorcodes import code_of

_EXPECTED: Final = (NetError, QueueError, OSError, BadArguments)


def guarded(
    name: str,
    work: Callable[[], int],
    *,
    interrupted_by: Iterable[signal.Signals] = (signal.SIGINT,),
    say: Callable[[Exception], None] | None = None,
) -> int:
    """The exit code of `work`, which may run tasks; an expected error is printed.

    Args:
        interrupted_by: signals that raise `KeyboardInterrupt` in it; none for one that takes them
            for itself.
        say: says an expected error; None: it is printed as one line.
    """
    name_cut_files(name, DAMAGED, DISK_FULL)
    try:
        with ended_as_by_ctrl_c(interrupted_by):
            return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputError as error:
        return end_of_output(name, error)
    except _EXPECTED as error:
        return report(name, error, say)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            return INTERRUPTED
        expected = _expected(group)
        if expected is None:
            raise
        return report(name, expected, say)


def report(name: str, error: Exception, say: Callable[[Exception], None] | None = None) -> int:
    """Says an error of the user's or of the world's, as one line where nothing else is given; its
    exit code."""
    if say is None:
        write_error(f"{name}: {error}")
    else:
        say(error)
    return code_of(error)


def _expected(group: BaseExceptionGroup[BaseException]) -> Exception | None:
    """The one error in a group that is the user's or the world's; None if there is any other."""
    found: Exception | None = None
    for each in group.exceptions:
        one = _expected(each) if isinstance(each, BaseExceptionGroup) else each
        if not isinstance(one, _EXPECTED):
            return None
        found = one
    return found
