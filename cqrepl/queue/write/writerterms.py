"""The terms that all store files of a queue are written by: how far, how durably, after what."""

from dataclasses import dataclass
from pathlib import Path

from cqrepl.queue.files.closedcycles import ClosedCycles
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.write.groupcommit import GroupCommit
from cqrepl.queue.write.pretoucher import PageToucher


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterTerms:
    """The terms that all store files of a queue are written by.

    Args:
        sequence_end: the first sequence that no index can name any more.
        commits: makes durable what is written; None leaves that to the kernel.
        is_restarted: marks may be set back that lie ahead of the documents.
        synced: the last excerpt that was recorded as durable.
        closed: what closed store files held.
        toucher: brings pages into memory ahead of the writer.
    """

    sequence_end: int
    commits: GroupCommit | None
    is_restarted: bool
    synced: int
    closed: ClosedCycles
    toucher: PageToucher | None = None

    def capacity(self, index_count: int, index_spacing: int) -> int:
        """The greatest number of excerpts in a store file with these indexing numbers."""
        return min(self.sequence_end, index_count * index_count * index_spacing)

    def may_have_lost(self, cycle: int) -> bool:
        """True when a power cut may have taken anything of this cycle, its header too."""
        return self.is_restarted and self.synced // self.sequence_end < cycle

    def sequence_synced(self, cycle: int) -> int:
        """The last sequence of a cycle that was recorded as durable; -1 for none."""
        return self.synced % self.sequence_end if self.synced // self.sequence_end == cycle else -1


def check_room(sequence: int, count: int, sequence_end: int, path: Path) -> None:
    """Does nothing when `count` more excerpts fit behind the `sequence` that are there.

    Raises:
        QueueError: they do not.
    """
    if sequence + count > sequence_end:
        raise QueueError(
            f"expected at most {sequence_end} excerpts in a cycle, there are {sequence} and"
            f" {count} more",
            path=path,
        )
