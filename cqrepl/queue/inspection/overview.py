"""Inspects a queue directory: tells what it holds and what is wrong, without opening the queue.

Theory of operation. Everything is read by `pread`, nothing is locked or changed, and no damage is
an exception: it is a finding beside all that could be read. An error is raised only where not even
the roll cycle can be told. A quick inspection takes count and end of each store file from what
writers recorded; a deep one reads every byte of every excerpt. Both may run while writers write.
"""

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cqrepl.queue.files.chroniclemarks import (
    ACKNOWLEDGED_KEY,
    BEGIN_KEY,
    COPY_OF_KEY,
    FOLLOWER_KEY,
    FOLLOWS,
    SENT_KEY,
    SYNCED_KEY,
)
from cqrepl.queue.files.cycles import Cycles, foreign_name, store_names
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.keptmarks import mark_key, marks_of
from cqrepl.queue.files.listing import CYCLE_NONE_HIGHEST, CYCLE_NONE_LOWEST
from cqrepl.queue.files.locks import (
    APPEND_LOCK_KEY,
    UNLOCKED,
    WRITE_LOCK_KEY,
    holder_of,
    is_alive,
    start_of,
)
from cqrepl.queue.files.markslots import FORGOTTEN, HOSTS, MarkLevel
from cqrepl.queue.files.queuedirectory import guess_layout
from cqrepl.queue.files.storefile import END_MARK, SUFFIX
from cqrepl.queue.files.syncedmark import SyncedMark
from cqrepl.queue.files.tablestore import FILE_NAME, FILE_NAME_V4
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.errors import NotAQueue, QueueError, cannot_open
from cqrepl.queue.format.index import NEXT_OF_EMPTY, SEQUENCE_FIRST, Cycle, Index, index_of
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.inspection.closeddigests import with_digest
from cqrepl.queue.inspection.documentwalk import End
from cqrepl.queue.inspection.findings import UNKNOWN_CONTENT, FilePart, Finding, FindingKind, Repair
from cqrepl.queue.inspection.pagescan import long_bytes
from cqrepl.queue.inspection.sidefiles import (
    epochs_of,
    judged,
    lost_files,
    noted_of,
    slots_of,
    synced_of,
)
from cqrepl.queue.inspection.storescan import StoreReport, glance_store, scan_store
from cqrepl.queue.inspection.tablescan import TableKey, TableReport, scan_table
from wire.header import END_OF_FILE, is_ready

