"""The batch kernel: everything on the data path that happens once for each excerpt.

Theory of operation: bytes move one way, and each step works on a whole batch without a Python
object per excerpt.

    mapped file --find_excerpts--> offsets, lengths --frame_excerpts--> buffer --> socket
    socket --> bytes --scan_frames--> offsets, lengths --lay_excerpts--> mapped file

A batch is a buffer with two arrays of 64-bit integers, offset and length of every payload in it.
One that does not lie within its buffer is a ValueError; nothing outside is read or written. No
function publishes: `lay_excerpts` leaves the first header 0, and the caller makes the whole batch
visible by one compare-and-set of that word. A pen (`pen_type`) does that too, with all that an
append takes, but only where nothing is out of the ordinary; the plain kernel has none.

This module chooses the implementation and is the only one that imports it; callers see one set of
functions. There are two, which give the same for every input: `cqrepl._native` (native/, in Rust)
and `cqrepl.kernel.plain`. CQREPL_KERNEL picks one when this module is imported:

    auto     the native one if it is there; so it is without the variable
    native   the native one, or `KernelUnavailable`
    python   the plain one

Both state the number of their interface; a native kernel with another one is a leftover of an older
build, and refused.

Frames are pairs of documents as the protocol has them, a meta-data document that selects the
handler (`cid`), then a data document `re: {index, payload, ns}`:

    <cid document> | word | C2 're' | 82 u32 | AF index8 | 80/81/82 length | payload | ns item
"""

from __future__ import annotations

import os
import warnings
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

from cqrepl.kernel import plain
from wire.errors import KernelUnavailable

NO_LIMIT: Final = (1 << 62) - 1
_SWITCH: Final = "CQREPL_KERNEL"


def _native() -> ModuleType:
    """The native kernel.

    Raises:
        ModuleNotFoundError: there is none.
        ImportError: there is one, and it cannot be used.
    """
    import cqrepl._native as native

    if native.INTERFACE != plain.INTERFACE:
        raise ImportError(
            f"expected a native kernel with interface {plain.INTERFACE}, found"
            f" {native.INTERFACE}; install cqrepl again"
        )
    return native


def _chosen(choice: str) -> ModuleType:
    """The kernel to use.

    Raises:
        KernelUnavailable: it cannot be used, or the word is not known.
    """
    if choice not in ("auto", "native", "python"):
        raise KernelUnavailable(f"{_SWITCH}: expected auto, native or python, found {choice!r}")
    if choice == "python":
        return plain
    try:
        return _native()
    except ImportError as error:
        if choice == "native":
            raise KernelUnavailable(f"{_SWITCH} wants the native kernel: {error}") from error
        if not isinstance(error, ModuleNotFoundError):
            warnings.warn(f"plain Python kernel in use: {error}", RuntimeWarning, stacklevel=2)
        return plain


if TYPE_CHECKING:
    from cqrepl._native import AtomicWords
    from cqrepl._native import Pen as Pen
    from cqrepl.kernel import plain as _kernel  # whose types are those of every kernel
else:
    _kernel = _chosen(os.environ.get(_SWITCH, "auto"))
NAME: Final = _kernel.NAME


class FindStop(IntEnum):
    """Why `find_excerpts` went no further."""

    NOT_READY = plain.NOT_READY  # a zero or not complete header: nothing there yet
    END_OF_FILE = plain.END_OF_FILE  # the end-of-file mark
    PAST_END = plain.PAST_END  # the next document does not lie within the mapped bytes
    LIMIT = plain.LIMIT  # as many excerpts or bytes as were asked for
    TOO_LARGE = plain.TOO_LARGE  # the next payload is longer than allowed


_STOPS: Final = tuple(FindStop)


class Found(NamedTuple):
    """A run of excerpts in a store file; `position` is that of the next header to look at."""

    position: int
    stop: FindStop
    offsets: array[int]
    lengths: array[int]


class Scanned(NamedTuple):
    """A run of `re` frames with consecutive indexes; `end` is the offset behind the last one."""

    end: int
    index_first: int
    ns_last: int
    offsets: array[int]
    lengths: array[int]


class Laid(NamedTuple):
    """Excerpts laid into a store file, all but the first header word published.

    `marks` holds (sequence, header position) of those that belong into the index.
    """

    first_word: int
    position_end: int
    position_last: int
    marks: list[tuple[int, int]]


