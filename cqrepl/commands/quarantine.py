"""Prints what goes into quarantine, or has gone."""

from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.queue import Queue
from cqrepl.queue.quarantine import plan_quarantine, quarantine
from cqrepl.status.quarantinetext import text_of


def print_quarantine(path: Path, index: int | None, *, is_applied: bool, as_json: bool) -> int:
    """Plans, or does it, and prints what goes; the exit code.

    Args:
        index: everything from there on goes; None: all there is.
    """
    with Queue.open(path) as queue:
        shift = queue.layout.roll_cycle.shift
    going = quarantine(path, index) if is_applied else plan_quarantine(path, index)
    if as_json:
        fields = going.fields(shift) | {"applied": is_applied}
        output.write_text(output.json_line(fields))
    else:
        output.write_text(text_of(going, shift, is_applied=is_applied))
    output.flush()
    return exitcodes.OK
