"""Options of the commands about typed data."""

from datetime import tzinfo
from typing import TYPE_CHECKING

import click

from cqrepl.cli.options import QUEUE_DIR, Command

if TYPE_CHECKING:
    from cqrepl.typed.condition import Condition


def condition_of(text: str | None, zone: tzinfo) -> "Condition | None":
    """The condition of `--where`; None where there is none.

    Raises:
        click.UsageError: the text is none.
    """
    if text is None:
        return None
    from cqrepl.typed.condition import Condition  # loaded by those that ask one

    try:
        return Condition(text, zone)
    except ValueError as error:
        raise click.UsageError(f"--where: {error}") from error


def schema_options(command: Command) -> Command:
    """Adds the options for the schema of a queue's documents."""
    event = click.option(
        "--event", metavar="METHOD", help="The method, where the schema has several classes."
    )
    schema = click.option(
        "--schema",
        type=QUEUE_DIR,
        metavar="FILE",
        help="JSON Schema of the documents.  [default: QUEUE_DIR/schema.json]",
    )
    return schema(event(command))
