"""What a power cut leaves of an excerpt: sectors that read as zeros.

What a tear is has to be narrow: another excerpt under the same index must not pass for one, and
many messages hold zeros. A disk writes whole sectors, and a header is stored behind its payload. So
the header's own sector holds what was appended, and of another sector either all or nothing: a torn
excerpt is as long as the other copy's, and where they differ, nothing but zeros is there from one
end of the sector to the other.
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
    """What each sector has of a payload, but for the one that holds its header."""
    # where the payload begins a sector, the header ends the one before
    for at in range(-position % SECTOR_BYTES, len(payload), SECTOR_BYTES):
        yield payload[at : at + SECTOR_BYTES]
