"""`cqrepl identity`: which queue a directory holds, and the end of a mistake about that."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cqrepl.cli.options import QUEUE_DIR, Converted, json_option, queue_argument

if TYPE_CHECKING:
    from cqrepl.queue.format.identity import Identity


def _identity(text: str) -> "Identity":
    from cqrepl.queue.format.identity import parse_identity  # no other command waits for it

    return parse_identity(text)


IDENTITY: Final = Converted("id", _identity)


@click.group()
def identity() -> None:
    """Show or give the identity of a queue, whatever its directory is called.

    A queue and its copies have one identity, of 32 digits. The first source that streams a queue
    makes it; a copy takes it once it is proved to be one. Two hosts that have different ones under
    one name stop that queue: one of them is in a wrong directory, or was made anew.
    """


@identity.command()
@queue_argument
@json_option
def show(path: Path, as_json: bool) -> None:
    """Print the identity of a queue, or "none"."""
    from cqrepl.commands import outcome
    from cqrepl.commands.identity import print_identity

    sys.exit(outcome.guarded("cqrepl identity", lambda: print_identity(path, as_json=as_json)))


@identity.command()
@queue_argument
@click.argument("wanted", metavar="[ID]", required=False, type=IDENTITY)
@click.option(
    "--from",
    "other",
    type=QUEUE_DIR,
    metavar="OTHER_DIR",
    help="Take that of the queue in this directory.",
)
@click.option("--apply", "is_applied", is_flag=True, help="Do it; without, only say what.")
@json_option
def adopt(
    path: Path, wanted: "Identity | None", other: Path | None, is_applied: bool, as_json: bool
) -> None:
    """Say that a queue is a copy of the one with this identity.

    For copies that were made by other means, when hosts refuse them over it. What they hold is
    still compared when they connect. Start the source and the sink again afterwards.
    """
    if (wanted is None) == (other is None):
        raise click.UsageError("an ID or --from OTHER_DIR expected, and not both")
    from cqrepl.commands import outcome
    from cqrepl.commands.identity import print_adoption

    def work() -> int:
        return print_adoption(path, wanted, other, is_applied=is_applied, as_json=as_json)

    sys.exit(outcome.guarded("cqrepl identity", work))
