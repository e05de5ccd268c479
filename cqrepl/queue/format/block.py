"""Blocks: what a process maps at a time, and with it the longest excerpt that it takes.

Theory of operation. Java maps a file in blocks of one size, each with an overlap into the next, so
that an excerpt lies whole in the block that it begins in. Its readers need no more than the overlap
for one excerpt, so a writer must not write a longer one. Neither is stored: the size of a block is
a property of the process. We map files whole, and use the size for the limit only.

    block               overlap = longest excerpt
    below 64 KiB        the whole block
    below 256 KiB       64 KiB
    from 256 KiB on     a quarter of the block, at most 1 GiB
"""

import resource
from typing import Final

from wire.header import LENGTH_MASK

BLOCK_BYTES: Final = 64 << 20
_KIB: Final = 1 << 10
_OVERLAP_MAX: Final = 1 << 30


def longest_payload(block_bytes: int, index_count: int) -> int:
    """The greatest number of bytes in an excerpt for a block of this size.

    Args:
        index_count: of the queue; a block is made large enough for four of its index pages.
    """
    block = max(block_bytes, resource.getpagesize(), 32 * index_count)
    if block < 64 * _KIB:
        overlap = block
    elif block < 256 * _KIB:
        overlap = 64 * _KIB
    else:
        overlap = min(block // 4, _OVERLAP_MAX)
    return min(overlap, LENGTH_MASK)
