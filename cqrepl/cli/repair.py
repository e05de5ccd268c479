"""`cqrepl repair`: puts right what dead writers and damage left beside the excerpts."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import SPOT, json_option, only_index, queue_argument
from cqrepl.commands.spot import Spot


@click.command()
@queue_argument
@click.option("--apply", "is_applied", is_flag=True, help="Do it; without, only say what.")
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --apply: first copy the files to be changed into this new directory.",
)
@click.option(
    "--quarantine",
    "tail",
    type=SPOT,
    metavar="INDEX",
    help="Instead: take everything from this index on off the queue, into a queue of its own.",
)
@click.option(
    "--reseed",
    is_flag=True,
    help="Instead: take off all excerpts, so that the queue is taken anew from its source.",
)
@json_option
def repair(
    path: Path,
    is_applied: bool,
    backup: Path | None,
    tail: Spot | None,
    reseed: bool,
    as_json: bool,
) -> None:
    """Put right what writers left undone, and damage beside excerpts.

    Rebuilds index pages, write positions, the listing and missing end-of-file marks. Says what it
    would store where, and why; with --apply it does so, under the queue's write lock. No excerpt is
    changed. Exits 4 if damage remains that cannot be repaired in place.

    Of two copies that have diverged, --quarantine INDEX takes the tail off the one that is wrong;
    then it follows the other one again. The tail is kept below its directory, in quarantine/, as a
    queue with a report. No other process may have the queue open.
    """
    if tail is not None and reseed:
        raise click.UsageError("--quarantine and --reseed exclude each other")
    if backup is not None and (tail is not None or reseed):
        raise click.UsageError("--backup goes with neither --quarantine nor --reseed")
    if backup is not None and not is_applied:
        raise click.UsageError("--backup goes with --apply")
    index = only_index(tail)
    from cqrepl.commands import outcome
    from cqrepl.commands.quarantine import print_quarantine
    from cqrepl.commands.repair import print_repair

    def work() -> int:
        if index is not None or reseed:
            return print_quarantine(path, index, is_applied=is_applied, as_json=as_json)
        return print_repair(path, is_applied=is_applied, backup=backup, as_json=as_json)

    sys.exit(outcome.guarded("cqrepl repair", work))
