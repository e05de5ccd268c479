"""Exit codes, and errors as one line: only a fault of our own shows a traceback."""

import errno
import sys
from collections.abc import Callable
from typing import Final

from cqrepl.console.output import OutputError, end_of_output
from cqrepl.queue import LayoutMismatch, QueueDamaged, QueueError, QueueLocked

OK: Final = 0
STOPPED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DAMAGED: Final = 4
REFUSED: Final = 5
DISK_FULL: Final = 6
INTERRUPTED: Final = 130


class BadArguments(Exception):
    """What the user asked for does not fit together; the message is one line for people."""


def guarded(name: str, work: Callable[[], int]) -> int:
    """The exit code of `work`; what the user or the world did wrong becomes one line on stderr."""
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputError as error:
        return end_of_output(name, error)
    except (QueueError, OSError, BadArguments) as error:
        return report(name, error)


def report(name: str, error: Exception) -> int:
    """Prints an error of the user's or of the world's as one line; its exit code."""
    print(f"{name}: {error}", file=sys.stderr)
    return code_of(error)


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    match error:
        case QueueDamaged():
            return DAMAGED
        case LayoutMismatch() | QueueLocked():
            return REFUSED
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return DISK_FULL
        case _:
            return USAGE
