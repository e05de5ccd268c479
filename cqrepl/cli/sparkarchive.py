"""`cqrepl spark archive`: a queue as Parquet, and what is done with such an archive."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import click

from cqrepl.cli.options import json_option, queue_argument
from cqrepl.cli.sparkoptions import ARCHIVE, DIRECTORY, spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions

_USUAL: Final = "add"


class _WithUsual(click.Group):
    """A group whose first command need not be named: `archive QUEUE_DIR ARCHIVE_DIR` adds."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the name of the usual command before what is none."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_USUAL, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_WithUsual)
def archive() -> None:
    """Archive a queue as Parquet, by day and cycle, and look after such archives.

    ARCHIVE_DIR is a directory, s3://bucket/prefix, or hdfs://host:port/path.

    `cqrepl spark archive QUEUE_DIR ARCHIVE_DIR` is short for `add`.
    """


@archive.command()
@queue_argument
@click.argument("out", metavar="ARCHIVE_DIR", type=ARCHIVE)
@click.option("--with-open", is_flag=True, help="Archive the cycle that is still written, too.")
@click.option(
    "--verify", is_flag=True, help="Read all parts back, old and new ones, and compare digests."
)
@click.option(
    "--replace", is_flag=True, help="Archive anew what the queue holds otherwise than the archive."
)
@click.option(
    "--hold/--release",
    "holds",
    default=None,
    help="`cqrepl gc` keeps what is not in this archive yet, from now on, or no longer, also where"
    " the archive has gone.",
)
@spark_options
@json_option
def add(
    path: Path,
    out: Path | str,
    with_open: bool,
    verify: bool,
    replace: bool,
    holds: bool | None,
    as_json: bool,
    **options: "Unpack[SessionOptions]",
) -> None:
    """Add to an archive what it does not have of a queue, with a manifest.

    Run again, it adds the cycles that have been closed since. Nothing is ever deleted from the
    queue. `restore` gives it back, index for index. Where the queue holds less of a cycle than was
    archived, or other bytes, nothing is changed, and the exit code is 1. So it is where all was
    archived but a cycle that no writer has closed, though a later one has excerpts; it is named.
    """

    from cqrepl.commands.sparkarchive import run_archive

    kinds = {"with_open": with_open, "verify": verify, "replace": replace}
    sys.exit(run_archive(path, out, options, **kinds, holds=holds, as_json=as_json))


@archive.command()
@click.argument("path", metavar="ARCHIVE_DIR", type=ARCHIVE)
@click.option(
    "--sample",
    type=click.IntRange(1, 100),
    default=100,
    show_default=True,
    metavar="PERCENT",
    help="Read so many of a hundred parts, chosen at random.",
)
@spark_options
@json_option
def verify(
    path: Path | str, sample: int, as_json: bool, **options: "Unpack[SessionOptions]"
) -> None:
    """Read the parts of an archive, and compare digests with its manifest.

    Exits 4 if a part is missing or holds something else; each such part is named. An archive that
    holds nothing yet proves nothing: then it exits 1.
    """
    from cqrepl.commands.sparkarchive import run_archive_verify

    sys.exit(run_archive_verify(path, options, percent=sample, as_json=as_json))


@archive.command()
@click.argument("path", metavar="ARCHIVE_DIR", type=ARCHIVE)
@click.option("--apply", "is_applied", is_flag=True, help="Delete; without, only say what.")
@json_option
def gc(path: Path | str, is_applied: bool, as_json: bool) -> None:
    """Delete what no manifest names: what runs that were killed have left.

    Needs neither Spark nor Java. In an object store what is younger than a day stays.
    """
    from cqrepl.commands.sparkarchive import run_archive_gc

    sys.exit(run_archive_gc(path, is_applied=is_applied, as_json=as_json))


@archive.command()
@click.argument("path", metavar="ARCHIVE_DIR", type=ARCHIVE)
@click.option(
    "--queue", type=DIRECTORY, metavar="QUEUE_DIR", help="The queue that was archived, or a copy."
)
@click.option(
    "--roll-cycle", metavar="NAME", help="Its roll cycle, such as FAST_DAILY, where none is left."
)
@click.option("--apply", "is_applied", is_flag=True, help="Write it; without, only say what.")
@click.option("--replace", "replaces", is_flag=True, help="Give up a manifest that is there.")
@spark_options
@json_option
def rebuild_manifest(
    path: Path | str,
    queue: Path | None,
    roll_cycle: str | None,
    is_applied: bool,
    replaces: bool,
    as_json: bool,
    **options: "Unpack[SessionOptions]",
) -> None:
    """Make the manifest of an archive anew, of its parts: all of them are read.

    Exits 1 if a cycle is not there between others, or may have had more: each is named. Nothing is
    changed, and the exit code is 4, if parts contradict each other, or one is damaged or missing
    within a cycle. A cycle counts as closed where the queue says so, or where a later one follows.
    """
    from cqrepl.commands.sparkmanifest import ManifestOptions, run_rebuild_manifest

    chosen = ManifestOptions(
        queue=queue, roll_cycle=roll_cycle, is_applied=is_applied, replaces=replaces
    )
    sys.exit(run_rebuild_manifest(path, chosen, options, as_json=as_json))
