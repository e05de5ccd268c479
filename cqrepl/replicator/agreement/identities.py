"""The errors where two queues of one name are not the same one.

Chains tell whether two copies hold the same, as far as both hold anything. Where they share
nothing, as a queue that was made anew or a directory that was exchanged for another, only their
identities tell (`queue.format.identity`). They are compared before anything else.
"""

from pathlib import Path

from cqrepl.queue import QueueError
from cqrepl.queue.files.keptidentity import KeptIdentity
from cqrepl.queue.format.identity import Identity


class OtherQueue(QueueError):
    """The two sides have different queues under one name."""


def check_copy_of(own: Identity | None, theirs: Identity, path: Path, who: str) -> None:
    """Compares a source's queue with what a sink says of its copy.

    Args:
        own: None for a queue that has none yet: nothing is wrong with that.
        path: of the source's queue.
        who: the sink, for people.

    Raises:
        OtherQueue: the sink's is a copy of another queue.
    """
    if own is not None and own != theirs:
        raise OtherQueue(
            f"this queue is {own}, and {who} has {theirs}, which is another queue; if that is a"
            f" copy of this one after all, there: cqrepl identity adopt QUEUE {own} --apply",
            path=path,
        )


def identity_of_copy(
    kept: KeptIdentity, theirs: Identity | None, path: Path, *, is_blank: bool
) -> Identity | None:
    """The identity of a sink's queue, None for none; compared with what its source says.

    Args:
        theirs: None where the source has said nothing.
        is_blank: the copy has taken nothing from any leader: it takes the identity of this one.

    Raises:
        OtherQueue: as `check_own_copy`.
        QueueError, OSError: it cannot be read, or may not be on the disk.
    """
    own = kept.load()
    if theirs is not None and own != theirs:
        if own is not None and is_blank and kept.replace(theirs):
            return theirs
        check_own_copy(own, theirs, path)
    return own


def check_own_copy(own: Identity | None, theirs: Identity, path: Path) -> None:
    """Compares a sink's queue with what its source says of its own.

    Args: as of `check_copy_of`; `path` is the sink's.

    Raises:
        OtherQueue: this is a copy of another queue.
    """
    if own is not None and own != theirs:
        raise OtherQueue(
            f"this queue is {own}, and the source's is {theirs}, which is another queue; if this is"
            f" a copy of that one after all: cqrepl identity adopt {path} {theirs} --apply",
            path=path,
        )
