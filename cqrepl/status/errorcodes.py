"""The exit code that an error stands for, in commands and in what a host answers."""

from cqrepl.console.exitcodes import DAMAGED, DISK_FULL, REFUSED, UNREACHABLE, USAGE
from cqrepl.net.errors import NetError, Refused
from cqrepl.queue import LayoutMismatch, QueueDamaged, QueueLocked
from cqrepl.queue.format.errors import NO_ROOM, AppendsToCopy


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    match error:
        case QueueDamaged():
            return DAMAGED
        case LayoutMismatch() | QueueLocked() | Refused() | AppendsToCopy():
            return REFUSED
        case NetError():
            return UNREACHABLE
        case OSError() if error.errno in NO_ROOM:
            return DISK_FULL
        case _:
            return USAGE
