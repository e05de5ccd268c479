"""The 4-byte document header: a little-endian word before every document.

    bit 31         bit 30          bits 29..0
    not complete   meta-data       length of the body in bytes

Two words have a meaning of their own: 0 says that nothing is here yet, and 0xC0000000 (not
complete, meta-data, no length) closes a queue file. On a socket neither occurs, and bit 31 is never
set.
"""

from typing import Final

HEADER_BYTES: Final = 4
LENGTH_MASK: Final = 0x3FFFFFFF
META_DATA: Final = 0x40000000
NOT_COMPLETE: Final = 0x80000000
END_OF_FILE: Final = 0xC0000000
EMPTY_STORED: Final = b"\x8f"  # the body of an excerpt without bytes: padding, as no length is 0


def body_length(word: int) -> int:
    """Length in bytes of the body that follows this header word."""
    return word & LENGTH_MASK


def is_metadata(word: int) -> bool:
    """True for a meta-data document, false for a data document."""
    return bool(word & META_DATA)


def is_ready(word: int) -> bool:
    """True when a complete document stands behind this header word."""
    return word != 0 and not word & NOT_COMPLETE


def aligned(position: int, alignment: int) -> int:
    """The position rounded up to a multiple of `alignment`, a power of 2."""
    return (position + alignment - 1) & -alignment


def align4(position: int) -> int:
    """The position rounded up to a multiple of 4, where a queue file's next header stands."""
    return (position + 3) & ~3


def is_framed(data: bytes | bytearray | memoryview) -> bool:
    """True for whole documents with their headers, as they stand in a stream; an excerpt of a queue
    has none, it gets one from the queue."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        word = int.from_bytes(data[position : position + HEADER_BYTES], "little")
        if not is_ready(word):
            return False
        position += HEADER_BYTES + body_length(word)
    return position == len(data) > 0
