"""The batch kernel: everything on the data path that happens once for each excerpt.

Theory of operation: bytes move one way, and each step works on a whole batch without a Python
object per excerpt.

    mapped file --find_excerpts--> offsets, lengths --frame_excerpts--> buffer --> socket
    socket --> bytes --scan_frames--> offsets, lengths --lay_excerpts--> mapped file

A batch is a buffer with two arrays of 64-bit integers, offset and length of every payload in it.
One that does not lie within its buffer is a ValueError; nothing outside is read or written. No
function publishes: `lay_excerpts` leaves the first header 0, and the caller makes the whole batch
visible by one compare-and-set of that word. A pen (`cqrepl.kernel.pen`) does that too, with all
that an append takes, but only where nothing is out of the ordinary; the plain kernel has none. Two
kernels do this work, `cqrepl.kernel.choose` says which one: callers see one set of functions.

Frames are pairs of documents as the protocol has them, a meta-data document that selects the
handler (`cid`), then a data document `re: {index, payload, ns}`:

    <cid document> | word | C2 're' | 82 u32 | AF index8 | 80/81/82 length | payload | ns item

A run (`cqrepl.kernel.plainruns`) needs no frames: its bytes are those of the store file on both
sides.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from cqrepl.kernel import choose, plain, plainruns
from wire.header import HEADER_BYTES

NO_LIMIT: Final = (1 << 62) - 1  # of counts, bytes and sequences; indexes are greater than this


class FindStop(IntEnum):
    """The reason why `find_excerpts` went no further."""

    NOT_READY = plain.NOT_READY  # a zero or not complete header: nothing there yet
    END_OF_FILE = plain.END_OF_FILE  # the end-of-file mark
    PAST_END = plain.PAST_END  # the next document does not lie within the mapped bytes
    LIMIT = plain.LIMIT  # as many excerpts or bytes as were asked for
    TOO_LARGE = plain.TOO_LARGE  # the next payload is longer than allowed


class RunFault(IntEnum):
    """The fault in bytes that should be a run."""

    WHOLE = plainruns.WHOLE  # nothing
    ENDED = plainruns.ENDED  # they end before the last excerpt begins
    LONGER = plainruns.LONGER  # more bytes stand behind the last excerpt
    CUT = plainruns.CUT  # they end within an excerpt
    META = plainruns.META  # meta-data stand among the excerpts
    WORKING = plainruns.WORKING  # an excerpt is not complete
    EMPTY = plainruns.EMPTY  # a header word is 0
    TOO_LONG = plainruns.TOO_LONG  # an excerpt is longer than allowed
    GAP = plainruns.GAP  # a gap holds something else than zeros


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


def find_excerpts(
    store: memoryview,
    position: int,
    end: int,
    *,
    count_max: int = NO_LIMIT,
    bytes_max: int = NO_LIMIT,
    payload_max: int = NO_LIMIT,
    alignment: int = HEADER_BYTES,
) -> Found:
    """Walks the documents of a store file from the header at `position`; skips meta-data.

    Args:
        store: the mapped file, from its first byte.
        end: first byte that may not be looked at.
        bytes_max: stops before the payloads together exceed it, but gives at least one.
        payload_max: an excerpt with more bytes is not stepped over.
        alignment: bytes that header positions are multiples of: 4, or 1 in files of old versions.

    Raises:
        ValueError: the position or the end lies outside the store, or the alignment is another.
    """
    position, stop, offsets, lengths = choose.KERNEL.find_excerpts(
        store, position, end, count_max, bytes_max, payload_max, alignment
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
        index: of excerpt `start`; those of the next ones follow it one by one.
        filled: offset in `out` at which to begin.

    Returns:
        How many were framed, and the offset in `out` behind the last one.
    """
    return choose.KERNEL.frame_excerpts(
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
    found = choose.KERNEL.scan_frames(data, start, cid_document, payload_max)
    return None if found is None else Scanned(*found)


def run_length(
    data: bytes | memoryview,
    offsets: array[int],
    lengths: array[int],
    start: int,
    *,
    count_max: int,
    bytes_max: int,
) -> int:
    """The number of excerpts of a batch, from `start` on, that stand in its data as a run: each
    header right before its payload, one behind the other with zeros in the gaps.

    Args:
        bytes_max: most bytes from the first header to the end of the last payload.
    """
    return choose.KERNEL.run_length(data, offsets, lengths, start, count_max, bytes_max)


def split_run(
    data: bytes | memoryview, start: int, end: int, count: int, payload_max: int
) -> tuple[RunFault, array[int], array[int]]:
    """The offsets and lengths of the excerpts of a run from `start` to `end` of the data; none
    where it is not one of `count` excerpts of at most `payload_max` bytes, and what is wrong."""
    fault, offsets, lengths = choose.KERNEL.split_run(data, start, end, count, payload_max)
    return RunFault(fault), offsets, lengths


def gather_payloads(
    data: bytes | memoryview, offsets: array[int], lengths: array[int]
) -> tuple[bytes, array[int]]:
    """The payloads of a batch side by side, without what lies between them.

    Returns:
        The bytes, and where in them each payload starts; one offset more tells where the last ends.
    """
    return choose.KERNEL.gather_payloads(data, offsets, lengths)


def number_from(first: int, count: int) -> array[int]:
    """The numbers `first`, `first + 1`, ...: `count` of them, none if that is below 1.

    Raises:
        OverflowError: one of them has more than 64 bits.
    """
    return choose.KERNEL.number_from(first, count)


def wide_gaps(
    offsets: array[int], lengths: array[int], start: int, stop: int, gap_max: int
) -> array[int]:
    """The numbers of the gaps of more than `gap_max` bytes before, between and behind payloads.

    Gap n ends where payload n starts, the last one at offset `stop`; the first begins at `start`.

    Raises:
        ValueError: offsets and lengths are not as many.
    """
    return choose.KERNEL.wide_gaps(offsets, lengths, start, stop, gap_max)


def join_payloads(
    payloads: Sequence[bytes | memoryview],
) -> tuple[bytes, array[int], array[int]]:
    """A batch of these payloads: its buffer, which holds copies side by side, offsets, lengths."""
    return choose.KERNEL.join_payloads(payloads)


def laid_size(lengths: array[int], start: int, count: int) -> int:
    """Upper bound of the bytes that `lay_excerpts` writes, the zeros behind the last body
    included."""
    return choose.KERNEL.laid_size(lengths, start, count)


def measure_lengths(lengths: array[int], start: int, count: int) -> tuple[int, int]:
    """Sum and greatest of the lengths from `start` on; both 0 for no lengths."""
    return choose.KERNEL.measure_lengths(lengths, start, count)


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
    body, so that the next header is 0 even where a dead writer left bytes. An empty payload is laid
    as the byte 8F.

    Args:
        store: the mapped file, from its first byte; `laid_size` bytes from `position` on must be
            mapped.
        sequence: of the first one.
        index_spacing: every excerpt whose sequence is a multiple of it is reported in `marks`.
    """
    return Laid(
        *choose.KERNEL.lay_excerpts(
            data, offsets, lengths, start, count, store, position, sequence, index_spacing
        )
    )
