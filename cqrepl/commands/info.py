"""Prints the findings of an inspection, as text for people and as JSON."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.console.units import format_bytes, plural
from cqrepl.queue import format_index
from cqrepl.queue.files.keptmarks import KEYS_END_JAVA, KEYS_END_WARNED
from cqrepl.queue.format.epochs import Epoch, Epochs, shown
from cqrepl.queue.inspection.findings import Finding
from cqrepl.queue.inspection.markabove import with_lost_mark
from cqrepl.queue.inspection.overview import (
    HostState,
    LockState,
    QueueInfo,
    TailerState,
    inspect_queue,
)
from cqrepl.queue.inspection.storescan import StoreReport
from wire.text.terminal import one_line

_FILES_SHOWN_MAX = 20


def print_info(path: Path, *, deep: bool, as_json: bool) -> int:
    """Inspects a queue and prints what was found; the exit code."""
    found = with_lost_mark(inspect_queue(path, deep=deep))
    output.write_text(info_json(found) if as_json else info_text(found))
    output.flush()
    if found.is_damaged:
        return exitcodes.DAMAGED
    return exitcodes.USAGE if found.is_unreadable else exitcodes.OK


def info_text(info: QueueInfo) -> str:
    """Several lines, each with its end."""
    return "".join(one_line(line) + "\n" for line in _lines(info))


def _lines(info: QueueInfo) -> Iterator[str]:
    yield f"{info.path}"
    yield f"roll cycle  {info.layout}" + ("" if info.has_table else "  (no table store)")
    yield f"excerpts    {info.count:,}{_range(info.first_index, info.last_index)}"
    if info.stayed:
        stayed = plural(info.stayed, "excerpt")
        yield f"begins      at {format_index(info.begin)}: {stayed} before it stayed in the queue"
    size = sum(file.allocated_bytes for file in info.files)
    free = format_bytes(info.free_bytes)
    yield f"disk        {format_bytes(size)} in {plural(len(info.files), 'file')}, {free} free"
    hidden = max(0, len(info.files) - _FILES_SHOWN_MAX)
    if hidden:
        yield f"            {plural(hidden, 'older file')} not listed here, all are with --json"
    if info.is_copy:
        of = "its host is not known" if info.copy_of is None else f"of host {info.copy_of}"
        yield f"copy        {of}: only what streams it appends here"
    yield from _table([_file_cells(file) for file in info.files[hidden:]])
    yield from _table([_digest_cells(file) for file in info.files[hidden:] if file.sha256])
    yield from _table([_lock_cells(lock) for lock in info.locks])
    yield from _table([_tailer_cells("tailer", each) for each in info.tailers])
    yield from _table([_tailer_cells("reader", each) for each in info.readers])
    for name, index in info.marks.items():
        if index >= 0:
            yield f"mark  {name}  {format_index(index)}"
    yield from _table([_host_cells(host) for host in info.hosts])
    yield from _table([_epoch_cells(each) for each in info.epochs.history])
    if not info.epochs.is_begun:
        promised, to = info.epochs.promised, info.epochs.promised_to
        yield f"epoch  {promised}  promised to host {to}, nothing of it is here yet"
    if info.unproved_from is not None:
        start = format_index(info.unproved_from)
        yield f"unproved from {start}: the machine was started again, or a sync failed"
    if info.keys_end > KEYS_END_WARNED:
        yield f"keys  end at {info.keys_end:,} bytes; behind {KEYS_END_JAVA:,} Java adds none"
    for finding in info.findings:
        yield f"{finding}: {finding.remedy}" if finding.remedy else str(finding)


def info_json(info: QueueInfo) -> str:
    """One line of JSON."""
    fields: dict[str, object] = {
        "v": 1,
        "path": str(info.path),
        "roll_cycle": info.layout.roll_cycle.name,
        "epoch": info.layout.epoch,
        "index_count": info.layout.index_count,
        "index_spacing": info.layout.index_spacing,
        "source_id": info.layout.source_id,
        "has_table_store": info.has_table,
        "deep": info.is_deep,
        "excerpts": info.count,
        "index_first": _index(info.first_index),
        "index_last": _index(info.last_index),
        "free_bytes": info.free_bytes,
        "files": [_file_fields(file) for file in info.files],
        "listing": {
            "lowest_cycle": info.listing.lowest_cycle,
            "highest_cycle": info.listing.highest_cycle,
            "changes": info.listing.changes,
        },
        "locks": [
            {"name": lock.name, "holder": lock.holder, "is_alive": lock.is_alive}
            for lock in info.locks
        ],
        "tailers": [_tailer_fields(each) for each in info.tailers],
        "readers": [_tailer_fields(each) for each in info.readers],
        "unproved_from": _index(info.unproved_from),
        "marks": {name: _mark(index) for name, index in info.marks.items()},
        "hosts": [
            {
                "host": host.host_id,
                "sent": _mark(host.sent or -1),
                "acknowledged": _mark(host.acknowledged),
                "synced": _mark(host.synced),
                "applied": _mark(host.applied),
            }
            for host in info.hosts
        ],
        "copy": {"of": info.copy_of} if info.is_copy else None,
        "promised": _promise(info.epochs),
        "epochs": shown(info.epochs.history),
        "other_keys": info.other_keys,
        "keys_end": info.keys_end,
        "findings": [_finding_fields(finding) for finding in info.findings],
    }
    return output.json_line(fields)


def _tailer_fields(tailer: TailerState) -> dict[str, object]:
    return {
        "name": tailer.name,
        "next_index": _index(tailer.next_index),
        "cycles_behind": tailer.behind_cycles,
    }


def _promise(epochs: Epochs) -> dict[str, object] | None:
    if not epochs.promised:
        return None
    return {"epoch": epochs.promised, "leader": epochs.promised_to}


def _finding_fields(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind.value,
        "path": str(finding.path),
        "position": finding.position,
        "index": _index(finding.index),
        "text": finding.text,
        "can_be_repaired": finding.repair is not None,
    }


def _file_fields(file: StoreReport) -> dict[str, object]:
    fields: dict[str, object] = {
        "file": file.path.name,
        "cycle": file.cycle,
        "bytes": file.size_bytes,
        "allocated_bytes": file.allocated_bytes,
        "excerpts": file.count,
        "index_first": _index(file.index_first) if file.count else None,
        "index_last": _index(file.index_last),
        "end": file.end.value,
        "position_end": file.position_end,
    }
    if file.digest is not None:
        fields["digest"] = file.digest
    if file.sha256 is not None:
        fields["sha256"] = file.sha256
    return fields


def _file_cells(file: StoreReport) -> tuple[str, ...]:
    count = "unreadable" if file.count is None else plural(file.count, "excerpt")
    indexes = _range(file.index_first if file.count else None, file.index_last).strip()
    size = format_bytes(file.allocated_bytes)
    return ("file", file.path.name, f"cycle {file.cycle}", count, indexes, size, file.end.value)


def _digest_cells(file: StoreReport) -> tuple[str, ...]:
    return ("sha256", file.path.name, file.sha256 or "")


def _lock_cells(lock: LockState) -> tuple[str, ...]:
    if lock.holder is None:
        return "lock", lock.name, "free"
    state = "alive" if lock.is_alive else "dead"
    return "lock", lock.name, f"held by process {lock.holder}, which is {state}"


def _tailer_cells(kind: str, tailer: TailerState) -> tuple[str, ...]:
    behind = "" if not tailer.behind_cycles else plural(tailer.behind_cycles, "cycle") + " behind"
    place = format_index(tailer.next_index) if tailer.next_index else "the start"
    return kind, tailer.name, place, behind


def _host_cells(host: HostState) -> tuple[str, ...]:
    sent, acknowledged = _mark(host.sent or -1), _mark(host.acknowledged)
    return (
        "host",
        f"{host.host_id}",
        f"sent {sent or 'nothing'}",
        f"acknowledged {acknowledged or 'nothing'}",
        *(
            "" if _mark(index) is None else f"{name} {_mark(index)}"
            for name, index in (("synced", host.synced), ("applied", host.applied))
        ),
    )


def _epoch_cells(epoch: Epoch) -> tuple[str, ...]:
    start = format_index(epoch.start) if epoch.start else "the start"
    merged = f"and up to {plural(epoch.last - epoch.number, 'later epoch')}, merged"
    return (
        "epoch",
        f"{epoch.number}",
        f"host {epoch.leader}",
        f"from {start}",
        merged if epoch.last else "",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The rows with their cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(cell.ljust(width) for cell, width in cells).rstrip()


def _range(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return ""
    return f"  {format_index(first)} .. {format_index(last)}"


def _mark(index: int) -> str | None:
    return format_index(index) if index >= 0 else None


def _index(index: int | None) -> str | None:
    return None if index is None else format_index(index)
