"""`cqrepl init`: a new, empty queue."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import json_option, queue_argument


@click.command()
@queue_argument
@click.option(
    "--roll-cycle", default="FAST_DAILY", show_default=True, help="When a new store file begins."
)
@click.option(
    "--epoch",
    type=int,
    metavar="MS",
    help="Moves the moment of rolling by so many milliseconds. [default: the roll cycle's, mostly"
    " 0]",
)
@click.option("--source-id", type=click.IntRange(0, 127), default=0, help="Kept for Java's tools.")
@json_option
def init(path: Path, roll_cycle: str, epoch: int | None, source_id: int, as_json: bool) -> None:
    """Make an empty queue.

    A queue that is there already is left as it is if it has the same roll cycle and epoch, and is
    refused otherwise. No store file is made before the first append.
    """
    from cqrepl.commands import outcome

    sys.exit(
        outcome.guarded("cqrepl init", lambda: _init(path, roll_cycle, epoch, source_id, as_json))
    )


def _init(path: Path, roll_cycle: str, epoch: int | None, source_id: int, as_json: bool) -> int:
    import json
    from dataclasses import replace

    from cqrepl.console import exitcodes, output
    from cqrepl.queue import Queue, QueueLayout
    from cqrepl.queue.format.rollcycle import by_name

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
