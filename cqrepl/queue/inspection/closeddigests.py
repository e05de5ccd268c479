"""Holds closed store files against the SHA-256 that was noted of them."""

from collections.abc import Mapping
from dataclasses import replace

from cqrepl.kernel.chain import has_chains
from cqrepl.queue.files.closedcycles import ClosedCycle, altered
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind
from cqrepl.queue.inspection.storescan import StoreReport
from cqrepl.queue.read.closeddigest import ClosedDigest


def with_digest(
    file: StoreReport, cycles: Cycles, noted: Mapping[Cycle, ClosedCycle]
) -> StoreReport:
    """The report with the SHA-256 of the excerpts, and a finding where another one was noted; as it
    was where none was, or the file does not hold what it held by its count. Reads the file."""
    record = noted.get(file.cycle)
    if record is None or not record.sha256 or file.count != record.excerpts or not has_chains():
        return file
    try:
        found = ClosedDigest(cycles, record).read()
    except QueueError:
        return file  # the report tells
    if found == record.sha256:
        return replace(file, sha256=found.hex())
    finding = Finding(
        kind=FindingKind.DAMAGE, path=file.path, position=None, index=file.index_first,
        text=altered(record), part=FilePart.DIRECTORY,
    )  # fmt: skip
    return replace(file, sha256=found.hex(), findings=(*file.findings, finding))
