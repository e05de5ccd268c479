"""Runs in plain Python: excerpts that are passed on with the bytes of the store file as they stand.

    word | payload | gap | word | payload | gap | ... | word | payload

A run begins at a header and ends with its last payload. Only whole excerpts stand in it, each
header a multiple of 4 bytes behind the first one, and zeros in the gaps. See
`cqrepl.kernel.batch` for what each function means.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from wire.header import META_DATA, NOT_COMPLETE

WHOLE: Final = 0
ENDED: Final = 1
LONGER: Final = 2
CUT: Final = 3
META: Final = 4
WORKING: Final = 5
EMPTY: Final = 6
TOO_LONG: Final = 7
GAP: Final = 8

_WORD: Final = struct.Struct("<I")
_WORD_BYTES: Final = 4
_GAPS: Final = (b"", b"\0\0\0", b"\0\0", b"\0")  # by the length's remainder of 4
_PART_OUTSIDE: Final = "expected a part of the batch"
_POSITION_OUTSIDE: Final = "expected a position within the buffer"


def run_length(
    data: bytes | memoryview,
    offsets: array[int],
    lengths: array[int],
    start: int,
    count_max: int,
    bytes_max: int,
) -> int:
    """See `cqrepl.kernel.batch`."""
    if start < 0 or len(offsets) != len(lengths):
        raise ValueError(_PART_OUTSIDE)
    if start >= len(offsets):
        return 0
    size, unpack = len(data), _WORD.unpack_from
    first = header = offsets[start] - _WORD_BYTES
    count = 0
    while count < count_max and start + count < len(offsets):
        body, length = offsets[start + count], lengths[start + count]
        end = body + length
        if header < 0 or body != header + _WORD_BYTES or length <= 0 or end > size:
            break
        if end - first > bytes_max or unpack(data, header)[0] != length:
            break
        count += 1
        gap = _GAPS[length & 3]
        header = end + len(gap)
        if data[end:header] != gap:
            break
    return count


def split_run(
    data: bytes | memoryview, start: int, end: int, count: int, payload_max: int
) -> tuple[int, array[int], array[int]]:
    """See `cqrepl.kernel.batch`."""
    if not 0 <= start <= end <= len(data):
        raise ValueError(_POSITION_OUTSIDE)
    offsets, lengths = array("q"), array("q")
    unpack = _WORD.unpack_from
    at = behind = start
    for _ in range(count):
        body = at + _WORD_BYTES
        if body > end:
            return _refused(ENDED)
        if at > behind and data[behind:at] != bytes(at - behind):
            return _refused(GAP)
        (word,) = unpack(data, at)
        fault = _word_fault(word, payload_max)
        if fault == WHOLE and body + word > end:
            fault = CUT
        if fault != WHOLE:
            return _refused(fault)
        offsets.append(body)
        lengths.append(word)
        behind = body + word
        at = behind + (-word & 3)
    return (WHOLE, offsets, lengths) if behind == end else _refused(LONGER)


def _word_fault(word: int, payload_max: int) -> int:
    if word == 0:
        return EMPTY
    if word & NOT_COMPLETE:
        return WORKING
    if word & META_DATA:
        return META
    return TOO_LONG if word > payload_max else WHOLE


def _refused(fault: int) -> tuple[int, array[int], array[int]]:
    return fault, array("q"), array("q")
