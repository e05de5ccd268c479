"""The excerpts of our own logs of acknowledgements and of appends: 40 bytes each.

0   last index acknowledged             int64, little-endian, as all five
8   nano time at which it was sent      monotonic clock of the source
16  nano time of the acknowledgement    the same clock: their difference is the round trip
24  excerpts that it acknowledged
32  payload bytes that it acknowledged

A sink's log of appends has what it appended in place of what was acknowledged, and at 16 the time
on its own clock just after readers could see it. One batch holds what was there together: it may
have been sent in several, and then the time at 8 is that of the last.

Whoever replicates writes them, whoever reads the log as a queue needs their layout too: hence it
is here. The monotonic clock starts anew with the machine: times never fall within one run of it.
"""

import struct
from typing import Final

ENTRY: Final = struct.Struct("<5q")
_NOTED: Final = 2  # place of the time of the acknowledgement


def ack_time(payload: memoryview) -> int | None:
    """Nano time of an acknowledgement, for `seek_time`; None when it is no entry of the log."""
    if len(payload) != ENTRY.size:
        return None
    noted_ns: int = ENTRY.unpack(payload)[_NOTED]
    return noted_ns
