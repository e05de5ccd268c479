"""Puts right what a queue's writers left undone and what damage broke beside the excerpts.

Theory of operation. `plan_repair` reads every file and says what it would store where, what stands
there now, and why; nothing is changed. `apply` stores it, under the queue's write lock.

What may be changed is what can be told again from the excerpts: slots and places of index pages,
`lastIndex`, write position and sequence word, the listing, end-of-file marks of cycles that are
over, a header that a dead writer left not complete, a dead writer's lock. No byte of an excerpt is
ever touched, nor a header on the way to one. Where such a header is damaged there is no repair in
place: the excerpts behind are lost to readers, and must come from a copy of the queue. Such a file
is left as it is, so that nothing is hidden that might be saved.

Each word is exchanged only if it still is what the plan saw. If anything has changed since, nothing
at all is stored.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from cqrepl.queue.files import atomics
from cqrepl.queue.files.filebytes import LONG_BYTES, FileBytes
from cqrepl.queue.files.filesync import failures_noted
from cqrepl.queue.files.locks import UNLOCKED, WRITE_LOCK_KEY, WordLock
from cqrepl.queue.files.mapping import Mapping, close_file
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.errors import NotAQueue, QueueError
from cqrepl.queue.format.index import format_index
from cqrepl.queue.inspection.findings import UNKNOWN_CONTENT, Finding, FindingKind, Repair
from cqrepl.queue.inspection.overview import QueueInfo, inspect_queue, listing_findings
from cqrepl.queue.inspection.pagescan import long_bytes
from cqrepl.queue.inspection.tablescan import scan_table
from cqrepl.surroundings import surroundings
from wire.header import HEADER_BYTES

_LOCK_TIMEOUT_S: Final = 5.0
_COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """The repairs that `apply` would make, in this order, and the findings that cannot be repaired
    in place."""

    path: Path
    repairs: tuple[Repair, ...]
    remaining: tuple[Finding, ...]

    def advice(self) -> Iterator[str]:
        """A sentence for each damage that remains: what readers will get, and what helps."""
        for finding in self.remaining:
            if finding.kind is FindingKind.DAMAGE:
                upto = "" if finding.index is None else f" from {format_index(finding.index)} on"
                remedy = finding.remedy or f"take the excerpts{upto} from a copy of the queue"
                yield f"{finding}: {remedy}"
            elif finding.kind in UNKNOWN_CONTENT:
                yield f"{finding}: it was not looked at"


def plan_repair(path: Path | str) -> RepairPlan:
    """Reads the whole queue, and says what can be put right. Changes nothing.

    Raises:
        QueueError: as `inspect_queue`.
    """
    path = Path(path)
    info = inspect_queue(path, deep=True)
    findings = _with_renamed(info)
    closed = {
        (finding.path, finding.position)
        for finding in findings
        if finding.kind is FindingKind.END and finding.repair is not None
    }
    repairs = []
    remaining = []
    for finding in findings:
        is_superseded = (
            finding.kind is FindingKind.UNFINISHED and (finding.path, finding.position) in closed
        )
        if finding.repair is None or finding.repair.position % HEADER_BYTES:
            # words of old files, whose headers are not aligned, cannot be exchanged in one access
            remaining.append(finding)
        elif not is_superseded:  # the end-of-file mark takes the place of that header
            repairs.append(finding.repair)
    return RepairPlan(path=path, repairs=tuple(repairs), remaining=tuple(remaining))


def _with_renamed(info: QueueInfo) -> list[Finding]:
    """The findings; those on the listing as it will be once unfinished files are put aside."""
    gone = {
        finding.path
        for finding in info.findings
        if finding.repair is not None and finding.repair.renamed_to is not None
    }
    if not gone or not info.has_table:
        return list(info.findings)
    cycles = [file.cycle for file in info.files if file.path not in gone]
    kept = [finding for finding in info.findings if finding.kind is not FindingKind.LISTING]
    return kept + listing_findings(scan_table(info.path / FILE_NAME), cycles)


def apply(plan: RepairPlan, *, backup: Path | None = None) -> int:
    """Carries out a plan, and answers how many repairs were made.

    Args:
        backup: a new directory that takes copies of the files to be changed, as they were.

    Raises:
        NotAQueue: there is no table store, hence no lock to keep writers out by.
        QueueDamaged: the table store is damaged.
        QueueLocked: another process keeps the write lock.
        QueueError: the queue has changed since it was planned; nothing was stored.
        AtomicsMissing: a library is missing that writing needs.
        OSError: the backup exists already, or there is no space.
    """
    if not plan.repairs:
        return 0
    atomics.require()
    _check_table(plan.path)
    table = TableStore(plan.path / FILE_NAME, writable=True)
    try:
        with WordLock(table, WRITE_LOCK_KEY).held(_LOCK_TIMEOUT_S):
            # taking the lock from a dead process and giving it back is that repair
            repairs = [repair for repair in plan.repairs if not _frees_lock(repair)]
            for repair in repairs:
                _check(repair)
            if backup is not None:
                _copy({repair.path for repair in repairs}, backup)
            for file, ours in groupby(repairs, key=lambda repair: repair.path):
                _apply(file, list(ours))
    finally:
        table.close()
    return len(plan.repairs)


def _check_table(path: Path) -> None:
    """Refuses a queue of which the write lock cannot be found: keys are read up to the damage."""
    try:
        report = scan_table(path / FILE_NAME)
    except FileNotFoundError as error:
        raise NotAQueue(f"expected {FILE_NAME}, whose lock keeps writers out", path=path) from error
    if report.error is not None:
        raise report.error


def _frees_lock(repair: Repair) -> bool:
    return repair.path.name == FILE_NAME and repair.written == long_bytes(UNLOCKED)


def _check(repair: Repair) -> None:
    with FileBytes(repair.path) as file:
        length = len(repair.found)
        found = file.read(repair.position, length).ljust(length, b"\0")
    if found != repair.found:
        raise QueueError(
            f"expected {repair.found.hex()} as when it was planned, found {found.hex()}",
            path=repair.path,
            position=repair.position,
        )


def _apply(path: Path, repairs: list[Repair]) -> None:
    """Makes the changes of one file; a new name comes last."""
    stores = [repair for repair in repairs if repair.renamed_to is None]
    if stores:
        mapping = Mapping(path, writable=True)
        try:
            for repair in stores:
                _store(mapping, repair)
            with failures_noted(path.parent):
                mapping.sync(0, mapping.length)
        finally:
            mapping.close()
    for repair in repairs:
        if repair.renamed_to is not None:
            surroundings().rename(path, path.with_name(repair.renamed_to))


def _store(mapping: Mapping, repair: Repair) -> None:
    """Exchanges the words of one repair, each in one access."""
    start, end = repair.position, repair.position + len(repair.written)
    assert start % HEADER_BYTES == end % HEADER_BYTES == 0
    assert len(repair.found) == len(repair.written)
    mapping.reserve(start, end)  # a store into a hole must not meet a full disk
    is_long = start % LONG_BYTES == end % LONG_BYTES == 0
    width = LONG_BYTES if is_long else HEADER_BYTES
    exchange = mapping.words.exchange_8 if is_long else mapping.words.exchange_4
    for at in range(0, len(repair.written), width):
        was = int.from_bytes(repair.found[at : at + width], "little")
        will = int.from_bytes(repair.written[at : at + width], "little")
        if was != will and not exchange(start + at, was, will):
            raise QueueError(
                f"expected {was:#x} as when it was planned, found another word",
                path=mapping.path,
                position=start + at,
            )


def _copy(paths: set[Path], backup: Path) -> None:
    """Copies files into a new directory; holes stay holes."""
    backup.mkdir(parents=True)
    for path in sorted(paths):
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = os.open(backup / path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                _copy_bytes(source, target)
            finally:
                os.close(target)
        finally:
            close_file(source)


def _copy_bytes(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for at in range(0, size, _COPY_BYTES):
        data = os.pread(source, _COPY_BYTES, at)
        if any(data):
            surroundings().write(target, data, at)
    os.fsync(target)
