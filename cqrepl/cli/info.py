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
    """Show store files, locks, named tailers and other readers, sinks, and what is wrong.

    Takes no lock and changes nothing. Exits 4 if something is damaged.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.info import print_info

    sys.exit(outcome.guarded("cqrepl info", lambda: print_info(path, deep=deep, as_json=as_json)))
