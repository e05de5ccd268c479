"""`cqrepl init`: a new, empty queue."""

import sys
from pathlib import Path
from typing import Final

import click

from cqrepl.cli.options import json_option, queue_argument

_EPOCH_MAX_MS: Final = 253_370_764_800_000  # the last day of the year 9999


@click.command()
@queue_argument
@click.option(
    "--roll-cycle", default="FAST_DAILY", show_default=True, help="When a new store file begins."
)
@click.option(
    "--epoch",
    type=click.IntRange(-_EPOCH_MAX_MS, _EPOCH_MAX_MS),
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
    from cqrepl.commands.init import init_queue

    def work() -> int:
        return init_queue(
            path, roll_cycle=roll_cycle, epoch=epoch, source_id=source_id, as_json=as_json
        )

    sys.exit(outcome.guarded("cqrepl init", work))
