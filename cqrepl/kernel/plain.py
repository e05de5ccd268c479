"""The batch kernel in plain Python: complete, and the reference for any faster one.

See `cqrepl.kernel.batch` for what each function means. Functions are stateless, take buffers and
give numbers and arrays. Checks come before any byte is read or written: no file and no frame makes
them look outside, and a batch that does not lie within its data is a ValueError.
"""

from __future__ import annotations

import math
import struct
import time
from array import array
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import accumulate, chain, repeat
from operator import add, sub
from typing import TYPE_CHECKING, Final

from cqrepl.kernel.interface import INTERFACE as INTERFACE
from cqrepl.kernel.plainboard import Bell as Bell
from cqrepl.kernel.plainruns import run_length as run_length
from cqrepl.kernel.plainruns import split_run as split_run
from wire.header import EMPTY_STORED, LENGTH_MASK, META_DATA, NOT_COMPLETE
from wire.header import END_OF_FILE as END_OF_FILE_WORD

_HAS_HASH: Final = find_spec("xxhash") is not None  # else there are no chains
if _HAS_HASH:
    import xxhash

if TYPE_CHECKING:
    from cqrepl import _native

NAME: Final = "python"
AtomicWords: type[_native.AtomicWords] | None = None  # Python has no compare-and-set
FileMap: type[_native.FileMap] | None = None  # its `mmap` chooses no address
Pen: type[_native.Pen] | None = None  # which needs that
give_time: Callable[[tuple[int, int] | None], None] | None = None  # it asks for no time
# with the GIL held while the system looks for memory, it would stop the writer that it is to help
populate_pages: Callable[[memoryview, int, int], None] | None = None

NOT_READY: Final = 0
END_OF_FILE: Final = 1
PAST_END: Final = 2
LIMIT: Final = 3
TOO_LARGE: Final = 4

