"""`cqrepl spark preload`: queues from a table."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import json_option
from cqrepl.cli.sparkoptions import DIRECTORY, spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkpreload import PreloadOptions


@click.command()
@click.argument("table")
@click.argument("out", metavar="DIR", type=DIRECTORY)
@click.option(
    "--format", "form", default="parquet", show_default=True, metavar="NAME",
    help="How Spark reads TABLE: parquet, json, csv, orc, chronicle, ...; or `table`, by its name.",
)  # fmt: skip
@click.option("--option", "reading", multiple=True, metavar="KEY=VALUE", help="For that format.")
@click.option("--key", required=True, metavar="COLUMN", help="The column that decides the queue.")
@click.option(
    "--partitions", type=click.IntRange(1, 100_000), required=True, metavar="N",
    help="How many queues.",
)  # fmt: skip
@click.option(
    "--payload", metavar="COLUMN",
    help="The column that is the excerpt. [default: the whole row, as binary wire]",
)  # fmt: skip
@click.option(
    "--order-by", "order", metavar="COLUMN",
    help="The rows of a key in the order of this column."
    " [default: index, where there is one, else the payload]",
)  # fmt: skip
@click.option(
    "--block", type=click.IntRange(1), default=10_000, show_default=True, metavar="N",
    help="Excerpts that are appended in one step.",
)  # fmt: skip
@click.option("--roll-cycle", default="FAST_DAILY", show_default=True, help="Of the new queues.")
@spark_options
@json_option
def preload(table: str, out: Path, **options: "Unpack[PreloadOptions]") -> None:
    """Fill queues from a table: each row into the queue of its key's partition.

    The partition is the CRC-32 of the key as binary wire, modulo N, on every machine and in every
    language. A run that was cut off is repeated: what exists is compared, the rest appended.
    """

    from cqrepl.commands.sparkpreload import run_preload

    sys.exit(run_preload(table, out, options))
