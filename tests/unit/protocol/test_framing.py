"""Frames of excerpts."""

import pytest

from cqrepl.protocol.framer import Framing
from cqrepl.queue.format.excerptbatch import ExcerptBatch


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65535, 65536, 300_000])
@pytest.mark.parametrize("ns", [0, 1 << 60, 123_456_789_012_345, -(1 << 63) + 1])
def test_size_max_is_room_enough_for_one_excerpt(length: int, ns: int) -> None:
    """An excerpt longer than the usual buffer gets a buffer of just that size: a fault was found
    there."""
    framing = Framing(1_700_000_000_000_001)
    out = bytearray(framing.size_max(length))
    count, end = framing.frame(ExcerptBatch.of(5, [bytes(length)]), 0, ns, out, 0)
    assert count == 1
    assert end <= len(out)
