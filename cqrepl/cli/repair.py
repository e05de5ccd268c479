"""`cqrepl repair`: puts right what dead writers and damage left beside the excerpts."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import json_option, queue_argument


@click.command()
@queue_argument
@click.option("--apply", "is_applied", is_flag=True, help="Do it; without, only say what.")
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --apply: first copy the files to be changed into this new directory.",
)
@json_option
def repair(path: Path, is_applied: bool, backup: Path | None, as_json: bool) -> None:
    """Put right what writers left undone, and damage beside excerpts.

    Rebuilds index pages, write positions, the listing and missing end-of-file marks. Says what it
    would store where, and why; with --apply it does so, under the queue's write lock. No excerpt is
    changed. Exits 4 if damage remains that cannot be repaired in place.
    """
    if backup is not None and not is_applied:
        raise click.UsageError("--backup goes with --apply")
    from cqrepl.commands import outcome
    from cqrepl.commands.repair import print_repair

    sys.exit(
        outcome.guarded(
            "cqrepl repair",
            lambda: print_repair(path, is_applied=is_applied, backup=backup, as_json=as_json),
        )
    )
