"""Prints what is to count as it is, or does now, because a person says so."""

from collections.abc import Iterable
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.queue.acceptance import (
    Begin,
    LostCycle,
    Unproved,
    accept_begin,
    accept_lost_end,
    accept_missing,
    accept_unproved,
    begin_to_accept,
    lost_cycles,
    lost_end_of,
    unproved,
)
from cqrepl.queue.format.index import format_index
from cqrepl.queue.inspection.lostend import LostEnd

_NOTHING_CHANGED = "nothing was changed: --apply does it"


def print_missing(path: Path, *, is_applied: bool, as_json: bool) -> int:
    """Looks for closed cycles that are not what they were, and for an end that is gone, forgets
    them if that is asked for, and prints both; the exit code."""
    end = lost_end_of(path)
    if end is not None and is_applied:  # first: where that cannot be, nothing was changed
        end = accept_lost_end(path) or end  # of a queue without any file, opening it does that
    lost = (accept_missing if is_applied else lost_cycles)(path)
    if as_json:
        lines = [_lost_fields(each) for each in lost]
        lines += [] if end is None else [end_fields(end)]
        text = _json_lines(each | {"applied": is_applied} for each in lines)
    else:
        text = _missing_text(path, lost, end, is_applied=is_applied)
    return _printed(text)


def print_begin(path: Path, *, is_applied: bool, as_json: bool) -> int:
    """Says from which excerpt on a copy is to be held against its source, notes that if that is
    asked for; the exit code."""
    found = (accept_begin if is_applied else begin_to_accept)(path)
    if as_json:
        fields = [] if found is None else [_begin_fields(found) | {"applied": is_applied}]
        return _printed(_json_lines(fields))
    if found is None:
        text = f"{path}: nothing is to be accepted below its first excerpt\n"
    else:
        done = (
            "counts as taken off" if is_applied else f"is to count as taken off, {_NOTHING_CHANGED}"
        )
        text = f"{path}: what its source has before {format_index(found.index)} {done}\n"
    return _printed(text)


def print_unproved(path: Path, *, is_applied: bool, as_json: bool) -> int:
    """Looks for what a power cut may have torn, marks it as proved if that is asked for, and prints
    both; the exit code."""
    found = (accept_unproved if is_applied else unproved)(path)
    if as_json:
        fields = [_unproved_fields(found) | {"applied": is_applied}] if found.excerpts else []
        text = _json_lines(fields)
    else:
        text = _unproved_text(found, is_applied=is_applied)
    return _printed(text)


def _printed(text: str) -> int:
    output.write_text(text)
    output.flush()
    return exitcodes.OK


def _missing_text(
    path: Path, lost: list[LostCycle], end: LostEnd | None, *, is_applied: bool
) -> str:
    lines = [
        f"{each.path.name}: expected {plural(each.noted, 'excerpt')}, {_found(each)}"
        for each in lost
    ]
    if end is not None:
        lines.append(f"{end.path.name}, from {format_index(end.index)} on: {end.what}")
    files = plural(len(lost), "store file")
    if end is not None:
        files = f"{files} and the end" if lost else "the end"
    they_are = "they are" if lost else "it is"
    if not lost and end is None:
        lines = [f"{path}: every closed store file that is known holds what it held"]
    elif is_applied:
        lines.append(f"{path}: {files} accepted as {they_are}; start its source or sink again")
    else:
        lines.append(f"{path}: {files} to be accepted as {they_are}, {_NOTHING_CHANGED}")
    return "".join(line + "\n" for line in lines)


def _found(lost: LostCycle) -> str:
    if lost.found is None:
        return "found no store file that can be read"
    if lost.found == lost.noted:
        return "found as many, and others"
    return f"found {lost.found}"


def _unproved_text(found: Unproved, *, is_applied: bool) -> str:
    if not found.excerpts:
        return f"{found.path}: nothing is unproved\n"
    what = f"{plural(found.excerpts, 'excerpt')} from {format_index(found.start)} on"
    lines = [f"{format_index(index)}: reads as torn" for index in found.torn]
    done = "proved as they are" if is_applied else f"to be taken as proved, {_NOTHING_CHANGED}"
    lines.append(f"{found.path}: {what} {done}")
    return "".join(line + "\n" for line in lines)


def _lost_fields(lost: LostCycle) -> dict[str, object]:
    more = {"cycle": lost.cycle, "noted": lost.noted, "excerpts": lost.found}
    return _fields("accept-missing", lost.path, **more)


def _begin_fields(found: Begin) -> dict[str, object]:
    return _fields("accept-begin", found.path, index_first=format_index(found.index))


def end_fields(lost: LostEnd) -> dict[str, object]:
    """Of an end that is gone, for JSON."""
    more = {"index_first": format_index(lost.index), "text": lost.what}
    return _fields("accept-end", lost.path, **more)


def _unproved_fields(found: Unproved) -> dict[str, object]:
    return _fields(
        "accept-unproved",
        found.path,
        index_first=format_index(found.start),
        next_index=format_index(found.end),
        excerpts=found.excerpts,
        torn=[format_index(index) for index in found.torn],
    )


def _fields(kind: str, path: Path, **more: object) -> dict[str, object]:
    return {"v": 1, "kind": kind, "path": str(path), **more}


def _json_lines(lines: Iterable[dict[str, object]]) -> str:
    return "".join(output.json_line(line) for line in lines)
