"""`cqrepl tailers`: where the named tailers of a queue stand, and to move them."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import SPOT, json_option, queue_argument
from cqrepl.commands.spot import Spot


@click.command()
@queue_argument
@click.argument("verb", type=click.Choice(["show", "set", "forget"]), default="show")
@click.argument("name", required=False)
@click.argument("spot", metavar="[INDEX|TIME|first|last]", type=SPOT, required=False)
@click.option(
    "--time-field", "field", metavar="FIELD", help="With a TIME: the field of payloads that has it."
)
@json_option
def tailers(
    path: Path, verb: str, name: str | None, spot: Spot | None, field: str | None, as_json: bool
) -> None:
    """Show where named tailers stand, and how far behind the end.

    `set NAME INDEX|TIME` has one go on there; its reader, which must not run, finds it so at its
    next start. `forget NAME` has one hold no store files: it stands at the end from then on, as a
    key of a table store is never freed.
    """
    needed = {"show": 0, "set": 2, "forget": 1}[verb]
    given = [each for each in (name, spot) if each is not None]
    if len(given) != needed:
        wanted = ("nothing", "NAME", "NAME and INDEX or TIME")[needed]
        raise click.UsageError(f"expected {wanted} behind {verb!r}, got {len(given)} arguments")
    from cqrepl.commands import outcome
    from cqrepl.commands.tailers import forget_tailer, move_tailer, print_tailers

    def work() -> int:
        if verb == "set":
            assert name is not None
            assert spot is not None
            return move_tailer(path, name, spot, field)
        if verb == "forget":
            assert name is not None
            return forget_tailer(path, name)
        return print_tailers(path, as_json=as_json)

    sys.exit(outcome.guarded("cqrepl tailers", work))
