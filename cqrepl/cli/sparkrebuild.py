"""`cqrepl spark rebuild`: a lost queue from the best parts of its copies."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import QUEUE_DIR, json_option
from cqrepl.cli.sparkoptions import DIRECTORY, part_size_option, spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions


@click.command()
@click.argument("copies", metavar="COPY_DIR...", type=QUEUE_DIR, nargs=-1, required=True)
@click.option(
    "--to", "target", type=DIRECTORY, metavar="QUEUE_DIR", required=True, help="The new queue."
)
@click.option(
    "--prefer", type=QUEUE_DIR, metavar="COPY_DIR", help="The copy that wins where copies differ."
)
@part_size_option
@spark_options
@json_option
def rebuild(
    copies: tuple[Path, ...],
    target: Path,
    prefer: Path | None,
    part_size: int,
    as_json: bool,
    **options: "Unpack[SessionOptions]",
) -> None:
    """Make a lost queue anew from all that any of its copies holds.

    Damaged copies are read as far as they can be. Where copies hold other bytes under the same
    index nothing is made, the indexes are shown, and the exit code is 1: --prefer says which copy
    is right. The copies are not changed.
    """

    from cqrepl.commands.sparkrebuild import run_rebuild

    done = run_rebuild(
        copies, target, options, prefer=prefer, part_bytes=part_size, as_json=as_json
    )
    sys.exit(done)
