"""The pen: the native kernel's way to append in one call, while all is as usual.

The plain kernel has none, and everything goes the long way, with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from cqrepl.kernel import choose

if TYPE_CHECKING:
    from cqrepl._native import Pen as Pen


class Refusal(IntEnum):
    """The reason why a pen has appended nothing; `LOCK_LOST` alone comes when all is appended."""

    CONTENDED = 1  # the write lock is held, by this or another process
    APPEND_LOCKED = 2  # the append lock is another process's
    CHANGED = 3  # another writer changed the directory, or appended in an unusual way
    CUT = 4  # the file was removed, is shorter than what is mapped of it, or tells neither
    ROLL = 5  # the clock is in another cycle
    INDEX = 6  # the first excerpt's index is not the next one
    TOO_LONG = 7  # an excerpt is longer than allowed
    FULL = 8  # the cycle has no indexes for so many
    PAGE = 9  # an index page is due
    SPACE = 10  # space must be reserved first
    UNFIT = 11  # a payload is no bytes in one piece
    CLASH = 12  # a header came to be at the pen's place while the lock was held
    LOCK_LOST = 13  # the lock was taken away by force meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class PenTerms:
    """The terms of a pen: what it knows of its queue and its store file when it is made.

    Args:
        lock, start, append_lock, changes: positions in the table store of the write lock's word,
            its start key, the append lock's word, and the count of changes of the directory.
        changes_seen: that count, when the rest was looked at.
        process, process_start: what goes into the lock's word and the start key.
        descriptor: of the store file.
        write_position, sequence_word, last_index: positions in the store file.
        sequence_bits: how many bits a sequence has in the sequence word.
        index_first: of the excerpt with the sequence 0.
        sequence_end: the first sequence that has no index.
        index_count, index_spacing: the file's indexing numbers.
        page, page_first: the position of the array of the index page that the next sequence belongs
            into, and the first sequence of that page.
        pages: the position of the array of the page of pages, for a pen that adds index pages
            itself; None: it adds none.
        page_size: the number of bytes that a further page takes at most.
        payload_max: the longest payload.
        reserved: all before this position is allocated.
        step: how much more a pen that is allowed to allocates at once, within what is mapped; twice
            as much the next time. 0: nothing.
        cycle_end_ms: the time at which the clock leaves the cycle, in milliseconds since 1970.
    """

    lock: int
    start: int
    append_lock: int
    changes: int
    changes_seen: int
    process: int
    process_start: int
    descriptor: int
    write_position: int
    sequence_word: int | None
    last_index: int
    sequence_bits: int
    index_first: int
    sequence_end: int
    index_count: int
    index_spacing: int
    page: int
    page_first: int
    pages: int | None
    page_size: int
    payload_max: int
    reserved: int
    step: int
    cycle_end_ms: int


def pen_type() -> type[Pen] | None:
    """A writer of an open store file that appends in one call; None with the plain kernel.

        pen = Pen(store, table, turn, terms, sequence, position)
        last = pen.append_one(payload)

    `store` and `table` are the mapped files, `turn` 4 bytes that are 1 while a thread of this
    process has the write lock. A call answers the last index, or a `Refusal` as its negative; then
    nothing was appended, and the caller goes the long way. Any thread may use a pen.
    """
    return choose.KERNEL.Pen
