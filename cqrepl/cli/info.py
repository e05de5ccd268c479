"""`cqrepl info`: what is in a queue directory."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import json_option, queue_argument


@click.command()
@queue_argument
@click.option("--deep", is_flag=True, help="Read every byte, not only what writers recorded.")
@json_option
def info(path: Path, deep: bool, as_json: bool) -> None:
    """Show store files, locks, named tailers, and what is wrong.

    Takes no lock and changes nothing. Exits 4 if something is damaged.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.info import info_json, info_text
    from cqrepl.console import exitcodes, output
    from cqrepl.queue.inspection.overview import inspect_queue

    def work() -> int:
        found = inspect_queue(path, deep=deep)
        output.write_text(info_json(found) if as_json else info_text(found))
        output.flush()
        return exitcodes.DAMAGED if found.is_damaged else exitcodes.OK

    sys.exit(outcome.guarded("cqrepl info", work))
