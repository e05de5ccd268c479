"""Sorts received excerpts by index: known ones, ones that follow directly, and a gap.

The index is the truth. What was stored before is compared and never written again; what follows is
appended; anything else stops the queue, for a hole is never jumped over and never filled by
guessing.
"""

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import AppendExcerpts, CompareExcerpts
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import Index, format_index, is_next


class Intake:
    """Knows the next index of one queue.

    Args:
        next_index: first index that the queue does not have; 0 when it is empty.
        shift: bits of the sequence in an index, by the queue's roll cycle.
    """

    def __init__(self, cid: Cid, name: str, next_index: int, shift: int) -> None:
        self.next_index = Index(next_index)
        self._cid = cid
        self._name = name
        self._shift = shift

    def sort(
        self, batch: ExcerptBatch, ns: int
    ) -> tuple[list[CompareExcerpts | AppendExcerpts], str | None]:
        """Events for what can be stored, and what is wrong with the rest (None: nothing)."""
        events: list[CompareExcerpts | AppendExcerpts] = []
        if batch.index_first < 0:
            return events, f"an index expected, {batch.index_first} came"
        repeats = min(batch.count, max(0, self.next_index - batch.index_first))
        if repeats:
            known = batch.part(0, repeats)
            events.append(CompareExcerpts(cid=self._cid, name=self._name, batch=known, ns=ns))
        if repeats == batch.count:
            return events, None
        rest = batch.part(repeats, batch.count) if repeats else batch
        if not is_next(self.next_index, rest.index_first, self._shift):
            problem = (
                f"index {format_index(self.next_index)} or the start of a later cycle expected, "
                f"{format_index(rest.index_first)} came"
            )
            return events, problem
        assert rest.index_first >= self.next_index  # nothing stored is written again
        self.next_index = Index(rest.index_last + 1)
        events.append(AppendExcerpts(cid=self._cid, name=self._name, batch=rest, ns=ns))
        return events, None
