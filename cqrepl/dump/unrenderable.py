"""A check that tells which bodies surely cannot be rendered, without rendering them.

Theory of operation. Excerpts are often raw bytes, and most raw bytes are no items: such a body is
shown as a hex dump, after `wire.text.print_documents` has tried in vain to render it. This walk
goes over the codes as the renderer does, but makes no text, and gives up where it would have to
know more. So it errs on one side only: `is_surely_unrenderable` true means that rendering raises;
false means nothing.

Tests hold it against the renderer.
"""

import struct
from typing import Final

from wire import stopbit
from wire.codes import (
    BLOCK_LENGTH,
    FIXED_WIDTH,
    LENGTH_PREFIXED,
    NAME_CODES,
    STOP_BIT_SCALE,
    Code,
)
from wire.errors import WireError
from wire.strings import decode_text

_CONTROL: Final = bytes(range(0x20))
_SMALL_NUMBERS: Final = 0x80
_DEPTH_MAX: Final = 16
_LOOK: Final = 0  # steps of codes that are looked at further
_NO_CODE: Final = -1
# codes that have a meaning, but no text: Java's dump gives up on them
_NEVER_SHOWN: Final = (
    *(Code.FIELD_ANCHOR, Code.ANCHOR, Code.UPDATED_ALIAS, Code.U8_ARRAY, Code.UUID, Code.HINT),
    *(Code.FLOAT_SET_LOW_0, Code.FLOAT_SET_LOW_2, Code.FLOAT_SET_LOW_4),
)
_PLAIN_TEXTS: Final = NAME_CODES | {Code.STRING_ANY, Code.TYPE_LITERAL, Code.COMMENT}
_ONE_BYTE: Final = frozenset({Code.FALSE, Code.TRUE, Code.NULL, Code.PADDING})


def is_surely_unrenderable(body: bytes) -> bool:
    """True when the items of this body cannot be rendered; false when that is not known."""
    if not body:
        return False
    if body[0] < _SMALL_NUMBERS:
        return True
    return _walk(body, 0, len(body), 0) is None


def _walk(body: bytes, at: int, end: int, depth: int) -> bool | None:
    """None when the items from `at` to `end` cannot be rendered, true when they were all seen,
    false when they were not."""
    while at < end:
        code = body[at]
        step = _STEPS[code]
        if step > 0:
            at += step
            if at > end and step != 2:  # of one byte that is missing, Java reads -1
                return None
            continue
        if step == _NO_CODE:
            return None
        stop = _behind(body, at, end, code)
        if stop is None:
            return None
        if stop == 0:
            inner = _walk_block(body, at, end, code, depth)
            if inner is None or inner is False:
                return inner
            stop = inner
        at = stop
    return True


def _behind(body: bytes, at: int, end: int, code: int) -> int | None:
    """The position behind a name or text; None where there cannot be one, 0 for anything else."""
    if code >= Code.FIELD_NAME0:
        stop = at + 1 + (code & 0x1F)
        if stop > end:
            return None
        raw = body[at + 1 : stop]
        if code >= Code.STRING0:
            return stop if raw.isascii() or _is_text(raw) else None
        return stop if raw.translate(None, _CONTROL) == raw else None
    if at + 1 == end:
        return 0
    try:
        return _behind_number(body, at + 1, end, code)
    except WireError:
        return None


def _behind_number(body: bytes, at: int, end: int, code: int) -> int | None:
    """As `_behind`, for the codes that start with a number or a length."""
    if code in STOP_BIT_SCALE or code == Code.FIELD_NUMBER:
        return stopbit.decode(body, at, end)[1]
    if code not in LENGTH_PREFIXED:
        return 0
    length, at = stopbit.decode(body, at, end)
    if length == -1:
        return 0
    if not 0 <= length <= end - at:
        return None
    if code not in NAME_CODES and not _is_text(body[at : at + length]):
        return None
    return at + length if code in _PLAIN_TEXTS else 0


def _walk_block(body: bytes, at: int, end: int, code: int, depth: int) -> int | bool | None:
    """The position behind a block; None or false as `_walk` has them."""
    layout = BLOCK_LENGTH.get(code)
    if layout is None or depth == _DEPTH_MAX:
        return False
    start = at + 1 + struct.calcsize(layout)
    if start > end:
        return None if code != Code.BYTES_LENGTH8 else False
    stop = start + int.from_bytes(body[at + 1 : start], "little")
    if stop > end:
        return None
    first = body[start] if start < stop else None
    if first == Code.U8_ARRAY:
        return stop
    if first == Code.I64_ARRAY:
        return None
    inner = _walk(body, start, stop, depth + 1)
    return stop if inner else inner


def _is_text(raw: bytes) -> bool:
    try:
        decode_text(raw)
    except WireError:
        return False
    return True


def _steps() -> list[int]:
    """For each code the bytes it takes with its operand, or one of the two marks."""
    steps = [_NO_CODE] * 256
    for known in Code:
        steps[known] = _LOOK
    for never in _NEVER_SHOWN:
        steps[never] = _NO_CODE
    steps[:_SMALL_NUMBERS] = [1] * _SMALL_NUMBERS
    steps[Code.FIELD_NAME0 :] = [_LOOK] * (256 - Code.FIELD_NAME0)
    for code, layout in FIXED_WIDTH.items():
        steps[code] = 1 + struct.calcsize(layout)
    for one in _ONE_BYTE:
        steps[one] = 1
    return steps


_STEPS: Final = _steps()
