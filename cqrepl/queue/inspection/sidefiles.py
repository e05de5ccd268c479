"""Reads what side files tell of a queue: of its disk, its sinks, and what closed cycles held."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cqrepl.queue.files.closedcycles import (
    CLOSED_FILE_NAME,
    PUT_BACK,
    ClosedCycle,
    ClosedCycles,
    lost_header,
)
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME, load_epochs
from cqrepl.queue.files.keptmarks import read_slots
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, SyncedMark, load_synced
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import Cycle, Sequence, index_of
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind
from cqrepl.queue.inspection.storescan import StoreReport

_NOT_WITHOUT: Final = (
    "no host streams or takes it in before that is mended: put the file back from a backup, or,"
    " where another host leads, move this copy away and let it come again"
)


def synced_of(path: Path) -> tuple[SyncedMark | None, list[Finding]]:
    """The mark up to which the queue is on the disk; a finding where it cannot be read."""
    try:
        return load_synced(path), []
    except OSError as error:
        return None, [_unreadable(path / SYNCED_FILE_NAME, error)]


def slots_of(path: Path) -> tuple[bytes, list[Finding]]:
    """The side file of the hosts' marks; a finding where it cannot be read."""
    try:
        return read_slots(path), []
    except OSError as error:
        unreadable = _unreadable(path / SLOTS_FILE_NAME, error)
    return b"", [replace(unreadable, kind=FindingKind.HINT)]


def epochs_of(path: Path) -> tuple[Epochs, list[Finding]]:
    """The epochs that a copy has promised, and the hosts that have led; a finding where the file is
    damaged, or cannot be read."""
    try:
        return load_epochs(path), []
    except OSError as error:
        file = EPOCH_FILE_NAME if error.filename is None else Path(error.filename).name
        return Epochs(), [_unreadable(path / file, error)]
    except QueueDamaged as error:
        damage = Finding(
            kind=FindingKind.DAMAGE, path=error.path or path / EPOCH_FILE_NAME,
            position=None, index=None, text=error.reason,
            part=FilePart.SIDE_FILE, remedy=_NOT_WITHOUT,
        )  # fmt: skip
        return Epochs(), [damage]


def noted_of(path: Path) -> tuple[Mapping[Cycle, ClosedCycle], list[Finding]]:
    """The records of what closed cycles held; a finding where the file cannot be read."""
    try:
        return ClosedCycles(path).load(), []
    except OSError as error:
        return {}, [_unreadable(path / CLOSED_FILE_NAME, error)]


def judged(file: StoreReport, noted: Mapping[Cycle, ClosedCycle]) -> StoreReport:
    """The report; a file that held excerpts is not one that is being made, though it looks so."""
    record = noted.get(file.cycle)
    if file.count is not None or record is None or not record.excerpts:
        return file
    findings = [
        replace(
            finding,
            kind=FindingKind.DAMAGE,
            text=lost_header(record),
            repair=None,
            remedy=PUT_BACK,
        )
        if finding.kind is FindingKind.UNFINISHED
        else finding
        for finding in file.findings
    ]
    return replace(file, findings=tuple(findings))


def lost_files(
    path: Path,
    layout: QueueLayout,
    files: tuple[StoreReport, ...],
    noted: Mapping[Cycle, ClosedCycle],
) -> list[Finding]:
    """Closed store files that are not what they were; below the first one is retention."""
    counts = {file.cycle: file.count for file in files}
    cycles = Cycles(path, layout.roll_cycle, layout.epoch)
    findings = []
    for cycle, record in sorted(noted.items()):
        if not files or not files[0].cycle <= cycle < files[-1].cycle or not record.excerpts:
            continue
        count = counts.get(cycle, 0)
        if count is None or count >= record.excerpts:
            continue  # damaged, and told of above; or as it was
        index = index_of(cycle, Sequence(count), layout.roll_cycle.shift)
        found = f"found {count}" if cycle in counts else "the store file is not there"
        text = f"expected {record.excerpts} excerpts, {found}"
        where = cycles.path_of(cycle)
        findings.append(
            Finding(
                kind=FindingKind.DAMAGE, path=where, position=None, index=index, text=text,
                remedy=PUT_BACK,
                part=FilePart.DIRECTORY,
            )
        )  # fmt: skip
    return findings


def _unreadable(file: Path, error: OSError) -> Finding:
    """A side file that cannot be read: what it tells is not known."""
    text = f"cannot be read: {error.strerror}"
    return Finding(
        kind=FindingKind.UNREADABLE, path=file, position=None, index=None, text=text,
        part=FilePart.SIDE_FILE,
    )  # fmt: skip
