"""The differences, for a source, between a queue that its host takes in and one of its own."""

from cqrepl.queue.format.index import Index, format_index
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.passedon import CopyBehind


class CopyDisk:
    """Answers what a source asks of the disk of a queue, for a queue that its host takes in: its
    sink brings that to the disk, and knows what of it is doubtful."""

    def __init__(self, copy: SinkQueue) -> None:
        self._copy = copy

    @property
    def unproved_from(self) -> Index | None:
        """As `DiskEnd.unproved_from` of the copy."""
        return self._copy.disk.unproved_from if self._copy.is_open else None

    @property
    def unproved_when_opened(self) -> Index | None:
        """As `DiskEnd.unproved_when_opened` of the copy."""
        return self._copy.disk.unproved_when_opened if self._copy.is_open else None

    @property
    def lacks_from(self) -> Index | None:
        """As `DiskEnd.lacks_from` of the copy."""
        return self._copy.disk.lacks_from if self._copy.is_open else None

    def note(self, end: int) -> None:
        """Nothing: the sink has noted it."""

    def note_compared(self) -> None:
        """Nothing: what a host behind this one holds proves nothing of the copy."""

    def prove(self, end: int) -> None:
        """Nothing, as before."""

    def tell_mended(self, excerpts: int) -> None:
        """Nothing: no sink gives back to a copy."""


def check_return_to_copy(host_id: int, ends: tuple[int, int], copy: SinkQueue) -> None:
    """A host that a copy is passed on to has more than that: it may get there from its source.

    Args:
        ends: the next index of the copy, and of the host.

    Raises:
        CopyBehind: always.
    """
    here, there = (format_index(end) for end in ends)
    why = (
        f"host {host_id} has more than this copy (next index {there}, here {here}): it waits until"
        f" host {copy.master_id} has sent that here"
    )
    raise CopyBehind(why, path=copy.path)
