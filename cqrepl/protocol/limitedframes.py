"""Frames of a batch where no more than a number of bytes may be sent."""

from cqrepl.protocol import Connection
from cqrepl.protocol.cid import Cid
from cqrepl.queue.format.excerptbatch import ExcerptBatch


def frame_limited(
    connection: Connection,
    cid: Cid,
    batch: ExcerptBatch,
    start: int,
    ns: int,
    out: bytearray,
    filled: int,
    end_max: int,
) -> tuple[ExcerptBatch | None, int]:
    """Frames as `Connection.frame_excerpts` does, up to the offset `end_max` of `out`. If no
    excerpt ends before that offset, one is framed that ends behind it."""
    assert filled < end_max
    if end_max >= len(out):
        return connection.frame_excerpts(cid, batch, start, ns, out, filled)
    single = connection.frame_size(cid, batch.lengths[start])
    for room in (end_max - filled, min(single, len(out) - filled)):
        piece = bytearray(room)
        framed, end = connection.frame_excerpts(cid, batch, start, ns, piece, 0)
        if framed is not None:
            out[filled : filled + end] = piece[:end]
            return framed, filled + end
    return None, filled
