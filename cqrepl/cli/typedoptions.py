"""Options of the commands about typed data."""

from datetime import tzinfo
from typing import TYPE_CHECKING

import click

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
