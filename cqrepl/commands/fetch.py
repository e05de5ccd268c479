"""Prints which closed cycles are to come from another host, or have come."""

from pathlib import Path

import trio

from cqrepl.commands.guestfetch import fetch
from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.net.address import Address
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.queue import Queue
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.queue.inspection.closedfiles import wanting


def print_fetch(
    path: Path,
    name: str | None,
    host: Address,
    host_id: int,
    *,
    is_applied: bool,
    as_json: bool,
    tls: TlsSettings = NO_TLS,
) -> int:
    """Looks for closed cycles that are not what they were, takes them if that is asked for, and
    prints both; the exit code.

    Args:
        name: of the queue at the other host; None: that of the directory.
        host: where the other one listens.
        host_id: its id.
        tls: by which it is met.
    """
    with Queue.open(path) as queue:
        wanted = wanting(queue.cycles)
        if wanted and is_applied:
            trio.run(fetch, queue, wanted, name or path.absolute().name, host, host_id, tls)
        show = _json if as_json else _text
        output.write_text(show(queue, wanted, is_applied=is_applied))
    output.flush()
    return exitcodes.OK


def _text(queue: Queue, wanted: list[ClosedCycle], *, is_applied: bool) -> str:
    lines = [
        f"{queue.cycles.path_of(each.cycle).name}: {plural(each.excerpts, 'excerpt')}"
        for each in wanted
    ]
    files = plural(len(wanted), "store file")
    if not wanted:
        lines = [f"{queue.path}: every closed store file that is known holds what it held"]
    elif is_applied:
        lines.append(f"{queue.path}: {files} fetched")
    else:
        lines.append(f"{queue.path}: {files} to be fetched, nothing was changed: --apply does it")
    return "".join(line + "\n" for line in lines)


def _json(queue: Queue, wanted: list[ClosedCycle], *, is_applied: bool) -> str:
    lines = [
        {
            "v": 1,
            "kind": "fetch",
            "path": str(queue.cycles.path_of(each.cycle)),
            "excerpts": each.excerpts,
            "applied": is_applied,
        }
        for each in wanted
    ]
    return "".join(output.json_line(line) for line in lines)
