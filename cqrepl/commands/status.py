"""Asks the hosts of this machine what they do, and prints it."""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from cqrepl.commands.livetable import LiveTable
from cqrepl.commands.screen import Screen
from cqrepl.commands.statuspage import page
from cqrepl.console import exitcodes, output
from cqrepl.net.controlsocket import NotThere, Silent, ask_status
from cqrepl.net.rundirectory import known_hosts, usual_run_dir
from wire.text.terminal import one_line

LOOK_SECONDS: Final = 1.0  # between two looks that are watched
Values = Mapping[str, Any]  # as `status.snapshot` makes them; the version was looked at


def print_status(
    run_dir: Path | None, host_id: int | None, max_lag: int | None, *, as_json: bool
) -> int:
    """Prints what hosts say; the exit code.

    Args:
        host_id: of the one that is asked; None: of all.
        max_lag: most excerpts that a sink may lack; None: any number.
    """
    directory = run_dir or usual_run_dir()
    wanted = known_hosts(directory) if host_id is None else [host_id]
    found: list[Values] = []
    is_silent = False
    for each in wanted:
        try:
            found.append(ask_status(directory, each))
        except NotThere as error:
            is_silent = is_silent or isinstance(error, Silent)
            if host_id is not None or isinstance(error, Silent):
                output.write_error(f"cqrepl status: {error}")
    if not found:
        if host_id is None and not is_silent:
            output.write_error(f"cqrepl status: {directory}: no host runs here")
        return exitcodes.UNREACHABLE
    for each_host in found:
        lines = [json.dumps(each_host)] if as_json else [*map(one_line, page(each_host)), ""]
        output.write_text("".join(line + "\n" for line in lines))
    output.flush()
    is_well = all(_is_well(each_host, max_lag) for each_host in found)
    if is_well and is_silent:
        return exitcodes.UNREACHABLE
    return exitcodes.OK if is_well else exitcodes.STOPPED


def watch_status(run_dir: Path | None, host_id: int | None, *, as_json: bool) -> NoReturn:
    """Prints each second what hosts say, until it is interrupted: on a terminal in place of what
    stood there, elsewhere below it.

    Args:
        host_id: of the one that is asked; None: of all that run at that moment.
    """
    directory = run_dir or usual_run_dir()
    screen = Screen(sys.stdout)
    is_drawn = screen.is_terminal and not as_json
    tables: dict[int, LiveTable] = defaultdict(LiveTable)
    try:
        while True:
            wanted = known_hosts(directory) if host_id is None else [host_id]
            rows_max = (screen.size.lines - 1) // max(1, len(wanted)) - 1
            lines = [] if wanted else [f"{directory}: no host runs here"]
            for each in wanted:
                if as_json:
                    lines.append(json.dumps(_asked(directory, each)))
                else:
                    lines += [*_table(tables[each], _asked(directory, each), rows_max), ""]
            if is_drawn:
                screen.draw(lines)
            else:
                output.write_text("".join(f"{one_line(line)}\n" for line in lines))
                output.flush()
            time.sleep(LOOK_SECONDS)
    finally:
        if is_drawn:
            output.write_text("\n")


def _asked(directory: Path, host_id: int) -> Values:
    """The status that a host tells, or the reason why it tells none."""
    try:
        return ask_status(directory, host_id)
    except NotThere as error:
        return {"v": 1, "host": host_id, "error": str(error)}


def _table(table: LiveTable, host: Values, rows_max: int) -> list[str]:
    if "error" in host:
        return [str(host["error"])]
    return table.lines(host, time.monotonic(), rows_max)


def _is_well(host: Values, max_lag: int | None) -> bool:
    for queue in host["queues"]:
        sinks = queue.get("sinks", [])
        if any(str(each["state"]).startswith("stopped") for each in (queue, *sinks)):
            return False
        if max_lag is not None and any(_is_behind(each, max_lag) for each in sinks):
            return False
    return True


def _is_behind(sink: Values, max_lag: int) -> bool:
    return sink["state"] != "live" or sink["lag"] is None or sink["lag"] > max_lag
