"""The errors of a queue directory: one base class, and a subclass where callers act differently.

An operating system's refusal (no space, no permission in the middle of work) is an `OSError` and
passes through as it is. Only where a queue is opened it becomes a `QueueError`. That one says what
could not be done; it says nothing of what the queue is or holds.
"""

import errno
from pathlib import Path
from typing import Final

from cqrepl.queue.format.index import format_index

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class QueueError(Exception):
    """A queue that cannot be used as asked.

    Args:
        reason: what was expected and what came, in one sentence without a final stop.
        path: the file or directory it was found in.
        position: byte offset in that file.
        index: the excerpt concerned.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: Path | None = None,
        position: int | None = None,
        index: int | None = None,
    ) -> None:
        where = "" if position is None else f" at position {position}"
        which = "" if path is None else f"{path}: "
        super().__init__(f"{which}{reason}{where}")
        self.reason = reason
        self.path = path
        self.position = position
        self.index = index


def cannot_open(error: OSError, path: Path) -> QueueError:
    """The system does not let this file or directory be opened; the error to raise."""
    return QueueError(f"cannot be opened: {error.strerror or error}", path=path)


def used_after_close(what: str, path: Path) -> QueueError:
    """A caller goes on with what it has closed, alone or with its queue; the error to raise."""
    return QueueError(f"expected an open {what}, it was closed", path=path)


class NotAQueue(QueueError):
    """The path holds no queue of a kind that this program reads."""


class UnfinishedQueue(NotAQueue):
    """A queue that its creator has not made yet: it is at work, has died, or the disk was full."""


class QueueDamaged(QueueError):
    """A file of the queue breaks the format; nothing behind that place can be trusted."""


class QueueCut(QueueDamaged):
    """A tail of the queue went to quarantine, and with it the store file that is read: other
    excerpts may come under the same indexes.

    Args:
        cut_from: the first index that went.
    """

    def __init__(self, cut_from: int, index: int, *, path: Path | None = None) -> None:
        text = (
            f"expected the store file that holds {format_index(index)}, it went to quarantine with"
            f" everything from {format_index(cut_from)} on"
        )
        super().__init__(text, path=path, index=index)
        self.cut_from = cut_from


class LayoutMismatch(QueueError):
    """An existing queue is laid out differently from the one asked for."""


class QueueLocked(QueueError):
    """A lock is held by a process that may be alive.

    Args:
        holder: its process id.
    """

    def __init__(self, reason: str, *, holder: int, path: Path | None = None) -> None:
        super().__init__(reason, path=path)
        self.holder = holder


class AppendsToCopy(QueueError):
    """The queue is a copy, which the host that leads it appends to; and the caller did not say that
    it knows."""


class IndexGap(QueueError):
    """The index asked for does not follow what the queue holds.

    Args:
        expected: the index that was wanted; for an append, the only next one the queue can take.
        found: the index that is there instead; for an append, the one that came.
    """

    def __init__(self, expected: int, found: int, reason: str, *, path: Path | None = None) -> None:
        text = f"expected index {format_index(expected)}, found {format_index(found)}: {reason}"
        super().__init__(text, path=path, index=expected)
        self.expected = expected
        self.found = found


class Diverged(QueueError):
    """The queue holds other bytes under an index, or before it, than those that came for it.

    Args:
        stored: digest of the bytes in the queue.
        received: digest of the bytes that came.
        is_before: the two differ somewhere before the index.
    """

    def __init__(
        self,
        index: int,
        stored: str,
        received: str,
        *,
        path: Path | None = None,
        is_before: bool = False,
    ) -> None:
        where = "before" if is_before else "at"
        text = f"diverged {where} {format_index(index)}: stored {stored}, received {received}"
        super().__init__(text, path=path, index=index)
        self.stored = stored
        self.received = received
        self.is_before = is_before
        self.is_below_copy = False  # a copy lacks what is before its first excerpt, and is good
        self.is_torn_there = False  # what came may be what a power cut has left of what is here


class WrittenBetween(QueueError):
    """Another process has appended, though it is kept from it: it had looked at the append lock
    before that was taken. Nothing was appended behind.

    Args:
        end_left: the next index as it was left.
        end_found: the next index as it is.
    """

    def __init__(self, end_left: int, end_found: int, *, path: Path | None = None) -> None:
        text = (
            f"expected the end at {format_index(end_left)}, where it was left, found it at"
            f" {format_index(end_found)}: another process has appended"
        )
        super().__init__(text, path=path, index=end_left)
        self.end_left = end_left
        self.end_found = end_found


class ExcerptTooLarge(QueueError):
    """An excerpt is longer than the reader's or writer's limit."""

    def __init__(self, index: int, length: int, limit: int, *, path: Path | None = None) -> None:
        text = f"excerpt {format_index(index)} has {length} bytes, expected at most {limit}"
        super().__init__(text, path=path, index=index)
        self.length = length
        self.limit = limit


class AtomicsMissing(QueueError):
    """Writing needs compare-and-set on mapped memory, and nothing here provides it."""


class DurabilityLost(QueueError):
    """A sync failed: what was appended may never reach the disk, and no more is taken."""


def knows_no_host(path: Path, policy: object) -> ValueError:
    """The error of an append with a policy, where the queue knows of no host that has a copy."""
    return ValueError(
        f"{path}: a queue of the host that streams it expected for a policy, one that knows of no"
        f" host came ({policy}): host.queue(name).open() and host.queue(name).append take one"
    )
