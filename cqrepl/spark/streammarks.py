"""Marks in an offset of a stream, by which its queue is known again. Knows nothing of Spark.

    {"next": "0x451600000010", "identity": "5d...", "last": "9f..."}

A checkpoint may outlive its queue. Another queue may then lie at the same path, and the stream
would go on in the midst of that one. So an offset carries the identity that replication has given
the queue, if any, and a digest of the excerpt before `next`. A checkpoint of an earlier version has
neither, and gets both with its next batch.
"""

from collections.abc import Mapping
from typing import Final

from cqrepl.queue import Queue, QueueError, format_index, sequence_of
from cqrepl.queue.format.index import Index
from cqrepl.spark.witness import excerpt_digest, kept_identity

Mark = Mapping[str, str]

_IDENTITY: Final = "identity"
_LAST: Final = "last"
_NEED: Final = "another queue needs another checkpoint"


def marks_of(offset: Mapping[str, object]) -> dict[str, Mark]:
    """The marks that an offset carries beside the index of each queue, by name."""
    queues = offset.get("queues")
    assert isinstance(queues, Mapping)  # `positions_of` has looked
    return {
        str(name): {key: str(each[key]) for key in (_IDENTITY, _LAST) if key in each}
        for name, each in queues.items()
    }


def mark_of(queue: Queue, next_index: int) -> Mark:
    """The mark by which a later run knows the queue again at `next_index`."""
    identity, digest = kept_identity(queue), _digest_before(queue, next_index)
    mark = {} if identity is None else {_IDENTITY: str(identity)}
    return mark if digest is None else {**mark, _LAST: digest}


def check_mark(queue: Queue, next_index: int, mark: Mark) -> None:
    """Does nothing where a queue is the one that an offset is of, as far as that tells.

    Raises:
        QueueError: it is another one, or was changed.
    """
    wanted, identity = mark.get(_IDENTITY), kept_identity(queue)
    if wanted is not None and identity is not None and identity != wanted:
        raise QueueError(
            f"expected queue {wanted} of the checkpoint, found queue {identity}; {_NEED}",
            path=queue.path,
        )
    digest = _digest_before(queue, next_index) if _LAST in mark else None
    if digest is not None and digest != mark[_LAST]:
        raise QueueError(
            f"expected excerpt {format_index(next_index - 1)} as the checkpoint tells it, found"
            f" other bytes: it is another queue, or was changed; {_NEED}",
            path=queue.path,
        )


def _digest_before(queue: Queue, next_index: int) -> str | None:
    """Of the excerpt before an index; None where there is none any more, or it begins a cycle."""
    if not sequence_of(Index(next_index), queue.cycles.shift):
        return None
    digest = excerpt_digest(queue, next_index - 1)
    return None if digest is None else digest.hex()