_WORD: Final = struct.Struct("<I")
_WORD_BYTES: Final = 4
CHAIN_BYTES: Final = 16
_CHAIN_SEED: Final = struct.Struct("<16sQQ")  # chain, sequence, length
_RE_NAME: Final = b"\xc2re"
_BLOCK32: Final = 0x82
_INT64_0X: Final = 0xAF
_INT64: Final = 0xA7
_BLOCK8: Final = 0x80
_INDEX_ITEM_BYTES: Final = 9
_NS_ITEM_BYTES: Final = 9  # of the one shape that `scan_frames` takes
# word, name, 82, length of the block, AF, index, code of the payload's length
_HEAD: Final = struct.Struct("<I3sBIBqB")
_HEAD_BLOCK_BYTES: Final = _WORD_BYTES + 3 + 1 + 4  # what stands before the block's content
_LENGTHS: Final = (struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I"))
FRAME_HEAD_MAX: Final = _HEAD.size + 4
_TAIL: Final = bytes(8)
_GAPS: Final = (b"", b"\0\0\0", b"\0\0", b"\0")  # by the position's remainder of 4
_INT64_MIN: Final = -1 << 63
_INT64_MAX: Final = (1 << 63) - 1
_EXCERPT_OUTSIDE: Final = "expected excerpts within the data"
_PART_OUTSIDE: Final = "expected a part of the batch"
_ALIGNMENT_UNKNOWN: Final = "expected an alignment of 1 or 4 bytes"
_POSITION_OUTSIDE: Final = "expected a position within the buffer"
_TOO_LONG: Final = "expected a body that a header can tell the length of"


def name_cut_files(speaker: str, code_cut: int, code_full: int) -> None:
    from cqrepl.kernel import cutfiles  # programs that embed this need none of it

    cutfiles.name_cut_files(speaker, code_cut, code_full)


class WordLooks:
    """See `cqrepl.kernel.interface.Looks`."""

    def __init__(
        self,
        words: Sequence[memoryview],
        values: bytes,
        pause_seconds: float,
        later_pause_seconds: float,
        count: int,
        /,
    ) -> None:
        if any(len(word) != _WORD_BYTES for word in words) or len(values) != _WORD_BYTES * len(
            words
        ):
            raise ValueError("expected 4 bytes for each word, and for its value")
        if not all(0 <= each < math.inf for each in (pause_seconds, later_pause_seconds)):
            raise ValueError("expected a pause of 0 seconds or more")
        self._words = list(words)
        self._values = values
        self._pauses = chain(repeat(pause_seconds, count), repeat(later_pause_seconds))
        self._is_cancelled = False

    def until_changed(self) -> bool:
        for pause_seconds in self._pauses:
            time.sleep(pause_seconds)
            if self._is_cancelled:
                return False
            if b"".join(self._words) != self._values:
                return True
        raise AssertionError("there is always another pause")

    def cancel(self) -> None:
        self._is_cancelled = True


def find_excerpts(
    store: memoryview,
    position: int,
    end: int,
    count_max: int,
    bytes_max: int,
    payload_max: int,
    alignment: int = _WORD_BYTES,
) -> tuple[int, int, array[int], array[int]]:
    if position < 0 or end > len(store):
        raise ValueError(_POSITION_OUTSIDE)
    if alignment not in (1, _WORD_BYTES):
        raise ValueError(_ALIGNMENT_UNKNOWN)
    gap = alignment - 1
    offsets = array("q")
    lengths = array("q")
    unpack = _WORD.unpack_from
    total = 0
    while True:
        position = (position + gap) & ~gap
        if position + _WORD_BYTES > end:
            return position, PAST_END, offsets, lengths
        (word,) = unpack(store, position)
        if word == 0 or word & NOT_COMPLETE:
            stop = END_OF_FILE if word == END_OF_FILE_WORD else NOT_READY
            return position, stop, offsets, lengths
        length = word & LENGTH_MASK
        body = position + _WORD_BYTES
        if body + length > end:
            return position, PAST_END, offsets, lengths
        if not word & META_DATA:
            if length > payload_max:
                return position, TOO_LARGE, offsets, lengths
            total += length
            if len(offsets) >= count_max or (total > bytes_max and offsets):
                return position, LIMIT, offsets, lengths
            offsets.append(body)
            lengths.append(length)
        position = body + length


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
    if start < 0 or len(offsets) != len(lengths):
        raise ValueError(_PART_OUTSIDE)
    if filled < 0:
        raise ValueError(_POSITION_OUTSIDE)
    if not _INT64_MIN <= index <= _INT64_MAX - max(len(offsets) - start - 1, 0):
        raise OverflowError("expected indexes of at most 64 bits")
    room = len(out)
    count = 0
    fixed = _INDEX_ITEM_BYTES + len(ns_item)
    # all that stands before a payload is packed at once, the cid document too
    heads = [struct.Struct(f"<{len(cid_document)}sI3sBIBqB{code}") for code in "BHI"]
    for at in range(start, len(offsets)):
        length = lengths[at]
        if length < 0:  # before the room for it is reckoned, which would grow
            raise ValueError(_EXCERPT_OUTSIDE)
        width = 0 if length <= 0xFF else 1 if length <= 0xFFFF else 2
        head = heads[width]
        end = filled + head.size + length + len(ns_item)
        if end > room:
            break
        offset = offsets[at]
        content = data[offset : offset + length]
        if offset < 0 or len(content) != length:
            raise ValueError(_EXCERPT_OUTSIDE)
        inner = fixed + 1 + (1 << width) + length
        word = inner + _HEAD_BLOCK_BYTES - _WORD_BYTES
        if word > LENGTH_MASK:
            raise ValueError(_TOO_LONG)
        head.pack_into(
            out,
            filled,
            cid_document,
            word,
            _RE_NAME,
            _BLOCK32,
            inner,
            _INT64_0X,
            index + count,
            _BLOCK8 + width,
            length,
        )
        payload = filled + head.size
        out[payload : payload + length] = content
        out[payload + length : end] = ns_item
        filled = end
        count += 1
    return count, filled


def scan_frames(
    data: bytes | memoryview, start: int, cid_document: bytes, payload_max: int
) -> tuple[int, int, int, array[int], array[int]] | None:
    if start < 0:
        raise ValueError(_POSITION_OUTSIDE)
    offsets = array("q")
    lengths = array("q")
    size = len(data)
    cid_bytes = len(cid_document)
    unpack = _HEAD.unpack_from
    index_first = index_next = 0
    end = start
    while True:
        head = end + cid_bytes
        payload = head + _HEAD.size
        if payload + _WORD_BYTES > size or data[end:head] != cid_document:
            break
        word, name, block, inner, code_index, index, code = unpack(data, head)
        if (
            word != inner + _HEAD_BLOCK_BYTES - _WORD_BYTES
            or name != _RE_NAME
            or block != _BLOCK32
            or code_index != _INT64_0X
            or not _BLOCK8 <= code <= _BLOCK32
        ):
            break
        layout = _LENGTHS[code - _BLOCK8]
        (length,) = layout.unpack_from(data, payload)
        payload += layout.size
        ns = payload + length
        if (
            inner != _INDEX_ITEM_BYTES + 1 + layout.size + length + _NS_ITEM_BYTES
            or ns + _NS_ITEM_BYTES > size
            or data[ns] != _INT64
            or length > payload_max
        ):
            break
        if not offsets:
            index_first = index_next = index
        if index != index_next:
            break
        offsets.append(payload)
        lengths.append(length)
        index_next += 1
        end = ns + _NS_ITEM_BYTES
    if not offsets:
        return None
    ns_last = int.from_bytes(data[end - 8 : end], "little", signed=True)
    return end, index_first, ns_last, offsets, lengths


def gather_payloads(
    data: bytes | memoryview, offsets: array[int], lengths: array[int]
) -> tuple[bytes, array[int]]:
    if len(offsets) != len(lengths):
        raise ValueError(_PART_OUTSIDE)
    view = memoryview(data)
    stops = map(add, offsets, lengths)
    payloads = b"".join(map(view.__getitem__, map(slice, offsets, stops)))
    # a slice that reaches outside is shorter than asked for
    is_negative = min(offsets, default=0) < 0 or min(lengths, default=0) < 0
    if is_negative or len(payloads) != sum(lengths):
        raise ValueError(_EXCERPT_OUTSIDE)
    return payloads, array("q", accumulate(lengths, initial=0))


def number_from(first: int, count: int) -> array[int]:
    return array("q", range(first, first + count))


def wide_gaps(
    offsets: array[int], lengths: array[int], start: int, stop: int, gap_max: int
) -> array[int]:
    if len(offsets) != len(lengths):
        raise ValueError(_PART_OUTSIDE)
    ends = chain((start,), map(add, offsets, lengths))
    gaps = map(sub, chain(offsets, (stop,)), ends)
    return array("q", [nth for nth, gap in enumerate(gaps) if gap > gap_max])


def join_payloads(
    payloads: Sequence[bytes | memoryview],
) -> tuple[bytes, array[int], array[int]]:
    data = b"".join(payloads)
    lengths = array("q", [memoryview(payload).nbytes for payload in payloads])
    offsets = array("q", accumulate(lengths, initial=0))
    del offsets[-1]  # where the last one ends
    return data, offsets, lengths


def laid_size(lengths: array[int], start: int, count: int) -> int:
    if not 0 <= start <= start + count <= len(lengths):
        raise ValueError(_PART_OUTSIDE)
    # a header, at least one byte of body, up to 3 bytes of gap for each
    return sum(lengths[start : start + count]) + count * (_WORD_BYTES + 1 + 3) + len(_TAIL)


def measure_lengths(lengths: array[int], start: int, count: int) -> tuple[int, int]:
    if not 0 <= start <= start + count <= len(lengths):
        raise ValueError(_PART_OUTSIDE)
    part = lengths[start : start + count]
    return sum(part), max(part, default=0)


def _extend_chain(
    data: bytes | memoryview,
    offsets: array[int],
    lengths: array[int],
    sequence: int,
    chain: bytes,
) -> bytes:
    if len(offsets) != len(lengths):
        raise ValueError(_PART_OUTSIDE)
    if len(chain) != CHAIN_BYTES:
        raise ValueError("expected a chain of 16 bytes")
    if sequence < 0:
        raise ValueError("expected a sequence of at least 0")
    view, pack = memoryview(data), _CHAIN_SEED.pack
    inner, outer = xxhash.xxh3_64_intdigest, xxhash.xxh3_128_intdigest
    for nth, (offset, length) in enumerate(zip(offsets, lengths, strict=True), sequence):
        if offset < 0 or length < 0 or offset + length > len(view):
            raise ValueError(_EXCERPT_OUTSIDE)
        seed = inner(pack(chain, nth, length))
        chain = outer(view[offset : offset + length], seed).to_bytes(CHAIN_BYTES, "little")
    return chain


extend_chain: Callable[[bytes | memoryview, array[int], array[int], int, bytes], bytes] | None = (
    _extend_chain if _HAS_HASH else None
)


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
) -> tuple[int, int, int, list[tuple[int, int]]]:
    if not 0 <= start < start + count <= len(offsets) == len(lengths):
        raise ValueError(_PART_OUTSIDE)
    if position < 0 or position % _WORD_BYTES:
        raise ValueError(_POSITION_OUTSIDE)
    if index_spacing < 1:
        raise ValueError("expected an index spacing of at least 1")
    view = memoryview(data)
    pack = _WORD.pack
    parts: list[bytes | memoryview] = []
    marks: list[tuple[int, int]] = []
    at = position_last = position
    for nth in range(start, start + count):
        length = lengths[nth]
        offset = offsets[nth]
        body: bytes | memoryview = view[offset : offset + length]
        if offset < 0 or len(body) != length:
            raise ValueError(_EXCERPT_OUTSIDE)
        if length > LENGTH_MASK:
            raise ValueError(_TOO_LONG)
        if not length:
            body = EMPTY_STORED
        if sequence % index_spacing == 0:
            marks.append((sequence, at))
        sequence += 1
        parts += (pack(len(body)), body, _GAPS[len(body) & 3])
        position_last = at
        at += _WORD_BYTES + len(body) + (-len(body) & 3)
    parts.append(_TAIL)
    laid = b"".join(parts)
    if position + len(laid) > len(store):
        raise ValueError(_POSITION_OUTSIDE)
    first_word = int.from_bytes(laid[:_WORD_BYTES], "little")
    store[position + _WORD_BYTES : position + len(laid)] = laid[_WORD_BYTES:]
    return first_word, at, position_last, marks
