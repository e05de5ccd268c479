"""Reads queues block by block. Knows nothing of Spark.

Theory of operation. A block is 65,536 sequences of one cycle, from a multiple of that number on. So
every copy of a queue is cut alike, wherever its bytes lie, and blocks of copies can be compared by
their digests alone. A digest covers the index of the first excerpt, the lengths and the bytes; it
is taken over whole buffers, so it costs no Python for each excerpt.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT, gather_payloads
from cqrepl.queue import ExcerptBatch, IndexGap, Queue
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.storescan import PayloadDigest
from cqrepl.spark.ranges import IndexRange

BLOCK_EXCERPTS: Final = 65_536
TASK_BYTES: Final = 64 * 1024 * 1024
_DIGEST_BYTES: Final = 16
_PIECE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive excerpts of one block: their lengths, and their bytes side by side."""

    index_first: int
    lengths: "array[int]"
    payload: bytes

    @property
    def index_last(self) -> int:
        """Index of its last excerpt."""
        return self.index_first + len(self.lengths) - 1


def block_last(index: int) -> int:
    """The last index of the block that an index lies in."""
    return index | (BLOCK_EXCERPTS - 1)


def block_spans(index_first: int, index_last: int) -> Iterator[tuple[int, int]]:
    """First and last index of each block, of indexes of one cycle."""
    while index_first <= index_last:
        last = min(block_last(index_first), index_last)
        yield index_first, last
        index_first = last + 1


def read_pieces(queue: Queue, index_first: int, index_last: int) -> Iterator[Piece]:
    """All excerpts from one index to another of the same cycle.

    Raises:
        IndexGap: one of them is not there.
        QueueDamaged: the file cannot be followed.
    """
    tailer = queue.tailer(index_first)
    try:
        index = index_first
        while index <= index_last:
            count = min(block_last(index), index_last) - index + 1
            batch = tailer.next_batch(count_max=count, bytes_max=_PIECE_BYTES, payload_max=NO_LIMIT)
            if batch is None or batch.index_first != index:
                found = tailer.next_index if batch is None else batch.index_first
                raise IndexGap(index, found, "it is not in the queue", path=queue.path)
            payload, _ = gather_payloads(batch.data, batch.offsets, batch.lengths)
            yield Piece(index_first=index, lengths=batch.lengths, payload=payload)
            index = batch.index_last + 1
    finally:
        tailer.close()


def digest_of(index_first: int, pieces: Iterator[Piece]) -> str:
    """The digest of the excerpts of a block, of which these are all."""
    digest = PayloadDigest(Index(index_first))
    for piece in pieces:
        digest.take(piece.lengths, piece.payload)
    return digest.text()


def digest_of_all(digests: Sequence[str]) -> str:
    """One digest of those of blocks in the order of their indexes."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for each in digests:
        digest.update(bytes.fromhex(each))
    return digest.hexdigest()


def batch_of(piece: Piece) -> ExcerptBatch:
    """The same excerpts, to be appended."""
    offsets = array("q", accumulate(piece.lengths, initial=0))
    offsets.pop()
    return ExcerptBatch(Index(piece.index_first), piece.payload, offsets, piece.lengths)


def tasks_of(
    ranges: Sequence[IndexRange], task_bytes: int = TASK_BYTES
) -> list[tuple[IndexRange, ...]]:
    """The ranges, cut between blocks and put together so that each task reads about so much."""
    tasks: list[tuple[IndexRange, ...]] = []
    filled: list[IndexRange] = []
    size = 0
    for whole in ranges:
        for part in cut_at_blocks(whole, task_bytes):
            filled.append(part)
            size += part.size_bytes
            if size >= task_bytes:
                tasks.append(tuple(filled))
                filled, size = [], 0
    return [*tasks, tuple(filled)] if filled else tasks


def cut_at_blocks(whole: IndexRange, task_bytes: int) -> Iterator[IndexRange]:
    """A range in parts of whole blocks, each of about a task's size."""
    each = whole.size_bytes / whole.count
    blocks = max(1, round(task_bytes / (each * BLOCK_EXCERPTS)))
    first = whole.index_first
    while first <= whole.index_last:
        last = min(block_last(first) + (blocks - 1) * BLOCK_EXCERPTS, whole.index_last)
        size = max(1, int(each * (last - first + 1)))
        yield replace(whole, index_first=first, index_last=last, size_bytes=size)
        first = last + 1
