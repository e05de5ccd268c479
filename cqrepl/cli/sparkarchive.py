"""`cqrepl spark archive`: a queue as Parquet."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import json_option, queue_argument
from cqrepl.cli.sparkoptions import DIRECTORY, spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions


@click.command()
@queue_argument
@click.argument("out", metavar="ARCHIVE_DIR", type=DIRECTORY)
@click.option("--with-open", is_flag=True, help="Archive the cycle that is still written, too.")
@click.option("--verify", is_flag=True, help="Read the new parts back, and compare digests.")
@click.option(
    "--replace", is_flag=True, help="Archive anew what the queue holds otherwise than the archive."
)
@spark_options
@json_option
def archive(
    path: Path,
    out: Path,
    with_open: bool,
    verify: bool,
    replace: bool,
    as_json: bool,
    **options: "Unpack[SessionOptions]",
) -> None:
    """Archive a queue as Parquet, by day and cycle, with a manifest.

    Run again, it adds the cycles that have been closed since. Nothing is ever deleted from the
    queue. `restore` gives it back, index for index. Where the queue holds less of a cycle than was
    archived, or other bytes, nothing is changed, and the exit code is 1.
    """

    from cqrepl.commands.sparkarchive import run_archive

    kinds = {"with_open": with_open, "verify": verify, "replace": replace}
    sys.exit(run_archive(path, out, options, **kinds, as_json=as_json))
