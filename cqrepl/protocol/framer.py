"""Turns excerpts into documents for one handler: runs where the peer takes them, else frames."""

from typing import Final

from cqrepl.kernel import batch as kernel
from cqrepl.protocol.messages import ns_item, write_cid
from cqrepl.protocol.messages.runs import (
    RUN_EXCERPTS_MAX,
    RUN_EXCERPTS_MIN,
    RUN_HEAD_BYTES,
    write_run_head,
)
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from wire.header import HEADER_BYTES

# a round number would not do: it is written shorter, as a float
_LONGEST_NS_ITEM: Final = ns_item((1 << 60) + 1)
RUN_BYTES_SENT: Final = 80 * 1024  # a peer takes a run once all of it has come


class Framing:
    """Documents for the handler behind `cid`; each is preceded by its cid document.

    Args:
        has_runs: the peer takes runs.
    """

    def __init__(self, cid: int, *, has_runs: bool = False) -> None:
        self._cid_document = write_cid(cid)
        self.has_runs = has_runs

    def frame(
        self, batch: ExcerptBatch, start: int, ns: int, out: bytearray, filled: int
    ) -> tuple[int, int]:
        """Excerpts `start`, ... of `batch` into `out` behind `filled`: how many, and where it
        ends. With runs it may be fewer than have room."""
        if not self.has_runs or batch.count - start < RUN_EXCERPTS_MIN:
            return self._frames(batch, start, ns, out, filled)
        head = len(self._cid_document) + RUN_HEAD_BYTES
        count = kernel.run_length(
            batch.data,
            batch.offsets,
            batch.lengths,
            start,
            count_max=RUN_EXCERPTS_MAX,
            bytes_max=min(RUN_BYTES_SENT, len(out) - filled - head),
        )
        if count < RUN_EXCERPTS_MIN:
            return self._frames(batch.part(start, start + 1), 0, ns, out, filled)
        return count, self._run(batch, start, count, ns, out, filled)

    def size_max(self, payload_bytes: int) -> int:
        """Greatest size in bytes of the frame of one excerpt."""
        return kernel.frame_size(self._cid_document, _LONGEST_NS_ITEM, payload_bytes)

    def _frames(
        self, batch: ExcerptBatch, start: int, ns: int, out: bytearray, filled: int
    ) -> tuple[int, int]:
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

    def _run(
        self, batch: ExcerptBatch, start: int, count: int, ns: int, out: bytearray, filled: int
    ) -> int:
        last = start + count - 1
        run = memoryview(batch.data)[
            batch.offsets[start] - HEADER_BYTES : batch.offsets[last] + batch.lengths[last]
        ]
        head = self._cid_document + write_run_head(batch.index_first + start, count, ns, len(run))
        end = filled + len(head) + len(run)
        assert end <= len(out)
        out[filled : filled + len(head)] = head
        out[filled + len(head) : end] = run
        return end
