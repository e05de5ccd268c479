"""`cqrepl unlock`: frees locks that dead processes left."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import json_option, queue_argument


@click.command()
@queue_argument
@click.option("--apply", "is_applied", is_flag=True, help="Free the locks of dead processes.")
@click.option(
    "--force",
    is_flag=True,
    help="With --apply: the locks of living processes too. Two writers at once destroy a queue; "
    "asks on a terminal, needs --yes elsewhere.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def unlock(path: Path, is_applied: bool, force: bool, yes: bool, as_json: bool) -> None:
    """Show who holds the locks of a queue; free those of the dead.

    Writers free a dead process's write lock by themselves. Its append lock stays, as in Java: it
    keeps plain writers out of a replica.
    """
    if force and not is_applied:
        raise click.UsageError("--force goes with --apply")
    if force and not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise click.UsageError("--force needs --yes where the terminal cannot be asked")
    from cqrepl.commands import outcome
    from cqrepl.commands.unlock import print_unlocked

    def work() -> int:
        return print_unlocked(
            path, is_applied=is_applied, force=force, asks=not yes, as_json=as_json
        )

    sys.exit(outcome.guarded("cqrepl unlock", work))