_TAILER_PREFIX: Final = "index."
_READER_PREFIX: Final = "cqrepl.reader."
_VERSION_SUFFIX: Final = ".version"
_LOCK_SUFFIX: Final = ".lock"
_START_SUFFIX: Final = ".lock.start"  # when the process started that holds the lock; ours
_LOWEST_KEY: Final = "listing.lowestCycle"
_HIGHEST_KEY: Final = "listing.highestCycle"
_CHANGES_KEY: Final = "listing.modCount"
_KNOWN_KEYS: Final = frozenset(
    key.lower()
    for key in (_LOWEST_KEY, _HIGHEST_KEY, _CHANGES_KEY, SENT_KEY, ACKNOWLEDGED_KEY, SYNCED_KEY)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """A lock word. `holder` is the process id in it, None when the lock is free.

    The word does not say since when: `held_s_max` is the age of the process that holds it, None
    where that is not known.
    """

    name: str
    holder: int | None
    is_alive: bool
    held_s_max: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TailerState:
    """A named tailer or a registered reader.

    `next_index` is the index it will read next, 0 for the start; `behind_cycles` how many cycles
    with excerpts come after that one.
    """

    name: str
    next_index: int
    behind_cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """A sink host: the greatest index sent to it, and acknowledged, synced and applied by it; -1
    for none."""

    host_id: int
    sent: int
    acknowledged: int
    synced: int = FORGOTTEN
    applied: int = FORGOTTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingState:
    """The listing as the table store has it; a number is None where the table store lacks it."""

    lowest_cycle: int | None
    highest_cycle: int | None
    changes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue directory. Files are in the order of their cycles.

    `layout` has the indexing numbers of the newest store file. `marks` are the greatest indexes
    sent, acknowledged and synced, -1 for none, `hosts` those of each sink host that has any;
    `is_copy` says that it was taken in from a source, and `copy_of` from which host, if known;
    `other_keys` all else that the table store holds, and `keys_end` where its keys end, in bytes.
    `synced` is up to where replication has brought the queue to the disk; None where it has not.
    `begin` is where a quarantine begins: what its first file holds before stayed in the queue.
    `epochs` are what this copy has promised, and who has led; none where that cannot be read.
    """

    path: Path
    layout: QueueLayout
    has_table: bool
    is_deep: bool
    files: tuple[StoreReport, ...]
    listing: ListingState
    locks: tuple[LockState, ...]
    tailers: tuple[TailerState, ...]
    readers: tuple[TailerState, ...]
    marks: dict[str, int]
    hosts: tuple[HostState, ...]
    is_copy: bool
    copy_of: int | None
    other_keys: dict[str, int]
    keys_end: int
    free_bytes: int
    synced: SyncedMark | None
    epochs: Epochs
    findings: tuple[Finding, ...]
    begin: Index = NEXT_OF_EMPTY

    @property
    def unproved_from(self) -> Index | None:
        """Behind this a power cut may have torn excerpts, and no copy was compared yet; None where
        nothing is known of one."""
        if self.synced is None or self.last_index is None:
            return None
        doubtful = self.synced.doubtful_before(self.last_index + 1)
        return Index(doubtful.start) if doubtful else None

    @property
    def count(self) -> int:
        """Number of excerpts that can be walked to."""
        return sum(file.count or 0 for file in self.files) - self.stayed

    @property
    def stayed(self) -> int:
        """The number of excerpts in its files that lie before `begin`."""
        return sum(
            min(file.count, max(0, self.begin - file.index_first))
            for file in self.files
            if file.count
        )

    @property
    def first_index(self) -> Index | None:
        """Index of the first excerpt; None when there is none."""
        for file in self.files:
            if file.index_last is not None and file.index_last >= self.begin:
                return max(self.begin, file.index_first)
        return None

    @property
    def last_index(self) -> Index | None:
        """Index of the last excerpt; None when there is none."""
        last = next((file.index_last for file in reversed(self.files) if file.count), None)
        return None if last is None or last < self.begin else last

    @property
    def is_damaged(self) -> bool:
        """True when something is worse than a mark that lags."""
        return any(finding.kind is FindingKind.DAMAGE for finding in self.findings)

    @property
    def is_unreadable(self) -> bool:
        """True when a file may not be read, or cannot be by this program."""
        return any(finding.kind in UNKNOWN_CONTENT for finding in self.findings)


def inspect_queue(path: Path | str, *, deep: bool = False) -> QueueInfo:
    """Looks at a queue directory.

    Args:
        deep: read all of every file, rather than what writers recorded and the end.

    Raises:
        NotAQueue: nothing there, no queue, or one of a kind that cannot be read.
        QueueDamaged: a table store that does not tell the roll cycle.
    """
    path = Path(path)
    names = store_names(path)
    if (path / FILE_NAME_V4).exists() and not (path / FILE_NAME).exists():
        raise NotAQueue(f"expected a queue of version 5, found {FILE_NAME_V4}", path=path)
    table = _table(path)
    layout = _layout(path, names, table)
    findings = [_missing_table(path, layout)] if table is None else list(table.findings)
    cycles, misnamed = _cycles(path, names, layout)
    findings += misnamed
    reports = [_report(path / name, cycle, layout, deep) for cycle, name in sorted(cycles.items())]
    noted, unnoted = noted_of(path)
    findings += unnoted
    files = tuple(judged(report, noted) for report in reports if report is not None)
    if deep and any(record.sha256 for record in noted.values()):
        by_index = Cycles(path, layout.roll_cycle, layout.epoch)
        files = tuple(with_digest(file, by_index, noted) for file in files)
    for file in files:
        findings += file.findings
    findings += _missing_ends(files)
    findings += lost_files(path, layout, files, noted)
    if table is not None and table.layout is not None:
        findings += listing_findings(table, sorted(cycles))
        findings += _lock_findings(table)
    slots, unreadable = slots_of(path)
    findings += unreadable
    synced, unreadable = synced_of(path)
    findings += unreadable
    epochs, unusable = epochs_of(path)
    findings += unusable
    numbered = next((file for file in reversed(files) if file.index_count is not None), None)
    if numbered is not None:
        layout = _with_numbers(layout, numbered)
    return QueueInfo(
        path=path,
        layout=layout,
        has_table=table is not None,
        is_deep=deep,
        files=files,
        listing=_listing(table),
        locks=_locks(table),
        tailers=_tailers(table, files, layout, _TAILER_PREFIX),
        readers=_tailers(table, files, layout, _READER_PREFIX),
        marks=_marks(table),
        hosts=_hosts(table, slots),
        is_copy=_key(table, FOLLOWER_KEY) == FOLLOWS,
        copy_of=_copy_of(table),
        other_keys=_other_keys(table),
        keys_end=0 if table is None else table.keys_end,
        free_bytes=shutil.disk_usage(path).free,
        synced=synced,
        epochs=epochs,
        findings=tuple(findings),
        begin=Index(max(_key(table, BEGIN_KEY) or 0, NEXT_OF_EMPTY)),
    )


def _table(path: Path) -> TableReport | None:
    try:
        return scan_table(path / FILE_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot_open(error, path / FILE_NAME) from error


def _missing_table(path: Path, layout: QueueLayout) -> Finding:
    """The finding for a queue that has store files alone: what follows from that."""
    name = layout.roll_cycle.name
    return Finding(
        kind=FindingKind.HINT, path=path / FILE_NAME, position=None, index=None,
        part=FilePart.TABLE,
        text="there is no table store: all excerpts can be read, but nothing can be appended or"
        " repaired, and positions of named tailers and marks are lost; the epoch is not known and"
        " taken for 0",
        remedy="put it back from a backup, or, with the epoch that the queue was made with, make a"
        f" new one: cqrepl init QUEUE --roll-cycle {name} --epoch MS",
    )  # fmt: skip


def _layout(path: Path, names: list[str], table: TableReport | None) -> QueueLayout:
    if table is not None:
        if table.layout is None:
            assert table.error is not None
            raise table.error
        return table.layout
    return guess_layout(path, names)


def _with_numbers(layout: QueueLayout, file: StoreReport) -> QueueLayout:
    assert file.index_count is not None
    assert file.index_spacing is not None
    return replace(layout, index_count=file.index_count, index_spacing=file.index_spacing)


def _cycles(
    path: Path, names: list[str], layout: QueueLayout
) -> tuple[dict[Cycle, str], list[Finding]]:
    cycles: dict[Cycle, str] = {}
    findings = []
    for name in names:
        cycle = layout.roll_cycle.cycle_of_name(name.removesuffix(SUFFIX), layout.epoch)
        if cycle is not None:
            cycles[cycle] = name
            continue
        text = foreign_name(name, layout.roll_cycle.name, layout.epoch)
        findings.append(
            Finding(
                kind=FindingKind.UNSUPPORTED, path=path / name, position=None, index=None,
                text=text, part=FilePart.DIRECTORY,
            )
        )  # fmt: skip
    return cycles, findings


def _report(path: Path, cycle: Cycle, layout: QueueLayout, deep: bool) -> StoreReport | None:
    """The report of one store file; None when it has gone."""
    read = scan_store if deep else glance_store
    index_first = index_of(cycle, SEQUENCE_FIRST, layout.roll_cycle.shift)
    try:
        return read(path, cycle, index_first)
    except FileNotFoundError:
        return None
    except NotAQueue as error:
        kind, text, position = FindingKind.UNSUPPORTED, error.reason, error.position or 0
    except QueueError as error:
        kind, text, position = FindingKind.DAMAGE, error.reason, error.position or 0
    except OSError as error:
        kind, position = FindingKind.UNREADABLE, None
        text = f"cannot be opened: {error.strerror}"
    finding = Finding(
        kind=kind, path=path, position=position, index=index_first, text=text,
        part=FilePart.HEADER,
    )  # fmt: skip
    return StoreReport(
        path=path, cycle=cycle, size_bytes=0, allocated_bytes=0, index_first=index_first,
        is_whole=False, findings=(finding,),
    )  # fmt: skip


def _missing_ends(files: tuple[StoreReport, ...]) -> list[Finding]:
    """The cycles below one with excerpts that are not closed: every reader waits there."""
    findings = []
    with_excerpts = [file.cycle for file in files if file.count]
    for file in files:
        is_last = not with_excerpts or file.cycle >= with_excerpts[-1]
        if is_last or file.count is None or file.end in (End.CLOSED, End.BROKEN):
            continue
        if _has_moved(file):
            continue
        text = "the cycle is not closed, but a later one has excerpts: readers wait here"
        repair = None
        if file.is_whole and file.bytes_at_end:
            repair = Repair(
                path=file.path, position=file.position_end, found=file.bytes_at_end,
                written=END_MARK, reason=text,
            )  # fmt: skip
        findings.append(
            Finding(
                kind=FindingKind.END, path=file.path, position=file.position_end,
                index=file.index_first + file.count, text=text, repair=repair,
            )
        )  # fmt: skip
    return findings


def _has_moved(file: StoreReport) -> bool:
    """True when something has come at the end since the file was read."""
    try:
        with FileBytes(file.path) as there:
            word = there.word(file.position_end)
    except FileNotFoundError:
        return True
    return word == END_OF_FILE or is_ready(word)


def listing_findings(table: TableReport, cycles: list[Cycle]) -> list[Finding]:
    """The findings where the table store disagrees with the cycles that have files."""
    findings = []
    lowest = cycles[0] if cycles else CYCLE_NONE_LOWEST
    highest = cycles[-1] if cycles else CYCLE_NONE_HIGHEST
    for name, expected in ((_LOWEST_KEY, lowest), (_HIGHEST_KEY, highest)):
        key = table.keys.get(name.lower())
        if key is None or key.value == expected:
            continue
        text = f"{name} is {key.value}, the directory has {expected}"
        findings.append(_key_finding(FindingKind.LISTING, table, key, text, expected))
    return findings


def _lock_findings(table: TableReport) -> list[Finding]:
    """Locks of dead processes; an append lock may be meant to stay, so only a person frees it."""
    findings = []
    for state in _locks(table):
        if state.holder is None or state.is_alive:
            continue
        key = table.keys[state.name.lower()]
        text = f"{state.name} is held by process {state.holder}, which is dead"
        value = UNLOCKED if state.name == WRITE_LOCK_KEY else None
        findings.append(_key_finding(FindingKind.LOCK, table, key, text, value))
    return findings


def _key_finding(
    kind: FindingKind, table: TableReport, key: TableKey, text: str, value: int | None
) -> Finding:
    """A finding about a key, and the repair that stores this value there; None: no repair."""
    repair = None
    if value is not None:
        repair = Repair(
            path=table.path, position=key.position, found=long_bytes(key.value),
            written=long_bytes(value), reason=text,
        )  # fmt: skip
    return Finding(
        kind=kind, path=table.path, position=key.position, index=None, text=text, repair=repair,
        part=FilePart.TABLE,
    )  # fmt: skip


def _listing(table: TableReport | None) -> ListingState:
    value = (lambda _: None) if table is None else table.value
    return ListingState(
        lowest_cycle=value(_LOWEST_KEY),
        highest_cycle=value(_HIGHEST_KEY),
        changes=value(_CHANGES_KEY),
    )


def _locks(table: TableReport | None) -> tuple[LockState, ...]:
    """The write lock, the append lock, and all else that is named as a lock."""
    keys = {} if table is None else table.keys
    names = [key for key in (WRITE_LOCK_KEY, APPEND_LOCK_KEY) if key.lower() in keys]
    others = (key for key in keys.values() if key.name.lower().endswith(_LOCK_SUFFIX))
    known = {name.lower() for name in names}
    names += [key.name for key in others if key.name.lower() not in known]
    return tuple(_lock(name, keys[name.lower()].value) for name in names)


def _lock(name: str, value: int) -> LockState:
    holder = holder_of(value)
    if holder is None:
        return LockState(name=name, holder=None, is_alive=False, held_s_max=None)
    return LockState(name=name, holder=holder, is_alive=is_alive(holder), held_s_max=_age_s(holder))


def _age_s(pid: int) -> float | None:
    """The time in seconds for which a process has been running; None where the system does not
    tell."""
    start = start_of(pid)
    if start is None:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")


def _tailers(
    table: TableReport | None, files: tuple[StoreReport, ...], layout: QueueLayout, prefix: str
) -> tuple[TailerState, ...]:
    """The readers with names that begin with `prefix`; without those that have unregistered."""
    found = []
    for key in () if table is None else table.keys.values():
        folded = key.name.lower()
        is_companion = folded.endswith((_VERSION_SUFFIX, _LOCK_SUFFIX, _START_SUFFIX))
        if not folded.startswith(prefix) or is_companion or key.value < 0:
            continue
        cycle = key.value >> layout.roll_cycle.shift
        behind = [file for file in files if file.count and file.cycle > cycle]
        found.append(
            TailerState(
                name=key.name[len(prefix) :],
                next_index=key.value,
                behind_cycles=len(behind),
            )
        )
    return tuple(found)


def _marks(table: TableReport | None) -> dict[str, int]:
    if table is None:
        return {}
    values = ((key, table.value(key)) for key in (SENT_KEY, ACKNOWLEDGED_KEY, SYNCED_KEY))
    return {key: value for key, value in values if value is not None}


def _key(table: TableReport | None, name: str) -> int | None:
    return None if table is None else table.value(name)


def _copy_of(table: TableReport | None) -> int | None:
    host_id = _key(table, COPY_OF_KEY)
    return host_id if host_id in HOSTS and _key(table, FOLLOWER_KEY) == FOLLOWS else None


def _hosts(table: TableReport | None, slots: bytes) -> tuple[HostState, ...]:
    keys = {} if table is None else {folded: key.value for folded, key in table.keys.items()}
    return tuple(
        HostState(
            host_id=host_id,
            sent=marks.get(MarkLevel.SENT, FORGOTTEN),
            acknowledged=marks.get(MarkLevel.ACKNOWLEDGED, FORGOTTEN) or FORGOTTEN,
            synced=marks.get(MarkLevel.SYNCED, FORGOTTEN),
            applied=marks.get(MarkLevel.APPLIED, FORGOTTEN),
        )
        for host_id, marks in marks_of(keys, slots).items()
    )


def _other_keys(table: TableReport | None) -> dict[str, int]:
    return {
        key.name: key.value
        for folded, key in ({} if table is None else table.keys).items()
        if folded not in _KNOWN_KEYS
        and mark_key(folded) is None
        and not folded.startswith((_TAILER_PREFIX, _READER_PREFIX))
        and not folded.endswith((_LOCK_SUFFIX, _START_SUFFIX))
    }
