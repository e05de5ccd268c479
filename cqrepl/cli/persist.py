"""`cqrepl persist`: sequences and queues that a backup has when an append returns."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import json_option


@click.group()
def persist() -> None:
    """Look at persistent storages, and at what configures them."""


@persist.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def check(path: Path, as_json: bool) -> None:
    """Print what each property of a FIX Antenna FILE does here.

    FILE is a Java properties file: that of the replication service (fej.replication.*), or
    fixengine.properties of an engine. Classes that it names are words, none is loaded.

    Exit codes: 0; 2 a property cannot be used, or FILE cannot be read.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.propertiescheck import check_properties

    sys.exit(outcome.guarded("cqrepl persist", lambda: check_properties(path, as_json=as_json)))
