"""`cqrepl spark audit`: are copies of a queue the same?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import INDEX, QUEUE_DIR, json_option
from cqrepl.cli.sparkoptions import FILE, spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions


@click.command()
@click.argument("paths", metavar="QUEUE_DIR QUEUE_DIR...", type=QUEUE_DIR, nargs=-1, required=True)
@click.option("--from", "index_from", type=INDEX, metavar="INDEX", help="Compare from there on.")
@click.option("--to", "index_to", type=INDEX, metavar="INDEX", help="Compare up to there.")
@click.option(
    "--common", is_flag=True, help="Compare up to the end of the shortest: for a copy being made."
)
@click.option("--digests", is_flag=True, help="Show the chain over the excerpts of each cycle.")
@click.option(
    "--read-all", "reads_all", is_flag=True,
    help="Read also closed cycles that side files prove to be equal.",
)  # fmt: skip
@click.option("--report", type=FILE, metavar="FILE", help="Write the table as Parquet, too.")
@spark_options
@json_option
def audit(
    paths: tuple[Path, ...],
    index_from: int | None,
    index_to: int | None,
    common: bool,
    digests: bool,
    reads_all: bool,
    report: Path | None,
    as_json: bool,
    **options: "Unpack[SessionOptions]",
) -> None:
    """Compare copies of a queue, index by index and byte by byte.

    The first copy is what each further one should be. Takes no lock and changes nothing. What is
    appended meanwhile is left out. Index pages, headers and what replication has noted are checked,
    too. Exits 1 unless all copies hold the same excerpts, 4 if one is damaged, or its end is not
    known. Where nothing was compared, as of a range without excerpts, it exits 1, too, unless it is
    all of queues that are empty.
    """
    if len(paths) < 2:
        raise click.UsageError("at least two queues are needed")
    if common and index_to is not None:
        raise click.UsageError("--common and --to do not go together")
    first, last = index_from or 0, index_to
    if last is not None and first > last:
        raise click.UsageError(f"--from {first:#x} lies behind --to {last:#x}")
    from cqrepl.commands.sparkaudit import run_audit

    code = run_audit(
        paths,
        options,
        index_first=first,
        index_last=last,
        common=common,
        digests=digests,
        reads_all=reads_all,
        report=report,
        as_json=as_json,
    )
    sys.exit(code)