class Refusal(IntEnum):
    """Why a pen has appended nothing; `LOCK_LOST` alone comes when all is appended."""

    CONTENDED = 1  # the write lock is held, by whomever
    APPEND_LOCKED = 2  # the append lock is another process's
    CHANGED = 3  # others have changed the directory, or have appended in an unusual way
    CUT = 4  # the file is shorter than what is mapped of it, or its size cannot be told
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
    """What a pen knows of its queue and its store file when it is made.

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
        page, page_first: where the array of the index page starts that the next sequence belongs
            into, and the first sequence of that page.
        page_size: how many bytes a further page takes at most.
        payload_max: the longest payload.
        reserved: all before this position is allocated.
        step: how much more a pen that is allowed to allocates at once, within what is mapped; twice
            as much the next time. 0: nothing.
        cycle_end_ms: when the clock leaves the cycle, in milliseconds since 1970.
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
    return _kernel.Pen


def atomic_words() -> type[AtomicWords] | None:
    """Aligned words in memory that processes share; None with the plain kernel, which has none."""
    return _kernel.AtomicWords


def page_populator() -> Callable[[memoryview, int, int], None] | None:
    """What has the pages in memory that hold bytes `start` to `end` of a buffer: `(buffer, start,
    end)`; None with the plain kernel, which cannot do that while others work.

    They are then writable without a page fault, and hold what they held. A position outside is a
    ValueError. Where no page can be had, behind the end of a mapped file, on a full disk, or before
    Linux 5.14, it is an OSError.
    """
    return _kernel.populate_pages


def find_excerpts(
    store: memoryview,
    position: int,
    end: int,
    *,
    count_max: int = NO_LIMIT,
    bytes_max: int = NO_LIMIT,
    payload_max: int = NO_LIMIT,
) -> Found:
    """Walks the documents of a store file from the header at `position`; skips meta-data.

    Args:
        store: the mapped file, from its first byte.
        end: first byte that may not be looked at.
        bytes_max: stops before the payloads together exceed it, but gives at least one.
        payload_max: an excerpt with more bytes is not stepped over.
    """
    position, stop, offsets, lengths = _kernel.find_excerpts(
        store, position, end, count_max, bytes_max, payload_max
    )
    return Found(position, _STOPS[stop], offsets, lengths)


def frame_size(cid_document: bytes, ns_item: bytes, payload_bytes: int) -> int:
    """Greatest size in bytes of the frame of one excerpt."""
    return len(cid_document) + plain.FRAME_HEAD_MAX + payload_bytes + len(ns_item)


def frame_excerpts(
    data: memoryview,
    offsets: array[int],
    lengths: array[int],
    start: int,
    index: int,
    cid_document: bytes,
    ns_item: bytes,
    out: bytearray,
    filled: int,
) -> tuple[int, int]:
    """Writes the frames of excerpts `start`, `start + 1`, ... into `out`, as many as fit whole.

    Args:
        index: of excerpt `start`; the others follow it one by one.
        filled: offset in `out` at which to begin.

    Returns:
        How many were framed, and the offset in `out` behind the last one.
    """
    return _kernel.frame_excerpts(
        data, offsets, lengths, start, index, cid_document, ns_item, out, filled
    )


def scan_frames(
    data: bytes | memoryview, start: int, cid_document: bytes, *, payload_max: int = NO_LIMIT
) -> Scanned | None:
    """Finds the run of `re` frames behind `start`; None when no whole one of the usual shape is
    there.

    The run ends before the first frame of another shape, of another handler, with an index that
    does not follow by one, with a longer payload, or not yet whole.
    """
    found = _kernel.scan_frames(data, start, cid_document, payload_max)
    return None if found is None else Scanned(*found)


def gather_payloads(
    data: bytes | memoryview, offsets: array[int], lengths: array[int]
) -> tuple[bytes, array[int]]:
    """The payloads of a batch side by side, without what lies between them.

    Returns:
        The bytes, and where in them each payload starts; one offset more tells where the last ends.
    """
    return _kernel.gather_payloads(data, offsets, lengths)


def number_from(first: int, count: int) -> array[int]:
    """The numbers `first`, `first + 1`, ...: `count` of them, none if that is below 1.

    Raises:
        OverflowError: one of them has more than 64 bits.
    """
    return _kernel.number_from(first, count)


def join_payloads(
    payloads: Sequence[bytes | memoryview],
) -> tuple[bytes, array[int], array[int]]:
    """A batch of these payloads: its buffer, which holds copies side by side, offsets, lengths."""
    return _kernel.join_payloads(payloads)


def laid_size(lengths: array[int], start: int, count: int) -> int:
    """Upper bound of the bytes that `lay_excerpts` writes, the zeros behind the last body
    included."""
    return _kernel.laid_size(lengths, start, count)


def measure_lengths(lengths: array[int], start: int, count: int) -> tuple[int, int]:
    """Sum and greatest of the lengths from `start` on; both 0 for no lengths."""
    return _kernel.measure_lengths(lengths, start, count)


def lay_excerpts(
    data: bytes | memoryview,
    offsets: array[int],
    lengths: array[int],
    start: int,
    count: int,
    store: memoryview,
    position: int,
    sequence: int,
    index_spacing: int,
) -> Laid:
    """Writes excerpts `start` to `start + count` from the header at `position` on.

    The first header word stays 0, so that nothing is visible yet; 8 zero bytes follow the last
    body, so that the next header is 0 whatever a dead writer left there. An empty payload is laid
    as the byte 8F.

    Args:
        store: the mapped file, from its first byte; `laid_size` bytes from `position` on must be
            mapped.
        sequence: of the first one.
        index_spacing: every excerpt whose sequence is a multiple of it is reported in `marks`.
    """
    return Laid(
        *_kernel.lay_excerpts(
            data, offsets, lengths, start, count, store, position, sequence, index_spacing
        )
    )
