"""Queues that stopped: why, and what that means for a command's exit code."""

import errno
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cqrepl.protocol import StopReason
from cqrepl.protocol.events import QueueStopped, said_by_peer
from cqrepl.protocol.queuelife import Reason, ReasonKind
from cqrepl.protocol.source import UNANSWERED
from cqrepl.queue import (
    Diverged,
    ExcerptTooLarge,
    IndexGap,
    LayoutMismatch,
    NotAQueue,
    QueueDamaged,
    QueueError,
    QueueLocked,
    WrittenBetween,
)
from cqrepl.queue.format.errors import NO_ROOM
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.agreement.consent import ReturnRefused
from cqrepl.replicator.agreement.firstindex import ClockBehind
from cqrepl.replicator.agreement.identities import OtherQueue
from cqrepl.replicator.queuestate.descriptors import is_none_left
from cqrepl.replicator.queuestate.keptepochs import Fenced

_NO_RIGHTS: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
OWN_REASONS: Final = (StopReason.DAMAGED, StopReason.FAILED, StopReason.FENCED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Reason):
    """A queue goes no further."""

    kind: ReasonKind = field(default=ReasonKind.FAILED, compare=False)  # never less exact: `reason`
    name: str
    reason: StopReason
    host_id: int | None = None  # of the one that it was stopped for, alone: another may do better
    is_no_queue: bool = field(default=False, compare=False)  # our directory holds none to read
    differs_at: int | None = field(default=None, compare=False)  # the first index, where known

    def __post_init__(self) -> None:
        if self.kind is ReasonKind.FAILED:
            object.__setattr__(self, "kind", ReasonKind.of_stop(self.reason))

    @property
    def is_disk_full(self) -> bool:
        """True where a disk of ours has no room."""
        return self.kind is ReasonKind.DISK

    @property
    def is_peers(self) -> bool:
        """True where the peer has met what keeps the queue from going on."""
        return self.kind is ReasonKind.PEER

    @classmethod
    def of(
        cls,
        name: str,
        error: QueueError | OSError,
        path: Path | None = None,
        host_id: int | None = None,
    ) -> "Stop":
        """The stop of a queue over an error of its storage.

        Args:
            path: its directory, for an error of the system's that names no file.
            host_id: of the peer, for an error that comes of what a peer holds or says.
        """
        reason = reason_of(error) if isinstance(error, QueueError) else StopReason.FAILED
        message = str(error)
        if isinstance(error, OSError):
            where = path if error.filename is None else error.filename
            message = message if where is None else f"{where}: {error.strerror or error}"
        if isinstance(error, WrittenBetween) or (
            isinstance(error, Diverged) and differing_index(error) is not None
        ):
            message += _hint(name, error)
        return cls(
            name=name,
            reason=reason,
            message=message,
            kind=kind_of(error, reason),
            host_id=host_id if _is_of_peer(error) else None,
            is_no_queue=isinstance(error, NotAQueue),
            differs_at=differing_index(error),
        )

    @classmethod
    def told(cls, event: QueueStopped, host_id: int | None) -> "Stop":
        """The stop that a peer has told of, or that what it has said has brought about."""
        return cls(
            name=event.name,
            reason=event.reason,
            message=event.message,
            host_id=host_id,
            differs_at=event.index,
        )

    @classmethod
    def met_by_peer(cls, name: str, message: str) -> "Stop":
        """A trouble that the peer has met, and that passes: it goes on with the queue then."""
        kind = ReasonKind.PEER
        return cls(name=name, reason=StopReason.FAILED, message=said_by_peer(message), kind=kind)

    @classmethod
    def left_by_power_cut(cls, name: str, index: int) -> "Stop":
        """The stop of a copy that is to take, from an index on, what its source has. A power cut
        explains why the two differ: the operator need not find out which one is wrong."""
        what = (
            f"what a power cut may have left of it from {format_index(index)} on is not what its"
            " source has: that goes to quarantine, and comes again"
        )
        return cls(name=name, reason=StopReason.FAILED, message=what)

    @classmethod
    def left_by_epochs(cls, name: str, index: int) -> "Stop":
        """A copy that was away for so many promotions that no epoch is left that its source has
        too: what differs was written by a host that led no longer."""
        what = (
            f"what it has from {format_index(index)} on its source never had, and no epoch is known"
            " any more that both have had: that goes to quarantine, and what its source has comes"
        )
        return cls(name=name, reason=StopReason.FAILED, message=what)

    @classmethod
    def unanswered(cls, name: str, host_id: int) -> "Stop":
        """A queue that a sink has not answered, and may not have."""
        why = f"{UNANSWERED}, host {host_id}, which may not have this queue"
        return cls(name=name, reason=StopReason.NO_ANSWER, message=why, host_id=host_id)

    @classmethod
    def held(cls, name: str, why: str) -> "Stop":
        """A queue that does not go on for now, by a word of the operator's."""
        return cls(name=name, reason=StopReason.FAILED, message=why)

    @property
    def is_ours(self) -> bool:
        """True where no other peer would get the queue any further."""
        return self.host_id is None and not self.is_peers

    @property
    def is_own(self) -> bool:
        """True where our own queue can be read no further, whichever sink comes."""
        return self.is_ours and self.reason in OWN_REASONS

    @property
    def is_own_damage(self) -> bool:
        """True where our own store files are not what they were."""
        return self.is_own and self.reason is StopReason.DAMAGED

    def __str__(self) -> str:
        return self.line if self.host_id is None else f"host {self.host_id}: {self.line}"

    @property
    def line(self) -> str:
        """The same for a line that names the peer anyway."""
        return f"queue {self.name!r} stopped ({self.reason.value}): {self.message}"


