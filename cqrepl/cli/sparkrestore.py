"""`cqrepl spark restore`: a queue again, of its archive."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import json_option
from cqrepl.cli.sparkoptions import ARCHIVE, DIRECTORY, part_size_option, spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions


@click.command()
@click.argument("archive", metavar="ARCHIVE_DIR", type=ARCHIVE)
@click.argument("target", metavar="QUEUE_DIR", type=DIRECTORY)
@part_size_option
@spark_options
@json_option
def restore(
    archive: Path | str,
    target: Path,
    part_size: int,
    as_json: bool,
    **options: "Unpack[SessionOptions]",
) -> None:
    """Make a queue of an archive: every excerpt under the index that it had.

    The digests in the manifest are checked. What is in the queue already is compared, never
    overwritten, so a run that was cut off can be repeated.
    """

    from cqrepl.commands.sparkrestore import run_restore

    sys.exit(run_restore(archive, target, options, part_bytes=part_size, as_json=as_json))
