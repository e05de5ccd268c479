"""Tells excerpts that a power cut has torn: sectors of them read as zeros.

The rule for a tear has to be narrow: another excerpt under the same index must not pass for a torn
one, and many messages hold zeros. A disk writes whole sectors, and a header is stored after its
payload. So the header's own sector holds what was appended, and another sector holds either all or
nothing of it. A torn excerpt is as long as the other copy's; where the two differ, nothing but
zeros is there from one end of the sector to the other.
"""

from collections.abc import Iterator
from typing import Final

from cqrepl.queue.format.excerptbatch import ExcerptBatch

SECTOR_BYTES: Final = 512


def first_doubtful(batch: ExcerptBatch, start: int) -> int:
    """The place of the first excerpt from place `start` on that a power cut may have torn, by its
    own bytes; the number of excerpts where there is none.

    A tear is a sector of zeros: where no sector but the header's is, there is none.
    """
    for place in range(start, len(batch)):
        payload, position = batch.payload(place), batch.offsets[place]
        if any(not any(part) for part in _sectors(payload, position)):
            return place
    return len(batch)


def is_torn(stored: memoryview, received: bytes, position: int) -> bool:
    """True when a power cut can have made the one of the other.

    Args:
        stored: the payload in the store file.
        received: the other copy's.
        position: of the payload in the store file.
    """
    if len(stored) != len(received):
        return False
    first = -position % SECTOR_BYTES
    theirs = _sectors(memoryview(received), position)
    return stored[:first] == received[:first] and all(
        mine == other or not any(mine)
        for mine, other in zip(_sectors(stored, position), theirs, strict=True)
    )


def _sectors(payload: memoryview, position: int) -> Iterator[memoryview]:
    """The part of a payload in each sector, but for the sector that holds its header."""
    # where the payload begins a sector, the header ends the one before
    for at in range(-position % SECTOR_BYTES, len(payload), SECTOR_BYTES):
        yield payload[at : at + SECTOR_BYTES]