def _is_of_peer(error: QueueError | OSError) -> bool:
    """True for an error that comes of what a peer holds, or says: with another peer it may not."""
    return isinstance(error, IndexGap | Diverged | LayoutMismatch | ReturnRefused | OtherQueue)


def differing_index(error: QueueError | OSError) -> int | None:
    """The first index that two copies differ at, where the error tells; None also where ours is
    whole and the other one torn: that must not take its place; and where the copy only lacks what
    is below its first excerpt: what it holds is good."""
    if isinstance(error, WrittenBetween):
        return error.index
    if not isinstance(error, Diverged) or error.is_below_copy:
        return None
    if error.is_before or error.is_torn_there:
        return None
    return error.index


def _hint(name: str, error: QueueError) -> str:
    """The advice, for people, on a place that is known to differ."""
    assert error.index is not None
    return (
        "; of the copy that is wrong, this takes the tail off: at a host that runs"
        f" cqrepl quarantine {name} --apply, else"
        f" cqrepl repair QUEUE --quarantine {format_index(error.index)} --apply"
    )


def kind_of(error: QueueError | OSError, reason: StopReason) -> ReasonKind:
    """The kind of a stop over an error, as exactly as that tells.

    Args:
        reason: as it goes over the wire.
    """
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return ReasonKind.DISK
    if is_none_left(error):
        return ReasonKind.DESCRIPTORS
    if isinstance(cause, OSError) and cause.errno in _NO_RIGHTS:
        return ReasonKind.RIGHTS
    if isinstance(error, NotAQueue):
        return ReasonKind.NO_QUEUE
    if isinstance(error, ClockBehind):
        return ReasonKind.CLOCK
    if isinstance(error, ExcerptTooLarge):
        return ReasonKind.TOO_LONG
    return ReasonKind.MACHINE if isinstance(error, OSError) else ReasonKind.of_stop(reason)


def reason_of(error: QueueError) -> StopReason:
    """The reason for stopping a queue that an error of its storage stands for."""
    match error:
        case IndexGap():
            return StopReason.GAP
        case Diverged() | WrittenBetween():
            return StopReason.DIVERGED
        case LayoutMismatch() | QueueLocked() | NotAQueue() | ReturnRefused() | OtherQueue():
            return StopReason.REFUSED
        case ClockBehind():
            return StopReason.REFUSED
        case Fenced():
            return StopReason.FENCED
        case QueueDamaged():
            return StopReason.DAMAGED
        case ExcerptTooLarge() | _:
            return StopReason.FAILED
