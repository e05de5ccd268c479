"""Turns excerpts into `re` frames for one handler, a batch at a time."""

from typing import Final

from cqrepl.kernel import batch as kernel
from cqrepl.protocol.messages import ns_item, write_cid
from cqrepl.queue.format.excerptbatch import ExcerptBatch

# a round number would not do: it is written shorter, as a float
_LONGEST_NS_ITEM: Final = ns_item((1 << 60) + 1)


class Framing:
    """Frames for the handler behind `cid`; every event is preceded by its cid document."""

    def __init__(self, cid: int) -> None:
        self._cid_document = write_cid(cid)

    def frame(
        self, batch: ExcerptBatch, start: int, ns: int, out: bytearray, filled: int
    ) -> tuple[int, int]:
        """Excerpts `start`, ... of `batch` into `out` behind `filled`: how many, and where it
        ends."""
        return kernel.frame_excerpts(
            memoryview(batch.data),
            batch.offsets,
            batch.lengths,
            start,
            batch.index_first + start,
            self._cid_document,
            ns_item(ns),
            out,
            filled,
        )

    def size_max(self, payload_bytes: int) -> int:
        """Greatest size in bytes of the frame of one excerpt."""
        return kernel.frame_size(self._cid_document, _LONGEST_NS_ITEM, payload_bytes)
