"""A mark above the end of a queue, as a finding of its inspection: see `read.lostmarks`."""

from contextlib import suppress
from dataclasses import replace

from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind
from cqrepl.queue.inspection.overview import QueueInfo
from cqrepl.queue.read.lostmarks import ACCEPT_LOST, lost_mark


def with_lost_mark(info: QueueInfo) -> QueueInfo:
    """The same, with a finding more where a mark is above the end, so that appends are refused.

    Where the end or the marks cannot be read, other findings tell why.
    """
    with suppress(QueueError, OSError):
        lost = lost_mark(Cycles(info.path, info.layout.roll_cycle, info.layout.epoch))
        if lost is not None:
            finding = Finding(
                kind=FindingKind.DAMAGE, path=info.path / FILE_NAME, position=None, index=lost.end,
                text=f"{lost}", part=FilePart.TABLE,
                remedy="let a copy give back what is missing, or put the lost store files back;"
                f" {ACCEPT_LOST} accepts the loss",
            )  # fmt: skip
            return replace(info, findings=(*info.findings, finding))
    return info
