"""Queues that stopped: why, and what that means for a command's exit code."""

import errno
from dataclasses import dataclass
from typing import Final

from cqrepl.protocol import StopReason
from cqrepl.queue import (
    Diverged,
    ExcerptTooLarge,
    IndexGap,
    LayoutMismatch,
    NotAQueue,
    QueueDamaged,
    QueueError,
    QueueLocked,
)
from cqrepl.replicator.consent import ReturnRefused

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A queue goes no further."""

    name: str
    reason: StopReason
    message: str
    is_disk_full: bool = False  # ours

    @classmethod
    def of(cls, name: str, error: QueueError | OSError) -> "Stop":
        """The stop of a queue over an error of its storage."""
        reason = reason_of(error) if isinstance(error, QueueError) else StopReason.FAILED
        is_full = isinstance(error, OSError) and error.errno in NO_ROOM
        return cls(name=name, reason=reason, message=str(error), is_disk_full=is_full)

    def __str__(self) -> str:
        return f"queue {self.name!r} stopped ({self.reason.value}): {self.message}"


def reason_of(error: QueueError) -> StopReason:
    """The reason for stopping a queue that an error of its storage stands for."""
    match error:
        case IndexGap():
            return StopReason.GAP
        case Diverged():
            return StopReason.DIVERGED
        case LayoutMismatch() | QueueLocked() | NotAQueue() | ReturnRefused():
            return StopReason.REFUSED
        case QueueDamaged():
            return StopReason.DAMAGED
        case ExcerptTooLarge() | _:
            return StopReason.FAILED
