"""`cqrepl import`: rows of a file, appended as documents."""

import sys
from functools import partial
from pathlib import Path

import click

from cqrepl.cli.options import QUEUE_DIR, json_option, queue_argument
from cqrepl.cli.typedoptions import schema_options
from cqrepl.console.endings import ending_signals

_EPILOG = """\b
With a schema (--schema, or QUEUE_DIR/schema.json) each row is a message of its class, laid out as
Java lays out the same class; csv needs one. Without one a row is a document of its fields.
A column `index`, as export writes it, is left out: an excerpt gets the queue's next index.

QUEUE_DIR/imports.json notes how far each file came, by its SHA-256: the same command goes on
behind the last row that is in the queue, also after it was killed, and appends no row twice.
"""


@click.command("import", epilog=_EPILOG)
@queue_argument
@click.argument("source", metavar="FILE", type=QUEUE_DIR)
@click.option(
    "--format", "form", type=click.Choice(["csv", "jsonl", "arrow", "parquet"]),
    help="Of the file.  [default: as its name says]",
)  # fmt: skip
@schema_options
@click.option("--create", metavar="ROLL_CYCLE", help="Make the queue where there is none.")
@json_option
def import_(
    path: Path,
    source: Path,
    form: str | None,
    schema: Path | None,
    event: str | None,
    create: str | None,
    as_json: bool,
) -> None:
    """Append the rows of CSV, JSON lines, Arrow or Parquet to a queue that is no copy."""
    from cqrepl.commands import outcome
    from cqrepl.commands.rowimport import ImportOptions, import_rows

    options = ImportOptions(source, form, schema, event, create, as_json)
    work = partial(import_rows, path, options)
    sys.exit(outcome.guarded("cqrepl import", work, interrupted_by=ending_signals()))
