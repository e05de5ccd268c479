"""Says of each store file whether it may go, and deletes those that may."""

import time
from collections.abc import Iterable
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.units import format_bytes, plural
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.write.retention import FileVerdict, Policy, plan, remove


def print_collected(
    path: Path,
    *,
    is_applied: bool,
    keep: int,
    keep_ms: int | None,
    forgotten: Iterable[int],
    as_json: bool,
) -> int:
    """Prints a line for each store file; the exit code."""
    keep_from = None if keep_ms is None else time.time_ns() // 1_000_000 - keep_ms
    policy = Policy(cycles_min=keep, keep_from_ms=keep_from, forgotten=frozenset(forgotten))
    with Queue.open(path) as queue:
        _check_known(policy.forgotten, queue)
        verdicts = plan(queue.cycles, policy)
        gone = {one.cycle for one in remove(queue.cycles, policy)} if is_applied else set()
    for verdict in verdicts:
        output.write_text(_json(verdict, gone) if as_json else _text(verdict, gone))
    if not as_json:
        output.write_text(_summary(verdicts, gone, is_applied))
    output.flush()
    return exitcodes.OK


def _check_known(forgotten: frozenset[int], queue: Queue) -> None:
    known = queue.host_marks.load()
    for host in sorted(forgotten - known.keys()):
        names = ", ".join(str(each) for each in known) or "none"
        raise BadArguments(f"a known host expected to be forgotten ({names}), {host} came")


def _text(verdict: FileVerdict, gone: set[Cycle]) -> str:
    word = "deleted" if verdict.cycle in gone else "may go" if verdict.is_removable else "stays"
    why = f"  {'; '.join(verdict.reasons)}" if verdict.reasons else ""
    return f"{verdict.path.name}  {format_bytes(verdict.size_bytes):>8}  {word:<7}{why}\n"


def _json(verdict: FileVerdict, gone: set[Cycle]) -> str:
    fields = {
        "v": 1,
        "file": verdict.path.name,
        "cycle": verdict.cycle,
        "allocated_bytes": verdict.size_bytes,
        "may_go": verdict.is_removable,
        "reasons": verdict.reasons,
        "is_deleted": verdict.cycle in gone,
    }
    return output.json_line(fields)


def _summary(verdicts: list[FileVerdict], gone: set[Cycle], is_applied: bool) -> str:
    going = [one for one in verdicts if one.is_removable]
    if is_applied:
        going = [one for one in verdicts if one.cycle in gone]
    size = format_bytes(sum(one.size_bytes for one in going))
    files = f"{plural(len(going), 'file')}, {size}"
    if is_applied:
        return f"{files} deleted\n"
    return f"{files} may go, nothing was changed: --apply deletes\n"
