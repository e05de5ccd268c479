"""`cqrepl export`: documents of a queue as files of rows."""

import sys
from datetime import UTC
from functools import partial
from pathlib import Path

import click

from cqrepl.cli.options import INDEX, PATHS, QUEUE_DIR, json_option, queue_argument
from cqrepl.cli.typedoptions import condition_of, schema_options
from cqrepl.console.endings import ending_signals

_EPILOG = """\b
--to FILE.csv, .jsonl, .arrow or .parquet is written anew, and replaces the file at the end.
--to DIR --format FORM takes parts, part-FIRSTINDEX.FORM, and manifest.json; the same command goes
on behind the last whole part, also after it was killed.

\b
With a schema (--schema, or QUEUE_DIR/schema.json) rows have its fields. Without one csv and jsonl
have those of the documents, csv those of the first; arrow and parquet need one.
Excerpts that are no such documents are left out, counted and named, and the exit code is 4.
"""


@click.command(epilog=_EPILOG)
@queue_argument
@click.option("--to", "target", type=QUEUE_DIR, metavar="FILE", required=True, help="See below.")
@click.option(
    "--format", "form", type=click.Choice(["csv", "jsonl", "arrow", "parquet"]),
    help="Of the parts in a directory.",
)  # fmt: skip
@schema_options
@click.option(
    "--fields", "paths", type=PATHS, metavar="NAMES", help="Only these fields, as symbol,order.px."
)
@click.option("--where", metavar="CONDITION", help="Only documents that fulfil this: as for tail.")
@click.option("--from", "index_first", type=INDEX, metavar="INDEX", default="first",
              help="Begin there.")  # fmt: skip
@click.option("--until", "index_last", type=INDEX, metavar="INDEX", help="End there.")
@click.option(
    "--part-rows", type=click.IntRange(1), metavar="N", default=1_000_000, show_default=True,
    help="End a part when it has so many rows.",
)  # fmt: skip
@json_option
def export(
    path: Path,
    target: Path,
    form: str | None,
    schema: Path | None,
    event: str | None,
    paths: tuple[tuple[str, ...], ...] | None,
    where: str | None,
    index_first: int,
    index_last: int | None,
    part_rows: int,
    as_json: bool,
) -> None:
    """Write the documents of a queue as CSV, JSON lines, Arrow or Parquet.

    Reads without a lock and changes nothing in the queue.
    """
    condition = condition_of(where, UTC)
    from cqrepl.commands import outcome
    from cqrepl.commands.queueexport import ExportOptions, export_queue
    from cqrepl.queue.format.index import INDEX_MAX

    last = INDEX_MAX if index_last is None else index_last
    options = ExportOptions(
        target, form, schema, event, paths or (), index_first, last, part_rows, as_json
    )
    work = partial(export_queue, path, options, condition)
    sys.exit(outcome.guarded("cqrepl export", work, interrupted_by=ending_signals()))
