"""Makes an empty queue, and says what is there now."""

import json
from dataclasses import replace
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name


def init_queue(
    path: Path, *, roll_cycle: str, epoch: int | None, source_id: int, as_json: bool
) -> int:
    """Makes a queue where there is none, and prints a line; the exit code."""
    try:
        layout = QueueLayout.of(by_name(roll_cycle), epoch)
    except ValueError as error:
        raise exitcodes.BadArguments(str(error)) from error
    with Queue.open(path, create=replace(layout, source_id=source_id)) as queue:
        last = queue.last_index()
        name = queue.layout.roll_cycle.name
        if as_json:
            line = {"v": 1, "path": str(path), "roll_cycle": name, "epoch": queue.layout.epoch}
            output.write_text(json.dumps(line | {"is_empty": last is None}) + "\n")
        else:
            said = "an empty queue" if last is None else "a queue that holds excerpts"
            output.write_text(f"{path}: {said}, {name}\n")
        output.flush()
    return exitcodes.OK
